//! Computes every change and share of latput's outputs again, from the figures that are printed beside it. What does not
//! agree panics with its line.

use latput_trial::Metric;
use latput_trial::metric::PreferredDirection;

/// Checks `A against B`, with the change before or behind it, and `12% short of COND (A of B in`.
pub(crate) fn check_sentences(text: &str) -> usize {
    let mut checked = 0;
    for (at, _) in text.match_indices(" against ") {
        let Some((other, before)) = quantity_before(&text[..at]) else { continue };
        let Some((base, after)) = quantity_after(&text[at + " against ".len()..]) else { continue };
        let ends = ["; ", " (", ". "].into_iter().filter_map(|end| after.find(end));
        let own = &after[..ends.min().unwrap_or(after.len())];
        let own = own.rsplit_once(", ").and_then(|(_, change)| PrintedChange::read(change));
        // With several figures the change before them is the mean of all.
        let is_alone =
            after.split_once("(geometric means of").is_some_and(|(own, _)| !own.contains(';'));
        let shared = || {
            let (sentence, _) =
                before.rsplit_once(" (interval ").or_else(|| before.rsplit_once(" (one block"))?;
            PrintedChange::read(sentence.rsplit_once(" is ")?.1)
        };
        let Some(change) = own.or_else(|| shared().filter(|_| is_alone)) else { continue };
        checked += 1;
        change.check_ratio(
            &base,
            &other,
            &text[at.saturating_sub(200)..(at + 100).min(text.len())],
        );
    }
    for (words, sign) in [("% short of `", -1.0), ("% over `", 1.0)] {
        for (at, _) in text.match_indices(words) {
            let number = text[..at].rsplit(' ').next().unwrap_or_default();
            let Some(missed) = RoundedNumber::read(number) else { continue };
            let Some((_, figures)) = text[at + words.len()..].split_once("` (") else { continue };
            let Some((value, limit)) = figures.split_once(" of ") else { continue };
            let Some((value, _)) = quantity_after(value) else { continue };
            let Some((limit, _)) = quantity_after(limit) else { continue };
            let ends = [missed.low, missed.high].map(|percent| 1.0 + sign * percent / 100.0);
            let change = PrintedChange { low: ends[0].min(ends[1]), high: ends[0].max(ends[1]) };
            checked += 1;
            change.check_ratio(&limit, &value, &text[at - 20..(at + 120).min(text.len())]);
        }
    }
    checked
}

/// Checks the report page's differences from the first setting: each against `paired`, the ratio of a workload, a
/// setting's label and a metric, and its mark with its sign.
pub(crate) fn page_differences(
    page: &str,
    paired: impl Fn(&str, &str, Metric) -> Option<f64>,
) -> usize {
    let mut checked = 0;
    for (workload, table) in parse_tables(page, "differences of") {
        for (label, column, cell) in table.labelled_cells() {
            let context = format!("{workload}, {column} under {label}: {cell:?}");
            let metric =
                Metric::ALL.iter().find(|metric| metric.column() == column).expect(&context);
            let (Some(change), Some(ratio)) =
                (PrintedChange::read(&cell.text), paired(&workload, label, *metric))
            else {
                assert!(["", "–"].contains(&cell.text.as_str()), "{context}");
                continue;
            };
            let ends = [ratio * (1.0 - 1e-9), ratio * (1.0 + 1e-9)];
            assert!(change.low <= ends[1] && ends[0] <= change.high, "{ratio}: {context}");
            let direction = metric.preferred_direction();
            if !cell.mark.is_empty() {
                let is_better = (direction == PreferredDirection::Higher) == (ratio > 1.0);
                assert_eq!(cell.mark == "✓", is_better, "{context}");
                assert_ne!(direction, PreferredDirection::Neither, "{context}");
            }
            checked += 1;
        }
    }
    checked
}

/// Checks `latput explain`: in each row of its table no part is below nothing, and all add up to the time; what a change
/// would save is within its interval. Returns how many figures there were.
pub(crate) fn check_explanation(text: &str) -> usize {
    let mut lines = text.lines();
    let header: Vec<char> = lines.next().expect("a header").chars().collect();
    // Columns of numbers end where their names end.
    let is_end = |at: &usize| header[*at] != ' ' && header.get(at + 1).is_none_or(|c| *c == ' ');
    let ends: Vec<usize> = (0..header.len()).filter(is_end).map(|at| at + 1).collect();
    let mut checked = 0;
    for line in lines.by_ref().take_while(|line| !line.is_empty()) {
        let line: Vec<char> = line.chars().collect();
        let cells: Vec<String> = ends
            .windows(2)
            .map(|ends| line.get(ends[0]..ends[1].min(line.len())).unwrap_or_default())
            .map(|cell| cell.iter().collect::<String>().trim().to_owned())
            .collect();
        let [time, parts @ .., _beside, _busy] = &cells[..] else { panic!("columns: {header:?}") };
        let Some(time) = RoundedNumber::read(time) else { continue };
        let known: Vec<RoundedNumber> = parts
            .iter()
            .filter_map(|part| RoundedNumber::read(part.strip_prefix('<').unwrap_or(part)))
            .collect();
        let low: f64 = known.iter().map(|part| part.low.max(0.0)).sum();
        let high: f64 = known.iter().map(|part| part.high).sum();
        assert!(known.iter().all(|part| part.high >= 0.0), "{line:?}");
        assert!(low <= time.high && time.low <= high, "{low} to {high} of {time:?}: {line:?}");
        checked += known.len();
    }
    for line in lines {
        let Some((_, said)) = line.rsplit_once("  ") else { continue };
        let Some((saved, interval)) = said.split_once("%, ") else { continue };
        let numbers = std::iter::once(saved).chain(interval.split(" to "));
        let numbers: Vec<f64> = numbers.filter_map(|it| it.trim().parse().ok()).collect();
        let [saved, low, high] = numbers[..] else { continue };
        assert!(0.0 <= low && low <= saved && saved <= high && high <= 50.0, "{line}");
        checked += 1;
    }
    checked
}

