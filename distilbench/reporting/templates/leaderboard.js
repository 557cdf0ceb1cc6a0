"use strict";
// Tables work without Plotly; figures are drawn once plotly.min.js, loaded with `defer`, is there.

const board = document.getElementById("board");

// ---- sorting: a value is data-v (data-w under "wmean") or the text; missing values stay last in both directions

function valueOf(cell, kind) {
  const wmean = board && board.dataset.variant === "wmean" && cell.dataset.w !== undefined;
  const raw = wmean ? cell.dataset.w : cell.dataset.v !== undefined ? cell.dataset.v : cell.textContent.trim();
  if (raw === "") return null;
  return kind === "number" ? Number(raw) : raw;
}

const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function sortBy(header, direction) {
  const table = header.closest("table");
  const column = header.cellIndex;
  const kind = header.dataset.kind;
  const sign = direction === "ascending" ? 1 : -1;
  for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", direction);
  for (const body of table.tBodies) {
    const keyed = Array.from(body.rows, (row) => [valueOf(row.cells[column], kind), row]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * (kind === "number" ? a - b : words.compare(a, b));
    });
    body.append(...keyed.map(([, row]) => row));
  }
}

for (const header of document.querySelectorAll("th[aria-sort]")) {
  header.querySelector("button").addEventListener("click", () => {
    const before = header.getAttribute("aria-sort");
    const first = header.dataset.kind === "number" && header.closest("table") === board ? "descending" : "ascending";
    const second = first === "descending" ? "ascending" : "descending";
    sortBy(header, before === first ? second : first);
  });
}

// ---- filter and variant

const filter = document.getElementById("filter");
const count = document.getElementById("count");

function applyFilter() {
  const parts = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  let total = 0;
  for (const row of board.querySelectorAll("tbody:not(.pinned) tr")) {
    // Hidden marks of the other variant are no part of what the reader sees, so they are no part of the text either.
    const cells = Array.from(row.querySelectorAll("a.label, .badge, td.text"), (cell) => cell.textContent);
    cells.push(row.cells[2].textContent);
    const text = cells.join(" ").toLowerCase();
    row.hidden = !parts.every((part) => text.includes(part));
    total += 1;
    shown += row.hidden ? 0 : 1;
  }
  count.textContent = parts.length ? `${shown} of ${total} rows` : "";
}

if (filter) filter.addEventListener("input", applyFilter);

for (const radio of document.querySelectorAll("input[name=variant]")) {
  radio.addEventListener("change", () => {
    board.dataset.variant = radio.value;
    const header = board.querySelector('th[aria-sort="ascending"], th[aria-sort="descending"]');
    if (header) sortBy(header, header.getAttribute("aria-sort"));
  });
}

// ---- a link to a record opens it

function openTarget() {
  const id = decodeURIComponent(location.hash.slice(1));
  let node = id ? document.getElementById(id) : null;
  if (!node) return;
  const target = node.closest("details") || node;
  for (; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  target.scrollIntoView();
}

addEventListener("hashchange", openTarget);
openTarget();

// ---- figures, in the colours of the theme; on paper always in the light ones

const dark = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 640px)");

function drawAll(theme) {
  if (!window.Plotly) return;
  for (const place of document.querySelectorAll("[data-plot]")) {
    const figure = JSON.parse(document.getElementById("data-" + place.dataset.plot).textContent)[theme];
    // A drag has to scroll the page on a phone; elsewhere it zooms.
    if (narrow.matches) {
      figure.layout.dragmode = false;
      figure.layout.font.size = 11;
    }
    const note = place.querySelector(".absent");
    if (note) note.remove();
    window.Plotly.react(place, figure.data, figure.layout, { responsive: true, displayModeBar: false });
  }
}

const current = () => drawAll(dark.matches ? "dark" : "light");
addEventListener("DOMContentLoaded", current);
dark.addEventListener("change", current);
narrow.addEventListener("change", current);
addEventListener("beforeprint", () => drawAll("light"));
addEventListener("afterprint", current);
