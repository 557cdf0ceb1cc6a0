"use strict";
// Tables work without Plotly; figures are drawn once plotly.min.js, loaded with `defer` after this file, is there.

const root = document.documentElement;
const board = document.getElementById("board");
const byId = (id) => document.getElementById(id);
const narrow = matchMedia("(max-width: 640px)");

// ---- colours: the system's, or what the reader chose

const dark = matchMedia("(prefers-color-scheme: dark)");
const themes = { auto: "Colours: as the system has them", light: "Colours: light", dark: "Colours: dark" };
const themeButton = byId("theme");

function remembered() {
  try {
    return localStorage.getItem("distilbench-theme") || "auto";
  } catch {
    return "auto"; // a browser that keeps nothing for files
  }
}

function setTheme(name) {
  root.dataset.theme = name;
  themeButton.textContent = name[0].toUpperCase() + name.slice(1);
  themeButton.setAttribute("aria-label", themes[name]);
}

setTheme(remembered() in themes ? remembered() : "auto");
themeButton.hidden = false;
themeButton.addEventListener("click", () => {
  const names = Object.keys(themes);
  const next = names[(names.indexOf(root.dataset.theme) + 1) % names.length];
  try {
    localStorage.setItem("distilbench-theme", next);
  } catch {
    // only this page then
  }
  setTheme(next);
  drawCurrent();
});

// ---- sorting: a value is data-v (data-w under "wmean") or the text; missing values stay last in both directions

function valueOf(cell, kind) {
  const wmean = board && board.dataset.variant === "wmean" && cell.dataset.w !== undefined;
  const raw = wmean ? cell.dataset.w : cell.dataset.v !== undefined ? cell.dataset.v : cell.textContent.trim();
  if (raw === "" || raw === "—") return null;
  return kind === "number" ? Number(raw) : raw;
}

const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function sorted(rows, header) {
  const column = header.cellIndex;
  const kind = header.dataset.kind;
  const sign = header.getAttribute("aria-sort") === "ascending" ? 1 : -1;
  const keyed = Array.from(rows, (row) => [valueOf(row.cells[column], kind), row]);
  keyed.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (kind === "number" ? a - b : words.compare(a, b));
  });
  return keyed.map(([, row]) => row);
}

function sortBy(header, direction) {
  const table = header.closest("table");
  for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", direction);
  if (table === board) showRows(true);
  else for (const body of table.tBodies) body.append(...sorted(body.rows, header));
}

for (const header of document.querySelectorAll("th[aria-sort]")) {
  header.querySelector("button").addEventListener("click", () => {
    const before = header.getAttribute("aria-sort");
    const first = header.dataset.kind === "number" && header.closest("table") === board ? "descending" : "ascending";
    const second = first === "descending" ? "ascending" : "descending";
    sortBy(header, before === first ? second : first);
    if (board && header.closest("table") === board) remember();
  });
}

// ---- the leaderboard: search, choices, columns. What differs from the start stands in the address, after "#"

const filter = byId("filter");
const count = byId("count");
const pin = byId("pin");
const choices = [
  ["method", byId("choice-method"), 1],
  ["dim", byId("choice-dim"), 2],
  ["bytes", byId("choice-bytes"), 3],
  ["type", byId("choice-type"), 4],
].filter(([, select]) => select);
const onlyPareto = byId("only-pareto");
const headers = board ? Array.from(board.querySelectorAll("thead tr.titles th")) : [];
const groups = board ? Array.from(board.querySelectorAll("thead tr.groups [data-g]")) : [];
const open = new Set();
const hidden = new Set();
const sheet = new CSSStyleSheet();

// Hidden marks of the other variant are no part of what the reader sees, so they are no part of the text either.
const texts = new Map();
const references = new Set(board ? board.tBodies[0].rows : []); // teacher and baselines in float32
// All measured rows, sorted; those that are shown are in the table.
let order = board ? [...board.tBodies[0].rows, ...board.tBodies[1].rows] : [];
const publishedRows = byId("published-rows");
const published = byId("published");
if (board) {
  for (const row of order) {
    const cells = Array.from(row.querySelectorAll("a.label, .badge, td.text"), (cell) => cell.textContent);
    cells.push(row.cells[2].textContent);
    texts.set(row, cells.join(" ").toLowerCase());
  }
}

