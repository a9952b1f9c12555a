#!/usr/bin/env python3
"""Opens a report in headless Chromium, clicks everything in it, and takes its pictures.

    browser.py REPORT.html FOLDER

Needs the programs `chromium` and `chromedriver` and nothing beyond Python's standard library. Writes
light-wide.png, dark-wide.png, the same for `half` and `narrow`, and printed.pdf to FOLDER. Exits 0 if all is well,
1 with one line that says what is not, 2 if called wrongly or a program is missing.
"""

import base64
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

WIDE, HALF, NARROW = 1600, 800, 420
TALLEST = 12000  # pixels of one picture
MOST_PAGES = 4


class Failure(Exception):
    """Something the report must do and does not."""


class Browser:
    """One WebDriver session (https://www.w3.org/TR/webdriver2/) and the chromedriver behind it."""

    def __init__(self, width):
        self.profile = tempfile.TemporaryDirectory(prefix="latput-report-")
        self.driver = subprocess.Popen(
            [shutil.which("chromedriver"), "--port=0"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            self.root = f"http://127.0.0.1:{self.port()}"
            self.session = None
            arguments = [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--hide-scrollbars", f"--user-data-dir={self.profile.name}"]
            options = {"args": arguments, "binary": shutil.which("chromium")}
            if width < 500:  # a window cannot be as narrow as a phone, a device can
                options["mobileEmulation"] = {
                    "deviceMetrics": {"width": width, "height": 844, "pixelRatio": 2.0}}
            else:
                arguments.append(f"--window-size={width},1000")
            answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
                "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
            self.session = answer["sessionId"]
        except BaseException:
            self.close()
            raise

    def port(self):
        """The port that chromedriver chose, from what it prints."""
        for line in self.driver.stdout:
            if "on port " in line and "successfully" in line:
                return int(line.split("on port ")[1].split()[0].rstrip("."))
        raise Failure("chromedriver ended before it listened")

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.root + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            value = json.load(error)["value"]
            raise Failure(f"{method} {path}: {value['error']}: {value['message'][:200]}") from None

    def do(self, method, path, body=None):
        return self.call(method, f"/session/{self.session}{path}", body)

    def run(self, script, *arguments):
        return self.do("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector):
        found = self.do("POST", "/element", {"using": "css selector", "value": selector})
        element = next(iter(found.values()))
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        self.do("POST", f"/element/{element}/click", {})

    def keys(self, selector, text):
        found = self.do("POST", "/element", {"using": "css selector", "value": selector})
        self.do("POST", f"/element/{next(iter(found.values()))}/value", {"text": text})

    def drag(self, start, end):
        """The pointer from one place of the window to another, pressed unless both are the same."""
        def move(place):
            return {"type": "pointerMove", "duration": 50, "x": round(place[0]), "y": round(place[1])}
        steps = [move(start), {"type": "pointerDown", "button": 0}, move(end), {"type": "pointerUp", "button": 0}]
        self.do("POST", "/actions", {"actions": [{
            "type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": steps}]})

    def picture(self, path):
        """The whole page, as far as `TALLEST`."""
        self.run("document.querySelector('.legend')?.style.setProperty('position', 'static'); scrollTo(0, 0)")
        height = min(self.run("return document.documentElement.scrollHeight"), TALLEST)
        width = self.run("return document.documentElement.clientWidth")
        shot = self.do("POST", "/goog/cdp/execute", {"cmd": "Page.captureScreenshot", "params": {
            "captureBeyondViewport": True, "format": "png",
            "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}})
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        try:
            if getattr(self, "session", None):
                self.do("DELETE", "")
        except (Failure, OSError):
            pass  # the driver is ended in any case
        self.driver.terminate()
        try:
            self.driver.wait(10)
        except subprocess.TimeoutExpired:
            self.driver.kill()
            self.driver.wait()
        self.driver.stdout.close()
        for _ in range(20):  # the browser's last process may still be writing its profile
            try:
                self.profile.cleanup()
                return
            except OSError:
                time.sleep(0.1)


def expect(truth, message):
    if not truth:
        raise Failure(message)


def check_no_errors(browser):
    lines = [entry["message"] for entry in browser.do("POST", "/se/log", {"type": "browser"})
             if entry["level"] in ("SEVERE", "WARNING")]
    expect(not lines, f"the console has errors: {lines[:3]}")


def check_no_request(browser):
    fetched = browser.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
    expect(not fetched, f"the report fetched {fetched[:3]}")


def check_no_overflow(browser, width):
    page = browser.run("return document.documentElement.scrollWidth")
    culprit = browser.run("""
        return [...document.body.querySelectorAll('*')].filter(element =>
            element.getBoundingClientRect().right > arguments[0] + 1 && !element.closest('.scroll, pre'))
            .map(element => element.tagName + '.' + element.getAttribute('class')).slice(0, 3)""", width)
    expect(page <= width, f"at {width} px the page is {page} px wide: {culprit}")


def check_texts_apart(browser):
    """No two texts of a picture overlap, and none leaves its picture."""
    faults = browser.run("""
        const faults = [];
        for (const svg of document.querySelectorAll('svg.chart')) {
          const frame = svg.getBoundingClientRect();
          if (frame.width === 0) continue;
          const texts = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
          texts.forEach(([name, box], index) => {
            if (box.left < frame.left - 1 || box.right > frame.right + 1) faults.push(`"${name}" leaves "${svg.getAttribute('aria-label')}"`);
            for (const [other, area] of texts.slice(index + 1)) {
              const across = Math.min(box.right, area.right) - Math.max(box.left, area.left);
              const down = Math.min(box.bottom, area.bottom) - Math.max(box.top, area.top);
              if (across > 1 && down > 3) faults.push(`"${name}" and "${other}" overlap in "${svg.getAttribute('aria-label')}"`);
            }
          });
        }
        return faults""")
    expect(not faults, f"{len(faults)} texts in each other's way: {faults[:4]}")


def check_no_backtick(browser):
    """Code is marked up, not quoted as in a terminal."""
    quoted = browser.run("""
        const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        const found = [];
        while (texts.nextNode()) {
          if (texts.currentNode.textContent.includes('`') && !texts.currentNode.parentNode.closest('script, style'))
            found.push(texts.currentNode.textContent.trim().slice(0, 80));
        }
        return found""")
    expect(not quoted, f"{len(quoted)} texts have backticks: {quoted[:3]}")


def check_contents(browser):
    """Every entry of the contents leads to a heading, in the order of the page, and tables come before pictures."""
    missing, places = browser.run("""
        const links = [...document.querySelectorAll('.contents a')].map(link => link.getAttribute('href'));
        const headings = links.map(link => document.querySelector(link));
        return [links.filter((_, index) => !headings[index]), headings.map(it => it?.getBoundingClientRect().top ?? 0)]""")
    expect(not missing, f"the contents lead nowhere: {missing}")
    expect(places == sorted(places), f"the contents are not in the page's order: {places}")
    table, picture = browser.run("""
        return ['.tables table', 'svg.chart'].map(it => document.querySelector(it).getBoundingClientRect().top)""")
    # A picture that is not shown is at 0.
    expect(picture == 0 or table < picture, f"pictures ({picture} px) come before tables ({table} px)")


def check_directions(browser):
    """Each shown trade-off says for both figures which direction is better."""
    hints = browser.run("""
        return [...document.querySelectorAll('.trade-off svg.chart')].filter(svg => svg.getClientRects().length > 0)
            .map(svg => [...svg.querySelectorAll('text')].filter(text => /(more|less) is better$/.test(text.textContent)).length)""")
    expect(hints and all(count == 2 for count in hints), f"hints on the better direction in each picture: {hints}")


def check_width(browser, width):
    """Charts use the width of the page."""
    widest = browser.run("""
        return Math.max(...[...document.querySelectorAll('.trade-off svg.chart, .grid svg.chart')].map(svg => svg.getBoundingClientRect().width))""")
    expect(widest >= 0.85 * min(width, 900), f"at {width} px the widest picture has {widest:.0f} px")


def check_theme(browser):
    colour = "return getComputedStyle(document.body).backgroundColor"
    before = browser.run(colour)
    browser.click("#theme")
    after = browser.run(colour)
    expect(before != after, f"the theme button leaves the page {before}")
    browser.click("#theme")
    expect(browser.run(colour) == before, "the theme button does not switch back")


def check_sorting(browser):
    column = ".tables table thead th:nth-child(2) button"
    figures = """return [...document.querySelectorAll('.tables table')[0].tBodies[0].rows]
        .map(row => row.children[1].dataset.key).filter(key => key !== '').map(Number)"""
    browser.click(column)
    rising = browser.run(figures)
    expect(rising == sorted(rising), f"after one click the column is not ascending: {rising}")
    browser.click(column)
    falling = browser.run(figures)
    expect(falling == sorted(falling, reverse=True), f"after two clicks it is not descending: {falling}")
    browser.click(".tables table thead th:first-child button")


def check_selector(browser):
    shown = "return [...document.querySelectorAll('[data-panel]')].filter(p => p.offsetHeight > 0).map(p => p.dataset.panel)"
    expect(browser.run(shown) == ["0-0"], f"pictures shown at first: {browser.run(shown)}")
    for pick, panel in (("#pick-y", "0-1"), ("#pick-x", "1-1")):
        if browser.run("return document.querySelector(arguments[0]).options.length < 2", pick):
            return
        browser.click(f"{pick} option[value='1']")
        expect(browser.run(shown) == [panel], f"{pick} shows {browser.run(shown)}, not {panel}")
    check_texts_apart(browser)
    browser.click("#pick-x option[value='0']")
    browser.click("#pick-y option[value='0']")


def check_all_pairs(browser):
    """Every picture that can be chosen, looked at for texts in each other's way."""
    browser.run("document.querySelectorAll('[data-panel]').forEach(panel => panel.hidden = false)")
    check_texts_apart(browser)
    browser.run("document.querySelectorAll('[data-panel]').forEach(panel => panel.hidden = panel.dataset.panel !== '0-0')")


def check_details(browser):
    height = "return document.querySelector('details').offsetHeight"
    closed = browser.run(height)
    browser.click("details summary")
    opened = browser.run(height)
    expect(opened > closed, f"a closed section is {closed} px high and {opened} px when opened")
    browser.click("details summary")
    expect(browser.run(height) == closed, "an opened section does not close")


def check_more_figures(browser):
    columns = "return [...document.querySelectorAll('.tables table')[0].tHead.rows[0].children].filter(th => th.offsetWidth > 0).length"
    few = browser.run(columns)
    browser.click("#all-figures")
    many = browser.run(columns)
    expect(many > few, f"all figures are {many} columns, without it {few}")
    browser.click("#all-figures")


def check_data(browser):
    schema = browser.run("""
        const packed = Uint8Array.from(atob(document.querySelector('#trials').textContent), char => char.charCodeAt(0));
        const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
        return new Response(unpacked).json().then(trials => trials.schema)""")
    expect(schema == 1, f"the trials in the page have schema {schema}")


def dimmed(browser):
    """The settings that are dimmed in shown pictures, and in tables."""
    return browser.run("""
        const numbers = (selector, limit) => [...new Set([...document.querySelectorAll(selector)]
            .filter(it => it.getClientRects().length > 0 && Number(getComputedStyle(it).opacity) < limit)
            .map(it => Number(/(?:^| )s(\\d+)(?: |$)/.exec(it.getAttribute('class'))[1])))].sort((a, b) => a - b);
        return [numbers('.chart g[class]', .5), numbers('tbody tr[class]', .5)]""")


def settled(browser):
    time.sleep(0.3)  # the fading of pictures takes .12 s
    return dimmed(browser)


def check_pin(browser):
    """A click anywhere pins a setting in tables, scatter, curves and series; Escape releases it."""
    all_settings = sorted(browser.run("return [...document.querySelectorAll('.legend [data-setting]')].map(it => Number(it.dataset.setting))"))
    others = [number for number in all_settings if number != all_settings[1]]
    key = f".legend [data-setting='{all_settings[1]}']"
    expect(settled(browser) == [[], []], "settings are dimmed before anything is pinned")
    ways = {
        "the legend": lambda: browser.click(key),
        "a table": lambda: browser.click(f"tbody tr.s{all_settings[1]} td"),
        "the keyboard": lambda: browser.keys(key, "\ue007"),
    }
    for name, pin in ways.items():
        pin()
        browser.run("document.activeElement.blur()")
        found = settled(browser)
        expect(found == [others, others], f"{name} pins, and {found} are dimmed instead of {others}")
        if name == "the legend":
            pressed = browser.run("return document.querySelector(arguments[0]).getAttribute('aria-pressed')", key)
            expect(pressed == "true", "the pinned key is not told as pressed")
            pin()
        else:
            browser.keys("body", "\ue00c")
        browser.run("document.activeElement.blur()")
        expect(settled(browser) == [[], []], f"what {name} pinned is not released")


def shown_plot(browser, section):
    """The first shown picture of a section that can be zoomed: its plot in the window."""
    return browser.run("""
        const svg = [...document.querySelectorAll('svg[data-plot]')].find(it =>
            it.getClientRects().length > 0 && it.closest('section').querySelector('h2').textContent === arguments[0]);
        if (!svg) return null;
        svg.id = 'looked-at';
        svg.scrollIntoView({block: 'center'});
        const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
        const [left, top, right, bottom] = svg.dataset.plot.split(' ').map(it => it * scale);
        return [box.left + left, box.top + top, box.left + right, box.top + bottom]""", section)


def check_plots(browser):
    """Cross-hair, zoom and reset, by pointer and by keys, and a pin in the picture."""
    text = "return document.querySelector('#looked-at').closest('figure').querySelector('.readout:not([hidden])')?.innerText ?? ''"
    ticks = "return [...document.querySelectorAll('#looked-at .tick.x')].map(it => it.textContent).join()"
    reset = "return [...document.querySelector('#looked-at').closest('figure').querySelectorAll('.reset:not([hidden])')].length"
    is_touched = browser.run("return matchMedia('(pointer: coarse)').matches")
    present = browser.run("return [...document.querySelectorAll('.contents a')].map(link => link.textContent)")
    expect("Trade-off" in present, f"the contents have no trade-off: {present}")
    for section in ("Latency", "Trade-off", "Over time"):
        if section not in present:
            continue  # a program's own figures have no distribution
        plot = shown_plot(browser, section)
        expect(plot is not None, f"{section} has no picture that can be zoomed")
        left, top, right, bottom = plot
        width, height = right - left, bottom - top
        before = browser.run(ticks)
        if is_touched:  # a finger scrolls the page; keys do the rest
            browser.keys("#looked-at", "+\ue014")
        else:
            browser.drag((left + width * 0.3, top + height * 0.3), (left + width * 0.6, top + height * 0.7))
        zoomed = browser.run(ticks)
        expect(zoomed != before and browser.run(reset) == 1, f"{section}: a drag does not zoom: {before}, {zoomed}")
        read = browser.run(text)
        expect(any(c.isdigit() for c in read), f"{section}: the cross-hair reads {read!r}")
        if section == "Latency":
            expect(len(read.splitlines()) > 2, f"the read-out names no settings: {read!r}")
        browser.keys("#looked-at", "0")
        expect(browser.run(ticks) == before and browser.run(reset) == 0, f"{section}: 0 does not reset the zoom")
        browser.keys("#looked-at", "+")
        expect(browser.run(reset) == 1, f"{section}: + does not zoom")
        browser.run("document.querySelector('#looked-at').closest('figure').querySelector('.reset:not([hidden])').click()")
        expect(browser.run(reset) == 0, f"{section}: the button does not reset the zoom")
        browser.run("document.querySelector('#looked-at').removeAttribute('id'); document.activeElement.blur()")
    shown_plot(browser, "Trade-off")
    dot = browser.run("""
        const box = document.querySelector('#looked-at .dot').getBoundingClientRect();
        return [box.left + box.width / 2, box.top + box.height / 2]""")
    browser.drag(dot, dot)
    expect(settled(browser)[1], "a click on a dot pins nothing in the tables")
    browser.keys("body", "\ue00c")
    browser.run("document.querySelector('#looked-at').removeAttribute('id')")
    check_texts_apart(browser)


def check_paper(browser, folder):
    printed = browser.do("POST", "/print", {"page": {"width": 21.0, "height": 29.7}})
    paper = base64.b64decode(printed)
    (folder / "printed.pdf").write_bytes(paper)
    pages = len(re.findall(rb"/Type\s*/Page\b", paper))
    settings = browser.run("return document.querySelectorAll('.legend [data-setting]').length")
    most = MOST_PAGES + settings // 8
    expect(1 <= pages <= most, f"printed it has {pages} pages, not at most {most}")


def visit(report, folder, width):
    browser = Browser(width)
    try:
        name = {WIDE: "wide", HALF: "half", NARROW: "narrow"}[width]
        for theme in ("light", "dark"):
            browser.do("POST", "/url", {"url": "about:blank"})
            browser.do("POST", "/url", {"url": f"{report.as_uri()}#{theme}"})
            browser.picture(folder / f"{theme}-{name}.png")
        check_no_overflow(browser, width)
        if width != WIDE:
            check_width(browser, width)
        checks = [check_texts_apart, check_no_backtick, check_contents, check_directions, check_theme, check_sorting, check_selector, check_all_pairs,
                  check_details, check_more_figures, check_data, check_pin, check_plots, check_no_request, check_no_errors]
        for check in checks:
            check(browser)
        if width == WIDE:
            check_paper(browser, folder)
        print(f"{width} px: {len(checks) + 1} checks passed")
    finally:
        browser.close()


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            print(f"{program} is not on PATH: install the packages chromium and chromium-driver", file=sys.stderr)
            return 2
    report, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    if not report.is_file():
        print(f"{report} is not a file", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for width in (WIDE, HALF, NARROW):
            visit(report, folder, width)
    except Failure as failure:
        print(f"{report.name}: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
