// Extras alone: the page says everything without this.
"use strict";
(() => {
  const root = document.documentElement;
  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);

  // Light or dark, other than the system says.
  const tools = make("div", { className: "tools" });
  const theme = make("button", { type: "button" });
  const dark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = () => (theme.textContent = dark() ? "Light theme" : "Dark theme");
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    name();
  });
  name();
  tools.append(theme);
  document.querySelector("header").append(tools);

  // Tables that sort by any column.
  const value = (row, column) => {
    const cell = row.cells[column];
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b, undefined, { numeric: true });
  };
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", textContent: head.textContent });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => (down ? -1 : 1) * compare(value(a, column), value(b, column)));
        table.tBodies[0].append(...rows);
      });
    });
  }

  // The value under the pointer.
  const tip = make("div", { className: "tip", hidden: true });
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  document.addEventListener("pointermove", (event) => {
    const target = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    tip.hidden = !target;
    if (!target) return;
    tip.textContent = target.dataset.tip;
    const body = document.body.getBoundingClientRect();
    const room = body.width - tip.offsetWidth - 4;
    tip.style.left = `${Math.max(0, Math.min(event.clientX - body.left + 12, room))}px`;
    tip.style.top = `${event.clientY - body.top + 16}px`;
  });
})();