/// A table of the report page.
struct PageTable {
    columns: Vec<String>,
    /// The label of each setting, and its cells.
    rows: Vec<(String, Vec<PageCell>)>,
}

#[derive(Debug)]
struct PageCell {
    text: String,
    mark: String,
}

impl PageTable {
    /// Every figure with its setting's label and its column's name.
    fn labelled_cells(&self) -> impl Iterator<Item = (&str, &str, &PageCell)> {
        self.rows.iter().flat_map(|(label, cells)| {
            let named = self.columns.iter().zip(cells).filter(|(name, _)| *name != "trials");
            named.map(move |(name, cell)| (label.as_str(), name.as_str(), cell))
        })
    }
}

/// The tables of a page whose accessible name begins so, by the workload.
fn parse_tables(page: &str, caption: &str) -> Vec<(String, PageTable)> {
    let opening = format!("aria-label=\"{caption} ");
    let of_table = |html: &str| {
        let (workload, rest) = html.split_once('"').expect("a label");
        let (html, _) = rest.split_once("</table>").expect("its end");
        let (head, body) = html.split_once("<tbody>").expect("a body");
        let columns = head
            .split("data-sort>")
            .skip(1)
            .map(|it| plain_text(it.split_once("<span class=\"unit\">").expect("a unit").0));
        let rows = body.split("<tr ").skip(1).map(|row| {
            let label = row.split_once("<span class=\"swatch\"></span>").expect("a label").1;
            let label = label.split_once("<span class=\"marks\">").expect("its marks").0;
            let cells = row.split("<td ").skip(1).map(|cell| {
                let (_, bold) = cell.split_once("<b>").expect("a figure");
                let (bold, _) = bold.split_once("</b>").expect("its end");
                let (text, mark) = bold.split_once("<i>").unwrap_or((bold, ""));
                PageCell { text: plain_text(text), mark: plain_text(mark) }
            });
            (plain_text(label), cells.collect())
        });
        let table = PageTable { columns: columns.collect(), rows: rows.collect() };
        (plain_text(workload), table)
    };
    page.split(opening.as_str()).skip(1).map(of_table).collect()
}

/// Checks the rows of tables of comparisons: first, second, change, interval, verdict.
pub(crate) fn check_rows(text: &str) -> usize {
    let mut checked = 0;
    for line in text.lines() {
        let cells: Vec<&str> = if line.starts_with('|') {
            line.trim_matches(['|', ' ']).split(" | ").map(str::trim).collect()
        } else {
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
        };
        let Some(at) = cells.iter().position(|cell| PrintedChange::read(cell).is_some()) else {
            continue;
        };
        let [.., name, first, second] = &cells[..at] else { continue };
        let (Some((base, _)), Some((other, _))) = (quantity_after(first), quantity_after(second))
        else {
            continue;
        };
        let verdict = cells.last().copied().unwrap_or_default();
        check_row(name, (&base, &other), cells[at], verdict, line);
        checked += 1;
    }
    checked
}

/// Checks sentences of the form `latency_ns_p99: worse: 91.4 us, then 123 us: +34.6%`.
pub(crate) fn check_verdicts(text: &str) -> usize {
    let mut checked = 0;
    for line in text.lines() {
        let Some((before, after)) = line.split_once(", then ") else { continue };
        let (Some((base, head)), Some((other, tail))) =
            (quantity_before(before), quantity_after(after))
        else {
            continue;
        };
        let change = tail.trim_start_matches(':').trim();
        let change = change.split([' ', '<', '"']).next().unwrap_or_default();
        let verdict = head.trim_end_matches([':', ' ']);
        let verdict = verdict.rsplit([':', '"', '>']).next().unwrap_or_default().trim();
        // A change beyond the largest factor is told as `over x1000`.
        if !["n/a", "over"].contains(&change) {
            check_row("", (&base, &other), change, verdict, line);
            checked += 1;
        }
    }
    checked
}