// Laying out 500 rows anew takes a browser longer than a reader wants to wait for: so many are shown in the chosen order,
// and all when asked for. Searching and sorting are always of all.
const AT_ONCE = 100;
const more = byId("more");
let everyRow = false;

function showRows(sortFirst) {
  if (sortFirst) {
    order = sorted(order, sortedHeader());
    if (publishedRows) publishedRows.append(...sorted(publishedRows.rows, sortedHeader()));
  }
  const parts = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = choices.filter(([, select]) => select.value !== "");
  const front = `pareto-${board.dataset.variant}`;
  const fits = (row) =>
    parts.every((part) => texts.get(row).includes(part)) &&
    wanted.every(([, select, cell]) => (row.cells[cell].dataset.v || row.cells[cell].textContent) === select.value) &&
    (!onlyPareto.checked || row.classList.contains(front));
  const isPinned = (row) => pin.checked && references.has(row);
  const always = (row) => isPinned(row) && row.classList.contains("teacher");
  const pinned = order.filter((row) => isPinned(row) && (always(row) || fits(row)));
  const rest = order.filter((row) => !isPinned(row) && fits(row));
  const shown = everyRow ? rest : rest.slice(0, AT_ONCE);
  board.tBodies[0].replaceChildren(...pinned);
  board.tBodies[1].replaceChildren(...shown);
  for (const row of publishedRows ? publishedRows.rows : []) {
    const text = row.textContent.toLowerCase();
    row.hidden = !parts.every((part) => text.includes(part));
  }
  const teachers = order.filter(always).length;
  const total = order.length - teachers;
  const found = pinned.length - teachers + shown.length;
  count.textContent = found < total ? `${found} of ${total} rows` : "";
  more.hidden = shown.length === rest.length;
  more.textContent = `Show all ${rest.length} rows`;
}

function sortedHeader() {
  return headers.find((header) => header.getAttribute("aria-sort") !== "none");
}

function applyColumns() {
  const gone = [];
  const left = new Map();
  headers.forEach((header, place) => {
    const { g, key } = header.dataset;
    const folded = !open.has(g) && header.dataset.lead === undefined;
    const tooWide = narrow.matches && header.classList.contains("wide"); // of a phone
    if (folded || hidden.has(key) || tooWide) gone.push(`#board tr:not(.groups) > :nth-child(${place + 1})`);
    else left.set(g, (left.get(g) || 0) + 1);
  });
  sheet.replaceSync(gone.length ? `${gone.join(",")} { display: none }` : "");
  for (const group of groups) {
    const columns = left.get(group.dataset.g) || 0;
    if (group.dataset.g !== "Encoder") {
      group.colSpan = Math.max(columns, 1);
      group.hidden = columns === 0;
    }
    const button = group.querySelector(".unfold");
    if (button) button.setAttribute("aria-expanded", open.has(group.dataset.g));
  }
}

function remember() {
  const header = sortedHeader();
  const state = new URLSearchParams();
  if (filter.value) state.set("q", filter.value);
  for (const [name, select] of choices) if (select.value) state.set(name, select.value);
  if (onlyPareto.checked) state.set("pareto", "1");
  if (!pin.checked) state.set("pin", "0");
  if (everyRow) state.set("rows", "all");
  if (published && published.checked) state.set("published", "1");
  if (board.dataset.variant !== "all") state.set("variant", board.dataset.variant);
  if (header !== sortedAtFirst || header.getAttribute("aria-sort") !== "descending")
    state.set("sort", `${header.getAttribute("aria-sort")} ${header.dataset.key}`);
  for (const name of open) state.append("open", name);
  for (const key of hidden) state.append("hide", key);
  history.replaceState(null, "", state.size ? `#${state}` : location.pathname);
}

