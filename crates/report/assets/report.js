// What the page can do beyond being read: switch, sort, pin, copy, download. Pictures: `plots.js`.
"use strict";
(() => {
  const one = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const root = document.documentElement;
  const main = one("main");
  // What needs this script is hidden in the file, so that nothing dead is shown without it.
  all("#theme, #download, .copy, .controls, .switch, .needs-script").forEach((element) => (element.hidden = false));

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

  // Settings: the one under the pointer stands out everywhere. A click pins it; another click on it, or
  // Escape, releases it.
  const style = document.head.appendChild(document.createElement("style"));
  let pinned;
  const highlight = (setting) => {
    style.textContent = setting === undefined ? "" :
      `.chart g[class]:not(.s${setting}) { opacity: .12 } tbody tr[class]:not(.s${setting}) { opacity: .35 }`;
  };
  const keys = all("[data-setting]");
  const pin = (setting) => {
    pinned = setting === pinned ? undefined : setting;
    keys.forEach((key) => key.setAttribute("aria-pressed", String(key.dataset.setting === pinned)));
    highlight(pinned);
  };
  keys.forEach((key) => {
    key.addEventListener("click", () => pin(key.dataset.setting));
    ["mouseenter", "focus"].forEach((name) => key.addEventListener(name, () => highlight(pinned ?? key.dataset.setting)));
    ["mouseleave", "blur"].forEach((name) => key.addEventListener(name, () => highlight(pinned)));
  });
  document.addEventListener("pin-setting", (event) => pin(event.detail));
  main.addEventListener("click", (event) => {
    if (event.target.closest("button, a, select, summary, label")) return;
    const marked = event.target.closest(".chart g[class], tbody tr[class]");
    const setting = /(?:^| )s(\d+)(?: |$)/.exec(marked?.getAttribute("class") ?? "")?.[1];
    if (setting !== undefined && getSelection().isCollapsed) pin(setting);
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") pin(undefined);
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

  // Download: the trials as they are in the page, unpacked.
  one("#download")?.addEventListener("click", async () => {
    const packed = Uint8Array.from(atob(one("#trials").textContent), (char) => char.charCodeAt(0));
    const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const blob = new Blob([await new Response(unpacked).arrayBuffer()], { type: "application/json" });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = "latput-trials.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  // Paper is light and shows what is closed only by its title.
  let theme;
  addEventListener("beforeprint", () => {
    theme = root.dataset.theme;
    root.dataset.theme = "light";
  });
  addEventListener("afterprint", () => (root.dataset.theme = theme));
})();