fn check_row(
    name: &str,
    (base, other): (&Quantity, &Quantity),
    change: &str,
    verdict: &str,
    line: &str,
) {
    let change = PrintedChange::read(change).unwrap_or_else(|| panic!("no change in {line}"));
    change.check_ratio(base, other, line);
    let metric = Metric::ALL.iter().find(|metric| metric.column() == name);
    if let Some(metric) = metric
        && ["better", "worse"].contains(&verdict)
    {
        let is_up = change.low + change.high > 2.0;
        let is_better = (metric.preferred_direction() == PreferredDirection::Higher) == is_up;
        assert_eq!(verdict == "better", is_better, "{line}");
        assert!(change.low > 1.0 || change.high < 1.0, "no change is {verdict}: {line}");
    }
}

/// A number as printed, with what rounding hides.
#[derive(Clone, Copy, Debug)]
struct RoundedNumber {
    low: f64,
    high: f64,
}

impl RoundedNumber {
    fn read(text: &str) -> Option<Self> {
        let value: f64 = text.parse().ok()?;
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let half = 0.5 * 10_f64.powi(-i32::try_from(decimals).ok()?) * (1.0 + 1e-9);
        // Trailing zeros of percentages are not printed, but their decimals are at least one.
        Some(Self { low: value - half, high: value + half })
    }
}

/// A figure in its base unit.
type Quantity = RoundedNumber;

const UNITS: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("bit/s", 1.0),
    ("kbit/s", 1e3),
    ("Mbit/s", 1e6),
    ("Gbit/s", 1e9),
    ("/s", 1.0),
    ("k/s", 1e3),
    ("M/s", 1e6),
    ("%", 1.0),
    ("us/tr", 1.0),
    ("us/KB", 1.0),
];

fn parse_quantity(number: &str, unit: &str) -> Option<Quantity> {
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let RoundedNumber { low, high } = RoundedNumber::read(number)?;
    Some(RoundedNumber { low: low * factor, high: high * factor })
}

/// The quantity that begins the text, and the rest.
fn quantity_after(text: &str) -> Option<(Quantity, &str)> {
    let at = text.find([' ', '%'])?;
    let (number, rest) = (&text[..at], text[at..].trim_start_matches(' '));
    let end = rest.find([' ', ',', ';', ')', ':']).unwrap_or(rest.len());
    Some((parse_quantity(number, &rest[..end])?, &rest[end..]))
}

/// The quantity that ends the text, and what is before it.
fn quantity_before(text: &str) -> Option<(Quantity, &str)> {
    if let Some(rest) = text.strip_suffix('%') {
        let (rest, number) = rest.rsplit_once(' ')?;
        return Some((parse_quantity(number, "%")?, rest));
    }
    let (rest, unit) = text.rsplit_once(' ')?;
    let (rest, number) = rest.rsplit_once(' ')?;
    Some((parse_quantity(number, unit)?, rest))
}

/// A change as printed: the ratios that round to it.
#[derive(Clone, Copy, Debug)]
struct PrintedChange {
    low: f64,
    high: f64,
}

impl PrintedChange {
    /// `12.5% lower`, `3.10 times as high`, `-12.5%`, `0.0%`, `x3.10`.
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        if text == "over 1000 times as high" {
            return Some(Self { low: 1000.0, high: f64::INFINITY });
        }
        let factor = text.strip_suffix(" times as high").or_else(|| text.strip_prefix('x'));
        if let Some(factor) = factor {
            return RoundedNumber::read(factor)
                .map(|RoundedNumber { low, high }| Self { low, high });
        }
        let (text, sign) = match (text.strip_suffix("% lower"), text.strip_suffix("% higher")) {
            (Some(text), _) => (text, -1.0),
            (_, Some(text)) => (text, 1.0),
            _ => (
                text.strip_suffix('%').filter(|it| it.starts_with(['+', '-']) || *it == "0.0")?,
                1.0,
            ),
        };
        let value = sign * text.parse::<f64>().ok()?;
        // Percentages have one decimal at least; a trailing zero is not printed in sentences.
        let half = 0.05 * (1.0 + 1e-9);
        Some(Self { low: 1.0 + (value - half) / 100.0, high: 1.0 + (value + half) / 100.0 })
    }

    fn check_ratio(&self, base: &Quantity, other: &Quantity, context: &str) {
        if base.low <= 0.0 {
            return;
        }
        let (low, high) = (other.low / base.high, other.high / base.low);
        assert!(
            self.low <= high * (1.0 + 1e-9) && low <= self.high * (1.0 + 1e-9),
            "printed as {self:?}, the figures give {low} to {high}: {context}"
        );
    }
}

/// A page without its scripts and tags.
pub(crate) fn plain_text(page: &str) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, tag)) = rest.split_once('<') {
        text += before;
        text.push(' ');
        let end = if tag.starts_with("script") { "</script>" } else { ">" };
        rest = tag.split_once(end).map_or("", |(_, after)| after);
    }
    let text = text + rest;
    let text = text.replace("&#x27;", "'").replace("&lt;", "<").replace("&gt;", ">");
    text.replace("&amp;", "&")
        .replace("&quot;", "\"")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