const sortedAtFirst = sortedHeader();

function recall() {
  const text = location.hash.slice(1);
  if (!text.includes("=")) return; // a place in the page, or nothing
  const state = new URLSearchParams(text);
  filter.value = state.get("q") || "";
  for (const [name, select] of choices) select.value = state.get(name) || "";
  onlyPareto.checked = state.get("pareto") === "1";
  pin.checked = state.get("pin") !== "0";
  everyRow = state.get("rows") === "all";
  if (published) published.checked = state.get("published") === "1";
  open.clear();
  for (const name of state.getAll("open")) open.add(name);
  hidden.clear();
  for (const key of state.getAll("hide")) hidden.add(key);
  const radio = Array.from(document.querySelectorAll("input[name=variant]")).find(
    (item) => item.value === (state.get("variant") || "all"),
  );
  if (radio) {
    radio.checked = true;
    board.dataset.variant = radio.value;
  }
  const [, direction, key] = /^(ascending|descending) (.*)$/s.exec(state.get("sort") || "") || [];
  const header = headers.find((item) => item.dataset.key === key) || sortedAtFirst;
  sortBy(header, direction || "descending");
  for (const box of byId("column-list").querySelectorAll("input")) box.checked = !hidden.has(box.value);
  applyColumns();
}

if (board) {
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  const changed = () => {
    showRows(false);
    remember();
  };
  filter.addEventListener("input", changed);
  for (const [, select] of choices) select.addEventListener("change", changed);
  onlyPareto.addEventListener("change", changed);
  pin.addEventListener("change", changed);
  if (published) published.addEventListener("change", remember);
  for (const radio of document.querySelectorAll("input[name=variant]")) {
    radio.addEventListener("change", () => {
      board.dataset.variant = radio.value;
      showRows(true);
      remember();
    });
  }
  for (const group of groups) {
    const name = group.dataset.g;
    const button = group.querySelector(".unfold");
    if (!button) continue;
    button.addEventListener("click", () => {
      if (!open.delete(name)) open.add(name);
      applyColumns();
      remember();
    });
  }
  for (const header of headers.slice(1)) {
    const { g, key } = header.dataset;
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.value = key;
    box.addEventListener("change", () => {
      if (box.checked) hidden.delete(key);
      else hidden.add(key);
      if (box.checked && header.dataset.lead === undefined) open.add(g);
      applyColumns();
      remember();
    });
    const label = document.createElement("label");
    label.append(box, ` ${g === "Encoder" || g === "Size" ? "" : `${g}: `}${header.textContent.trim()}`);
    byId("column-list").append(label);
  }
  const menu = byId("columns");
  addEventListener("click", (event) => {
    if (!menu.contains(event.target)) menu.open = false;
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && menu.open) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
  more.addEventListener("click", () => {
    everyRow = true;
    changed();
  });
  applyColumns();
  showRows(false);
  recall();
  addEventListener("hashchange", recall);
  narrow.addEventListener("change", applyColumns);
}

// ---- figures, in the colours of the theme; on paper always in the light ones

// The light figure is whole; the dark one is written as what differs, pairs of path and value.
function figureOf(name, theme) {
  const { light, dark: changes } = JSON.parse(byId("data-" + name).textContent);
  if (theme === "light") return light;
  for (const [path, value] of changes) {
    const last = path.pop();
    path.reduce((part, key) => part[key], light)[last] = value;
  }
  return light;
}

function drawAll(theme) {
  if (!window.Plotly) return;
  for (const place of document.querySelectorAll("[data-plot]")) {
    const figure = figureOf(place.dataset.plot, theme);
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

function drawCurrent() {
  const chosen = root.dataset.theme;
  drawAll(chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen);
}

addEventListener("DOMContentLoaded", drawCurrent);
dark.addEventListener("change", drawCurrent);
narrow.addEventListener("change", drawCurrent);
addEventListener("beforeprint", () => drawAll("light"));
addEventListener("afterprint", drawCurrent);
