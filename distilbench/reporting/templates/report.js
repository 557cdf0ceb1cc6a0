"use strict";
// Tables work without Plotly; figures are drawn once plotly.min.js, loaded with `defer` after this file, is there.

const root = document.documentElement;
const board = document.getElementById("board");
const byId = (id) => document.getElementById(id);
const narrow = matchMedia("(max-width: 640px)");

// ---- colours: the system's, or what the reader chose

const dark = matchMedia("(prefers-color-scheme: dark)");
const themes = { auto: "Auto: colours as the system has them", light: "Light: light colours", dark: "Dark: dark colours" };
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

// ---- sorting: a value is data-v or the text; missing values stay last in both directions

function valueOf(cell, kind) {
  const raw = cell.dataset.v !== undefined ? cell.dataset.v : cell.textContent.trim();
  if (raw === "" || raw === "—") return null;
  return kind === "number" ? Number(raw) : raw;
}

const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

// Rows, or whatever `rowOf` gives the row of.
function sorted(items, header, rowOf = (item) => item) {
  const column = header.cellIndex;
  const kind = header.dataset.kind;
  const sign = header.getAttribute("aria-sort") === "ascending" ? 1 : -1;
  const keyed = Array.from(items, (item) => [valueOf(rowOf(item).cells[column], kind), item]);
  keyed.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (kind === "number" ? a - b : words.compare(a, b));
  });
  return keyed.map(([, item]) => item);
}

function sortBy(header, direction) {
  const table = header.closest("table");
  for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", direction);
  if (table === board) showRows();
  else for (const body of table.tBodies) body.append(...sorted(body.rows, header));
}

for (const header of document.querySelectorAll("th[aria-sort]")) {
  header.querySelector("button").addEventListener("click", () => {
    const before = header.getAttribute("aria-sort");
    const ofBoard = header.closest("table") === board;
    const first = header.dataset.kind === "number" && ofBoard ? "descending" : "ascending";
    const second = first === "descending" ? "ascending" : "descending";
    // The leaderboard's third click gives back the order of the dev scores.
    sortBy(header, before === first ? second : before === second && ofBoard ? "none" : first);
    if (ofBoard) remember();
  });
}

// ---- the leaderboard: search, choices, columns. What differs from the start stands in the address, after "#"

const filter = byId("filter");
const count = byId("count");
const pin = byId("pin");
const baselines = byId("baselines");
const allCodes = byId("all-codes");
const onlyPareto = byId("only-pareto");
const headers = board ? Array.from(board.querySelectorAll("thead tr.titles th")) : [];
const groups = board ? Array.from(board.querySelectorAll("thead tr.groups [data-g]")) : [];
const unfolds = Array.from(document.querySelectorAll("#unfolds .unfold"));
const choices = ["method", "dim", "bytes", "code"]
  .map((name) => [name, byId(`choice-${name}`), headers.findIndex((header) => header.dataset.key === name)])
  .filter(([, select]) => select);
const open = new Set(); // groups of columns
const unfolded = new Set(); // encoders, by their lines
const hidden = new Set();
const sheet = new CSSStyleSheet();

// What is searched of a row: its name, marks and texts.
const texts = new Map();
const lines = []; // an encoder: the row that stands for it, its other forms, what it is for
if (board) {
  const dim = headers.findIndex((header) => header.dataset.key === "dim");
  for (const row of [...board.tBodies[0].rows, ...board.tBodies[1].rows]) {
    const cells = Array.from(row.querySelectorAll("a.label, .badge, .mark.kind, td.text"), (cell) => cell.textContent);
    cells.push(row.cells[dim].textContent);
    texts.set(row, cells.join(" ").toLowerCase());
    if (row.dataset.kind === "code") lines.at(-1).codes.push(row);
    else lines.push({ row, codes: [], kind: row.dataset.kind });
  }
}
const lineOf = new Map(lines.flatMap((line) => [line.row, ...line.codes].map((row) => [row, line])));

// Laying out 500 rows anew takes a browser longer than a reader wants to wait for: so many are shown in the chosen order,
// and all when asked for. Searching and sorting are always of all.
const AT_ONCE = 100;
const more = byId("more");
let everyRow = false;

// Whether single rows are asked for, and not encoders.
function searching() {
  return filter.value.trim() !== "" || onlyPareto.checked || choices.some(([, select]) => select.value !== "");
}

