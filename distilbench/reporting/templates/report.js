"use strict";
// Every page: colours, tables that sort, commands to copy, figures. Tables need no Plotly; figures are drawn once
// plotly.min.js, loaded with `defer` after the scripts, is there.

const root = document.documentElement;
const byId = (id) => document.getElementById(id);
const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
const narrow = matchMedia("(max-width: 640px)");

const dark = matchMedia("(prefers-color-scheme: dark)");

// ---- sorting: a value is data-v or the text; missing values stay last in both directions

const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function inOrder(items, valueOf, direction) {
  const sign = direction === "ascending" ? 1 : -1;
  const keyed = items.map((item) => [valueOf(item) ?? "", item]);
  keyed.sort(([a], [b]) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    return sign * (typeof a === "number" ? a - b : words.compare(a, b));
  });
  return keyed.map(([, item]) => item);
}

function cellValue(row, column, kind) {
  const raw = row.cells[column].dataset.v ?? row.cells[column].textContent.trim();
  return raw === "" || raw === "—" ? "" : kind === "number" ? Number(raw) : raw;
}

for (const header of document.querySelectorAll("table:not(#board) th[aria-sort]")) {
  const table = header.closest("table");
  header.querySelector("button").addEventListener("click", () => {
    const direction = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", direction);
    const value = (row) => cellValue(row, header.cellIndex, header.dataset.kind);
    for (const body of table.tBodies) body.append(...inOrder([...body.rows], value, direction));
  });
}

// ---- commands to copy

for (const button of document.querySelectorAll("button.copy")) button.hidden = false;
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const [name, code] = [button.textContent, button.parentElement.querySelector("code")];
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    getSelection().selectAllChildren(code); // a browser that gives no page from disk the clipboard
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = name), 1500);
});

// ---- figures, in the system's colours; on paper always in the light ones

let adjust = (figure) => figure; // the leaderboard's script draws what the reader has chosen
let reveal = () => {}; // and shows the row of a mark

// Figures are written in light colours; the document names the dark one of each.
function figureOf(name, theme) {
  let text = byId("data-" + name).textContent;
  const pairs = theme === "dark" ? Object.entries(JSON.parse(root.dataset.dark)) : [];
  for (const [light, instead] of pairs) text = text.replaceAll(light, instead);
  return adjust(JSON.parse(text));
}

function drawAll(theme) {
  if (!window.Plotly) return;
  for (const place of document.querySelectorAll("[data-plot]")) {
    const figure = figureOf(place.dataset.plot, theme);
    place.querySelector(".absent")?.remove();
    if (narrow.matches) {
      figure.layout.dragmode = false; // a drag has to scroll the page on a phone; elsewhere it zooms
      figure.layout.font.size = 11;
      figure.layout.showlegend = figure.data.length <= 8; // more names leave the marks no room
      thin(figure.layout.xaxis);
    }
    window.Plotly.react(place, figure.data, figure.layout, { responsive: true, displayModeBar: false });
    if (!place.dataset.heard) place.on("plotly_click", (event) => reveal(event.points[0].customdata));
    place.dataset.heard = "yes";
  }
}

// Of many ticks that are named one by one a phone has room for five.
function thin(axis) {
  if (!axis || axis.type !== "log" || !Array.isArray(axis.tickvals)) return;
  const every = Math.ceil(axis.tickvals.length / 5);
  for (const key of ["tickvals", "ticktext"]) if (axis[key]) axis[key] = axis[key].filter((_, n) => n % every === 0);
}

function drawCurrent() {
  drawAll(dark.matches ? "dark" : "light");
}

addEventListener("DOMContentLoaded", drawCurrent);
dark.addEventListener("change", drawCurrent);
narrow.addEventListener("change", drawCurrent);
addEventListener("beforeprint", () => {
  for (const how of document.querySelectorAll("details.how")) how.open = true;
  drawAll("light");
});
addEventListener("afterprint", drawCurrent);
