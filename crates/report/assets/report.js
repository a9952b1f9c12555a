// Everything the page can do beyond being read: switch, sort, highlight, copy, download.
"use strict";
(() => {
  const one = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const root = document.documentElement;
  const main = one("main");
  // What needs this script is hidden in the file, so that nothing dead is shown without it.
  all("#theme, #download, .copy, .controls, .switch").forEach((element) => (element.hidden = false));

  // Theme: the reader's choice, else the system's. Storage may be refused for files.
  const remembered = () => { try { return localStorage.getItem("latput-theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("latput-theme", theme); } catch { /* only this once, then */ } };
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = { "#dark": "dark", "#light": "light" }[location.hash] ?? remembered() ?? system;
  one("#theme").addEventListener("click", () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    remember(root.dataset.theme);
  });

  // Trade-off: show the picture of the chosen pair of figures.
  const [pickX, pickY] = [one("#pick-x"), one("#pick-y")];
  const showPanel = () => all("[data-panel]").forEach((panel) => {
    panel.hidden = panel.dataset.panel !== `${pickX.value}-${pickY.value}`;
  });
  [pickX, pickY].forEach((pick) => pick?.addEventListener("change", showPanel));
  if (pickX) showPanel(); // a reload may keep an earlier choice

  one("#all-figures")?.addEventListener("change", (event) => {
    main.classList.toggle("all-figures", event.target.checked);
  });
  if (one("#all-figures")?.checked) main.classList.add("all-figures");

  // Tables: sort by a column; unknown figures stay last.
  const sort = (button) => {
    const head = button.closest("th");
    const column = [...head.parentNode.children].indexOf(head);
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    [...head.parentNode.children].forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0];
    const key = (row) => row.children[column].dataset.key;
    const order = (a, b) => {
      if (key(a) === "" || key(b) === "") return (key(a) === "") - (key(b) === "");
      return (key(a) - key(b)) * (ascending ? 1 : -1);
    };
    body.append(...[...body.rows].sort(order));
  };
  all("[data-sort]").forEach((button) => button.addEventListener("click", () => sort(button)));

  // Legend: the setting under the pointer stands out in every picture.
  const style = document.head.appendChild(document.createElement("style"));
  const highlight = (setting) => {
    style.textContent = setting === undefined ? "" :
      `.chart g[class]:not(.s${setting}) { opacity: .12 } tbody tr[class]:not(.s${setting}) { opacity: .35 }`;
  };
  all("[data-setting]").forEach((key) => {
    ["mouseenter", "focus"].forEach((name) => key.addEventListener(name, () => highlight(key.dataset.setting)));
    ["mouseleave", "blur"].forEach((name) => key.addEventListener(name, () => highlight(undefined)));
  });

  // Copy: the clipboard is not there for every file; then the text is selected for the reader.
  all(".copy").forEach((button) => button.addEventListener("click", async () => {
    const code = button.parentNode.querySelector("code");
    let done = "Copied";
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      done = document.execCommand("copy") ? "Copied" : "Selected";
    }
    button.textContent = done;
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }));

  one("#download").addEventListener("click", () => {
    const blob = new Blob([one("#data").textContent], { type: "application/json" });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = "latput-report.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  // Paper shows everything, in ink.
  let before;
  addEventListener("beforeprint", () => {
    before = { theme: root.dataset.theme, open: all("details[open]") };
    root.dataset.theme = "light";
    all("details").forEach((details) => (details.open = true));
  });
  addEventListener("afterprint", () => {
    root.dataset.theme = before.theme;
    all("details").forEach((details) => (details.open = before.open.includes(details)));
  });
})();