function showRows() {
  const header = sortedHeader();
  const inOrder = (items, rowOf) => (header ? sorted(items, header, rowOf) : items);
  const parts = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = choices.filter(([, select]) => select.value !== "");
  const fits = (row) =>
    parts.every((part) => texts.get(row).includes(part)) &&
    wanted.every(([, select, cell]) => (row.cells[cell].dataset.v || row.cells[cell].textContent) === select.value) &&
    (!onlyPareto.checked || row.classList.contains("pareto"));
  const flat = searching();
  const onTop = (line) => pin.checked && line.kind === "reference";
  let pinned, rest;
  if (flat) {
    const teachers = lines.filter((line) => onTop(line) && line.row.classList.contains("teacher")).map(({ row }) => row);
    pinned = teachers;
    rest = inOrder([...lineOf.keys()].filter((row) => !teachers.includes(row) && fits(row)));
  } else {
    const shown = lines.filter((line) => line.kind !== "other" || !baselines || baselines.checked);
    const rows = (line) => (unfolded.has(line) || allCodes.checked ? [line.row, ...line.codes] : [line.row]);
    pinned = inOrder(shown.filter(onTop), (line) => line.row).flatMap(rows);
    rest = inOrder(shown.filter((line) => !onTop(line)), (line) => line.row).flatMap(rows);
  }
  const shown = everyRow ? rest : rest.slice(0, AT_ONCE);
  board.tBodies[0].replaceChildren(...pinned);
  board.tBodies[1].replaceChildren(...shown);
  board.classList.toggle("flat", flat);
  for (const line of lines) {
    const button = line.row.querySelector(".codes");
    if (button) button.setAttribute("aria-expanded", unfolded.has(line) || allCodes.checked);
  }
  const found = flat ? rest.length : 0;
  const cut = shown.length < rest.length ? `${shown.length} of ${rest.length} rows` : "";
  count.textContent = cut || (flat ? `${found} of ${lineOf.size - pinned.length} rows` : "");
  more.hidden = !cut;
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
    if (folded || hidden.has(key)) gone.push(`#board tr:not(.groups) > :nth-child(${place + 1})`);
    else left.set(g, (left.get(g) || 0) + 1);
  });
  sheet.replaceSync(gone.length ? `${gone.join(",")} { display: none }` : "");
  for (const group of groups) {
    const columns = left.get(group.dataset.g) || 0;
    group.colSpan = Math.max(columns, 1);
    group.hidden = columns === 0;
  }
  for (const button of unfolds) button.setAttribute("aria-expanded", open.has(button.dataset.g));
}

function remember() {
  const header = sortedHeader();
  const state = new URLSearchParams();
  if (filter.value) state.set("q", filter.value);
  for (const [name, select] of choices) if (select.value) state.set(name, select.value);
  if (onlyPareto.checked) state.set("pareto", "1");
  if (!pin.checked) state.set("pin", "0");
  if (baselines && baselines.checked) state.set("baselines", "1");
  if (allCodes.checked) state.set("codes", "all");
  else for (const line of unfolded) state.append("codes", line.row.id);
  if (everyRow) state.set("rows", "all");
  if (header) state.set("sort", `${header.getAttribute("aria-sort")} ${header.dataset.key}`);
  for (const name of open) state.append("open", name);
  for (const key of hidden) state.append("hide", key);
  history.replaceState(null, "", state.size ? `#${state}` : location.pathname);
}

function recall() {
  const text = location.hash.slice(1);
  if (!text.includes("=")) {
    if (text.startsWith("r-")) reveal(text);
    return; // a place in the page, or nothing
  }
  const state = new URLSearchParams(text);
  filter.value = state.get("q") || "";
  for (const [name, select] of choices) select.value = state.get(name) || "";
  onlyPareto.checked = state.get("pareto") === "1";
  pin.checked = state.get("pin") !== "0";
  if (baselines) baselines.checked = state.get("baselines") === "1";
  const codes = state.getAll("codes");
  allCodes.checked = codes[0] === "all";
  unfolded.clear();
  for (const line of lines) if (codes.includes(line.row.id)) unfolded.add(line);
  everyRow = state.get("rows") === "all";
  open.clear();
  for (const name of state.getAll("open")) open.add(name);
  hidden.clear();
  for (const key of state.getAll("hide")) hidden.add(key);
  for (const header of headers) header.setAttribute("aria-sort", "none");
  const [, direction, key] = /^(ascending|descending) (.*)$/s.exec(state.get("sort") || "") || [];
  const header = headers.find((item) => item.dataset.key === key);
  if (header) header.setAttribute("aria-sort", direction);
  for (const box of byId("column-list").querySelectorAll("input")) box.checked = !hidden.has(box.value);
  applyColumns();
  showRows();
}

// Show a row, whatever is folded or left out, and go there.
function reveal(id) {
  const row = [...lineOf.keys()].find((item) => item.id === id);
  if (!row) return;
  const line = lineOf.get(row);
  filter.value = "";
  onlyPareto.checked = false;
  for (const [, select] of choices) select.value = "";
  if (line.kind === "other" && baselines) baselines.checked = true;
  if (row !== line.row) unfolded.add(line);
  showRows();
  if (!row.isConnected) {
    everyRow = true;
    showRows();
  }
  for (const other of board.querySelectorAll(".found")) other.classList.remove("found");
  row.classList.add("found");
  row.scrollIntoView({ block: "center" });
  row.querySelector("a").focus({ preventScroll: true });
  remember();
}

if (board) {
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  const changed = () => {
    showRows();
    remember();
  };
  filter.addEventListener("input", changed);
  for (const [, select] of choices) select.addEventListener("change", changed);
  for (const box of [onlyPareto, pin, baselines, allCodes]) if (box) box.addEventListener("change", changed);
  for (const button of unfolds) {
    const name = button.dataset.g;
    button.addEventListener("click", () => {
      if (!open.delete(name)) open.add(name);
      applyColumns();
      remember();
    });
  }
  board.addEventListener("click", (event) => {
    const button = event.target.closest(".codes");
    if (!button) return;
    const line = lineOf.get(button.closest("tr"));
    if (!unfolded.delete(line)) unfolded.add(line);
    changed();
    button.focus();
  });
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
    label.append(box, ` ${header.dataset.lead === undefined ? `${g}: ` : ""}${header.textContent.trim()}`);
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
  // What is recommended is to be seen, also where another form of its encoder stands for it.
  for (const line of lines) if (line.codes.some((row) => row.querySelector(".badge.taken"))) unfolded.add(line);
  applyColumns();
  showRows();
  recall();
  addEventListener("hashchange", recall);
}

// ---- commands to copy

for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  const name = button.textContent;
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code); // a browser that gives no page from disk the clipboard
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = name), 1500);
  });
}

// ---- the table of all indexes is made when it is asked for: in a large report it has thousands of rows

const everyIndex = byId("every-index");
if (everyIndex) {
  const short = (number) =>
    number.toLocaleString("en", Math.abs(number) >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 });
  const fixed = (number, digits) => number.toFixed(digits);
  const size = (bytes) => {
    const units = ["B", "kB", "MB", "GB"];
    let place = 0;
    for (; bytes >= 1000 && place < 3; bytes /= 1000) place += 1;
    return `${short(bytes)} ${units[place]}`;
  };
  const written = [null, null, null, (n) => n.toLocaleString("en"), size, short, short]; // from "Set" on
  written.push((n) => fixed(n, 1), (n) => fixed(n, 2), (n) => fixed(n, 2), String);
  everyIndex.addEventListener("toggle", () => {
    const body = byId("index-table").tBodies[0];
    if (body.rows.length) return;
    for (const [anchor, name, ...values] of JSON.parse(byId("every-index-data").textContent)) {
      const row = body.insertRow();
      const head = document.createElement("th");
      head.scope = "row";
      head.dataset.v = name;
      const link = document.createElement("a");
      link.className = "label";
      link.href = `encoders/${anchor}.html`;
      link.textContent = name;
      head.append(link);
      row.append(head);
      values.forEach((value, place) => {
        const cell = row.insertCell();
        if (!written[place]) cell.className = "text";
        else cell.dataset.v = value === null ? "" : value;
        cell.textContent = value === null || value === "" ? "—" : written[place] ? written[place](value) : value;
      });
    }
  });
}

// ---- figures, in the colours of the theme; on paper always in the light ones

// Figures are written in light colours; the document names the dark one of each.
function figureOf(name, theme) {
  let text = byId("data-" + name).textContent;
  const pairs = theme === "dark" ? Object.entries(JSON.parse(root.dataset.dark)) : [];
  for (const [light, instead] of pairs) text = text.replaceAll(light, instead);
  return JSON.parse(text);
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
    if (narrow.matches) thin(figure.layout.xaxis);
    window.Plotly.react(place, figure.data, figure.layout, { responsive: true, displayModeBar: false });
    if (!place.dataset.heard) {
      place.dataset.heard = "yes";
      place.on("plotly_click", (event) => {
        const id = event.points[0].customdata;
        if (board && typeof id === "string") reveal(id);
      });
    }
  }
}

// Of many ticks that are named one by one a phone has room for five.
function thin(axis) {
  if (!axis || axis.type !== "log" || !Array.isArray(axis.tickvals)) return;
  const every = Math.ceil(axis.tickvals.length / 5);
  for (const key of ["tickvals", "ticktext"]) if (axis[key]) axis[key] = axis[key].filter((_, n) => n % every === 0);
}

function drawCurrent() {
  const chosen = root.dataset.theme;
  drawAll(chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen);
}

addEventListener("DOMContentLoaded", drawCurrent);
dark.addEventListener("change", drawCurrent);
narrow.addEventListener("change", drawCurrent);
addEventListener("beforeprint", () => {
  const how = byId("how");
  if (how) how.open = true;
  drawAll("light");
});
addEventListener("afterprint", drawCurrent);
