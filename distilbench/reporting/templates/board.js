"use strict";
// The leaderboard. Table, answer, figures, comparison and files are functions of its rows, of the sets that are chosen,
// and of the reader's limits. What differs from the start stands in the address, after "#".

const about = JSON.parse(byId("about").textContent);
const rows = byId("rows").textContent.split("\n").filter(Boolean).map((line) => JSON.parse(line));
const byAnchor = new Map(rows.map((row) => [row.id, row]));
const [board, form, answer] = [byId("board"), byId("case"), document.querySelector(".answer")];
const firstAnswer = answer ? [...answer.childNodes] : [];
const open = new Set(); // groups of columns
const unfolded = new Set(); // encoders, whose other codes are shown
const compared = new Set();
const opened = [["open", open], ["codes", unfolded], ["compare", compared]]; // by their names in the address
let order = null; // the column that sorts, and its direction; else the dev scores
let everyRow = false;
let [found, drawing] = [null, 0]; // the row that was asked for; the figures that wait for the reader to stop typing

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value || value === "") node.setAttribute(name, value);
  node.append(...children.filter((child) => child || child === 0));
  return node;
}

// ---- numbers, written as Python writes them: a half that a double has exactly goes to the even neighbour

const sum = (values) => values.reduce((total, value) => total + value, 0);

function fixed(number, digits = 2) {
  const rounded = Number(number.toFixed(9));
  const half = Math.abs(rounded * 2 ** (digits + 1)) % 2 === 1;
  const text = rounded.toFixed(digits);
  return half && Number(text.at(-1)) % 2 ? (rounded * (1 - 2 ** -50)).toFixed(digits) : text;
}

const count = (number, digits = 0) => fixed(number, digits).replace(/\B(?=(\d{3})+$)/g, ",");
const tenth = (number) => fixed(number, 1);

function short(number) {
  if (Math.abs(number) >= 100) return count(number);
  const digits = number ? 2 - Math.floor(Math.log10(Math.abs(number))) : 0;
  return `${Number(fixed(number, Math.min(digits, 9)))}`;
}

function binary(size) {
  const place = Math.min(3, Math.max(0, Math.floor(Math.log10(size) / 3)));
  return place ? `${short(size / 1000 ** place)} ${["B", "kB", "MB", "GB"][place]}` : `${fixed(size, 0)} B`;
}

const signed = (number) => (Number(fixed(number)) ? (number > 0 ? "+" : "") + fixed(number) : "0.00");
const written = { fixed, tenth, count, short, binary, str: String };

// ---- the model: scores of chosen sets, costs at the reader's size, limits

const present = {}; // by corpus and key: whether some row has a score of it
for (const row of rows) for (const key of Object.keys(row.scores)) present[`${row.corpus_place} ${key}`] = true;
const teacherOf = (row) => byAnchor.get(row.teacher_id);
const competes = (row) => row.role !== "teacher" || row.code !== "float32";
const control = (name) => form.elements[name];
const scales = { k: 1e3, m: 1e6, million: 1e6, b: 1e9, billion: 1e9 };
let given = {}; // by the names of the fields the reader's numbers; without those that are empty or something else
const asked = (name) => given[name] ?? null;

// Read the fields: numbers such as 10,000,000, 10M or 10 million.
function readFields() {
  given = {};
  for (const field of form.querySelectorAll('[type="text"]')) {
    const parts = field.value.toLowerCase().replace(/[,_\s]/g, "").match(/^(\d*\.?\d+)([a-z%]*)$/);
    const scale = parts && (["", field.dataset.unit].includes(parts[2]) ? 1 : scales[parts[2]]);
    if (scale) given[field.name] = Number(parts[1]) * scale;
    field.setCustomValidity(field.value.trim() && !scale ? "Write a number, such as 64, 10M or 10 million." : "");
  }
}

const judge = byId("judge");
const boxes = form ? [...form.querySelectorAll("[name=set]")] : []; // a set each
const judged = (box, task) => (task ? box.closest("fieldset").querySelector("legend").textContent === task : box.defaultChecked);
let [chosen, devs, own, qualities, places] = [[], [], false, new Map(), new Map()];

// The weighted mean over sets, of each seed and then over seeds; with the 95 % interval over seeds, or of one seed's items.
function score(row, weights) {
  const seeds = row.seed.map((_, n) => sum(weights.map(([key, weight]) => weight * (row.scores[key]?.[n] ?? NaN))));
  const known = weights.length ? seeds.filter(Number.isFinite) : [];
  if (!known.length) return {};
  const n = known.length;
  const cell = { value: sum(known) / n, seeds: n };
  if (n > 1) cell.interval = about.t[n] * Math.sqrt(sum(known.map((x) => (x - cell.value) ** 2)) / (n - 1) / n);
  else if (weights.every(([key]) => row.ends?.[key])) {
    const reach = (end) => Math.hypot(...weights.map(([key, weight]) => weight * (row.ends[key][end] - row.scores[key][0])));
    [cell.low, cell.high] = [cell.value - reach(0), cell.value + reach(1)];
  }
  const teacher = teacherOf(row);
  const whole = teacher === row ? cell.value : teacher && score(teacher, weights).value;
  if (whole > 0) cell.kept = (100 * cell.value) / whole;
  if (whole > 0 && n > 1) cell.keptInterval = (100 * cell.interval) / whole;
  return cell;
}

function remembering(row, name, make) {
  if (!qualities.has(row)) qualities.set(row, {});
  return (qualities.get(row)[name] ??= make());
}

const quality = (row) => remembering(row, "test", () => score(row, chosen));
// What chooses: the dev scores of the chosen sets' tasks; of a task without dev sets, the test scores.
const merit = (row) => remembering(row, "merit", () => (devs.length ? score(row, devs) : quality(row)));

function weightsOf(row, keys) {
  const there = keys.filter((key) => present[`${row.corpus_place} ${key}`]);
  return there.map((key) => [key, 1 / there.length]);
}

// At the reader's number of documents: each adds its vector to the index, and an exact search reads every vector.
function sized(row, name) {
  const documents = asked("documents");
  if (documents === null) return row[name];
  if (name === "index_bytes") return (row.index_bytes ?? row.bytes * about.documents) + row.bytes * (documents - about.documents);
  return (row[name] * documents) / about.documents;
}

const searchMs = (row) => sized(row, "ms_per_1000_queries") / 1000;

const limits = {
  bytes: (row, most) => row.bytes <= most,
  speed: (row, least) => row.times_teacher >= least,
  model: (row, most) => row.model_bytes <= most * 1e6,
  kept: (row, least) => (merit(row).kept ?? quality(row).kept) >= least,
  index: (row, most) => sized(row, "index_bytes") <= most * 1e9,
  search: (row, most) => searchMs(row) <= most,
};
const limited = () => Object.keys(limits).filter((name) => asked(name) !== null);
const within = (row) => limited().every((name) => limits[name](row, asked(name)));

// Cores that are busy with embedding and searching, and what index and cores cost in a month.
function serving(row) {
  const speed = row.sentences_per_second;
  const cores = asked("queries") * ((searchMs(row) || 0) / 1000 + (speed ? 1 / speed : 0));
  return { cores, money: (sized(row, "index_bytes") / 1e9) * asked("gigabyte") + cores * asked("core") };
}

function model() {
  readFields();
  const ticked = boxes.filter((box) => box.checked).map((box) => box.value);
  own = ticked.length > 0 && boxes.some((box) => box.checked !== box.defaultChecked);
  if (judge) judge.selectedIndex = [...judge.options].findIndex(({ value }) => boxes.every((box) => box.checked === judged(box, value)));
  chosen = own ? ticked.map((key) => [key, 1 / ticked.length]) : Object.entries(about.chosen);
  devs = own ? ticked.map((key) => [`dev:${about.sets[key].task}`, 1 / ticked.length]) : [["dev", 1]];
  if (!devs.every(([key]) => rows.some((row) => row.scores[key]))) devs = [];
  qualities = new Map();
  places = new Map(rows.map((row) => [row, {}]));
  const [fronts, sizes, scores] = [{}, {}, {}];
  const tested = rows.filter((row) => quality(row).value !== undefined);
  for (const row of inOrder(tested, (item) => quality(item).value, "descending")) {
    const beside = `${row.corpus_place} ${Boolean(row.documents)}`;
    const { value } = quality(row);
    (fronts[beside] ??= []).push(row);
    if (competes(row)) (sizes[`${beside} ${row.bytes}`] ??= []).push(row);
    (scores[row.corpus_place] ??= []).push(value);
    places.get(row).rank = 1 + scores[row.corpus_place].indexOf(value);
  }
  for (const beside of Object.values(fronts))
    for (const row of beside) {
      const beats = (other) => other.bytes <= row.bytes && (other.bytes < row.bytes || quality(other).value > quality(row).value);
      places.get(row).front = !beside.some((other) => quality(other).value >= quality(row).value && beats(other));
    }
  for (const same of Object.values(sizes).filter((group) => group.length > 1))
    for (const row of same) places.get(row).best = quality(row).value === quality(same[0]).value;
}

function cellOf(row, { name, keys }) {
  if (name === "test") return quality(row);
  if (name === "kept_percent") return { value: quality(row).kept, interval: quality(row).keptInterval };
  if (name === "rank") return { value: places.get(row).rank };
  if (name === "standing") return { value: marksOf(row).join(", ") };
  if (name === "index_bytes" || name === "ms_per_1000_queries") return { value: sized(row, name) };
  return keys.length ? remembering(row, name, () => score(row, weightsOf(row, keys))) : { value: row[name] };
}

function marksOf(row) {
  const { front, best } = places.get(row);
  const marks = [front && "Pareto", best && `best in ${count(row.bytes)} ${row.bytes === 1 ? "byte" : "bytes"}`];
  marks.push(row.chosen_on_dev && "chosen on dev");
  marks.push(row.trial !== undefined && row.seeds > 1 && `confirmed with ${row.seeds} seeds`);
  return marks.filter(Boolean);
}

// ---- the answer: the page's own, or for the reader's limits and sets by the same rules

function choose() {
  const floor = asked("kept") ?? about.keeps;
  const pool = rows.filter((row) => row.usable && competes(row) && within(row) && merit(row).value !== undefined);
  const keeping = pool.filter((row) => merit(row).kept >= floor);
  const least = (items) => [...items].sort((a, b) => a.bytes - b.bytes || merit(b).value - merit(a).value)[0];
  const level = (row, best) => merit(row).value === merit(best).value || (!own && best.alike?.includes(row.id));
  const bestOf = (items) => {
    const best = inOrder(items, (row) => merit(row).value, "descending")[0];
    return least(items.filter((row) => level(row, best)));
  };
  const top = Math.max(...keeping.map((row) => row.times_teacher ?? 0));
  const quick = keeping.filter((row) => row.times_teacher >= Math.max(about.faster, top / 1.02));
  const [best, small, smallest] = [bestOf(pool), bestOf(pool.filter((row) => row.bytes <= about.few)), least(keeping)];
  const needs = [
    ["Take ", asked("bytes") !== null ? best : keeping.includes(small) ? small : (smallest ?? best)],
    ["Best quality on dev sets: ", best],
    [`Smallest that keeps ${floor} %: `, smallest],
    [`Fastest that keeps ${floor} %: `, bestOf(quick)],
  ];
  return needs.filter(([, row], n) => row && needs.findIndex(([, other]) => other === row) === n);
}

function titleOf() {
  if (!own) return about.title;
  const parts = chosen.map(([key]) => about.sets[key].name.match(/^(.*?)(?: \((.*)\))?$/));
  const metric = parts.every((part) => part[2] === parts[0][2]) ? parts[0][2] : undefined; // the same of all
  const names = parts.map((part) => (metric ? part[1] : part[0])).join(", ");
  return metric ? `${metric} (${parts.length > 1 ? "mean of " : ""}${names})` : `mean of ${names}`;
}

function told(row) {
  const { value, interval, low, high, kept, keptInterval } = quality(row);
  const half = keptInterval === undefined ? "" : ` ± ${tenth(keptInterval)}`;
  const answers = about.columns.find(({ name }) => name === "mrr10");
  const found = answers && !titleOf().includes("MRR@10") ? cellOf(row, answers).kept : undefined;
  const more = found === undefined ? "" : ` and ${tenth(found)} % of its search (MRR@10)`;
  const floor = asked("kept") ?? about.keeps;
  const onDev = merit(row).kept >= floor && kept < floor ? ` (${tenth(merit(row).kept)} % on dev)` : "";
  const parts = [kept !== undefined && `keeps ${tenth(kept)}${half} %${onDev} of the teacher's ${titleOf()}${more}`, row.costs];
  const documents = asked("documents");
  if (documents !== null) {
    parts.push(`${binary(sized(row, "index_bytes"))} of index for ${count(documents)} documents`);
    parts.push(searchMs(row) && `${short(searchMs(row))} ms a query`);
    const { cores, money } = serving(row);
    parts.push(asked("queries") && `${short(cores)} cores busy`, money && `${short(money)} a month`);
  }
  const over = interval !== undefined ? ` ± ${fixed(interval)} over ${row.seeds} seeds` : "";
  const items = low !== undefined ? `, ${tenth(low)} to ${tenth(high)} over its test items` : "";
  const alike = own ? [] : rows.filter((other) => row.alike?.includes(other.id) && within(other));
  const ties = alike.length ? `; level with ${count(alike.length)} other${alike.length > 1 ? "s" : ""} within your limits` : "";
  const sure = value === undefined ? "no test score" : `${fixed(value)}${over}${items}${ties}`;
  return [parts.filter(Boolean).join(", "), sure];
}

function nameOf(row, text) {
  const href = `encoders/${row.id}.html`;
  return el("a", { class: "label", href, title: text.length > 24 && text }, text);
}

let recommended = [];
function showAnswer() {
  const case_ = own || limited().length || asked("documents") !== null;
  const needed = case_ ? choose() : [];
  recommended = case_ ? needed.map(([, row]) => row.id) : about.taken;
  if (!answer) return;
  if (!case_) return answer.replaceChildren(...firstAnswer);
  const needs = needed.map(([title, row], place) => {
    const [summary, sure] = told(row);
    const code = row.export && el("span", { class: "command" }, el("code", {}, row.export));
    code?.append(el("button", { type: "button", class: "copy" }, "Copy export command"));
    const named = el("p", {}, el("strong", {}, title, nameOf(row, row.told)), `: ${summary}.`);
    return el("div", { class: `need${place ? "" : " first"}` }, named, el("p", { class: "sure" }, el("span", {}, `${sure}.`), code));
  });
  const whole = rows.some((row) => (merit(row).kept ?? quality(row).kept) !== undefined);
  const unknown = asked("kept") !== null && !whole ? "What is kept is not known: the teacher has no score of these sets. " : "";
  const left = `${rows.filter(within).length} of ${rows.length} rows are within your limits. ${unknown}`;
  const basis = devs.length ? `Chosen by dev scores${own ? " of the tasks of these sets" : ""}.` : "Chosen by these test scores, since they have no dev sets: expect a little less.";
  const grown = asked("documents") === null ? "" : ` Index and time are those of ${about.searched}, extrapolated to your documents: an exact search reads every vector. Embedding the query comes on top, and quality at that size was not measured.`;
  answer.replaceChildren(...needs, el("p", { class: "absentee" }, left + basis + grown));
}

// ---- the table

const lines = []; // an encoder: the row that stands for it, its other codes
for (const row of rows) {
  if (row.kind === "code") lines.at(-1).codes.push(row);
  else lines.push({ row, codes: [], kind: row.kind });
}
const lineOf = new Map(lines.flatMap((line) => [line.row, ...line.codes].map((row) => [row, line])));
const AT_ONCE = 50; // of 500 rows sorted, so many take a busy browser 70 ms to lay out and paint, 100 rows 170, all 400
let [columns, headed] = [[], ""];

function listed() {
  const parts = control("q").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (row) => `${row.told} ${row.role} ${row.method} ${row.dim} ${row.code}`.toLowerCase();
  const column = order && (about.columns.find(({ name }) => name === order[0]) ?? { name: "name", keys: [] });
  const valueOf = (row) => (column ? cellOf(row, column).value : merit(row).value);
  const sort = (items, of = (row) => row) => {
    const sorted = inOrder(items, (item) => valueOf(of(item)), order ? order[1] : "descending");
    return order ? sorted : sorted.sort((a, b) => of(a).corpus_place - of(b).corpus_place);
  };
  const flat = parts.length > 0 || limited().length > 0 || control("every").checked;
  if (flat) {
    const top = rows.filter((row) => row.kind === "reference" && row.role === "teacher");
    const rest = rows.filter((row) => !top.includes(row) && within(row) && parts.every((part) => text(row).includes(part)));
    return { flat, top, rest: sort(rest) };
  }
  const forms = ({ row, codes }) => (unfolded.has(row.id) ? [row, ...codes] : [row]);
  const [top, rest] = ["reference", "encoder"].map((kind) => sort(lines.filter((line) => line.kind === kind), ({ row }) => row));
  return { flat, top: top.flatMap(forms), rest: rest.flatMap(forms) };
}

function cell(row, column) {
  const { value, interval, low, high, seeds, kept } = cellOf(row, column);
  const missing = value === undefined || value === "";
  const called = column.leads ? column.title : `${column.group}, ${column.title}`; // where a row is a card
  if (column.kind === "text") return el("td", { class: "text", "data-t": called }, missing ? "—" : value, column.name === "tie_group" && !own && row.tie && el("small", {}, row.tie));
  const td = el("td", { class: column.name === "test" ? "average" : column.dev && "dev", "data-t": called });
  td.append(missing ? "—" : written[column.written](value));
  const small = (text) => td.append(el("small", {}, text));
  if (interval !== undefined) small(`±\u00a0${written[column.written](interval)}`);
  if (low !== undefined) small(`${tenth(low)}–${tenth(high)}`);
  if (seeds < row.seeds) small(`n\u00a0=\u00a0${seeds}`);
  if (column.shares && kept !== undefined) small(`${tenth(kept)}\u00a0%`);
  return td;
}

function head(row, flat) {
  const { codes } = lineOf.get(row);
  const marks = el("span", { class: "marks" });
  const mark = (kind, text, title) => marks.append(el("span", { class: kind, title }, text));
  if (row.role !== "student") mark(`badge ${row.role}`, row.role);
  if (about.quantised) mark("mark kind", row.code);
  if (recommended.includes(row.id)) mark("badge student taken", "recommended");
  if (row.demonstration && !about.demonstration) mark("badge demo", "demo");
  if (row.corpus_place) mark("badge", "other corpus", "Scored on another corpus than most rows: do not compare it with them");
  if (row.lost) mark("mark lost", `neighbours lost: ${fixed(row.kept_neighbours_percent, 0)}\u00a0% of 10 kept`, row.lost);
  if (!about.oneSeed) mark("mark", `${row.seeds} ${row.seeds === 1 ? "seed" : "seeds"}`);
  if (codes.length && row.kind !== "code" && !flat) {
    const shown = String(unfolded.has(row.id));
    marks.append(el("button", { type: "button", class: "codes", value: row.id, "aria-expanded": shown }, `${codes.length} more`));
  }
  const title = "Queries that the teacher answers and this row does not, and the other way round";
  if (row.losses) marks.append(el("a", { class: "mark", href: `encoders/${row.id}.html#h-lost`, title }, row.losses));
  const tick = el("input", { type: "checkbox", class: "compare", value: row.id, "aria-label": `Compare ${row.told}` });
  tick.checked = compared.has(row.id);
  marks.append(el("label", { class: "mark" }, tick, " compare"));
  return el("th", { scope: "row", "data-v": row.name }, nameOf(row, row.name), marks);
}

function showHead() {
  const seen = about.columns.filter((column) => column.leads || open.has(column.group));
  const now = `${own} ${seen.map(({ name }) => name)}`;
  if (now === headed) return; // who sorts keeps the focus
  [headed, columns] = [now, seen];
  const groups = columns.map(({ group }) => group).filter((group, n, all) => group !== all[n - 1]);
  const spans = groups.map((group) => el("th", { scope: "colgroup", colspan: columns.filter((c) => c.group === group).length }, group));
  const heads = [{ name: "name", title: "Label", kind: "text", help: "In the order of the dev scores, unless sorted" }, ...columns];
  const titles = heads.map(({ name, title, kind, help }) => {
    const named = own && name === "test" ? "Mean of chosen sets" : title;
    const button = el("button", { type: "button", title: help }, named, el("span", { class: "arrow", "aria-hidden": "true" }));
    return el("th", { scope: "col", "aria-sort": "none", class: kind === "text" ? "text" : "number", "data-key": name }, button);
  });
  board.tHead.replaceChildren(
    el("tr", { class: "groups" }, el("th", { scope: "colgroup", class: "first" }, "Encoder"), ...spans),
    el("tr", { class: "titles" }, ...titles),
  );
  for (const button of document.querySelectorAll(".fold-columns")) button.setAttribute("aria-expanded", open.has(button.value));
}

function showRows() {
  const { flat, top, rest } = listed();
  const shown = everyRow ? rest : rest.slice(0, AT_ONCE);
  const made = (row) => {
    const pareto = places.get(row).front ? " pareto" : "";
    const kind = `${row.role}${row.kind === "code" && !flat ? " form" : ""}${pareto}${row.id === found ? " found" : ""}`;
    return el("tr", { id: row.id, class: kind }, head(row, flat), ...columns.map((column) => cell(row, column)));
  };
  board.tBodies[0].replaceChildren(...top.map(made));
  board.tBodies[1].replaceChildren(...shown.map(made));
  for (const header of board.querySelectorAll("th[aria-sort]"))
    header.setAttribute("aria-sort", order?.[0] === header.dataset.key ? order[1] : "none");
  const cut = shown.length < rest.length;
  const number = cut ? `${shown.length} of ${rest.length}` : `${rest.length} of ${rows.length - top.length}`;
  byId("count").textContent = cut || flat ? `${number} rows` : "";
  byId("more").hidden = !cut;
  byId("more").textContent = `Show all ${rest.length} rows`;
}

// ---- two or three rows side by side: scores with their differences to the first, and settings that differ

// Of means over sets the deviations of each resample add up; without kept draws the rows count as independent.
function difference(one, other, weights) {
  const [a, b] = [score(one, weights), score(other, weights)];
  if (a.value === undefined || b.value === undefined) return "—";
  const draws = (row, key) => new Int16Array(bytesOf(row.draws[key]).buffer);
  let [half, paired] = [Math.hypot(halfOf(a), halfOf(b)), ""];
  if (weights.every(([key]) => one.draws?.[key] && other.draws?.[key])) {
    const moved = weights.map(([key, weight]) => [weight / 1000, draws(one, key), draws(other, key)]);
    const total = Array.from(moved[0][1], (_, n) => sum(moved.map(([weight, x, y]) => weight * (y[n] - x[n]))));
    const mean = sum(total) / total.length;
    half = 1.96 * Math.sqrt(sum(total.map((gap) => (gap - mean) ** 2)) / (total.length - 1));
    paired = ", paired";
  }
  const reach = Number.isFinite(half) ? ` ±\u00a0${fixed(half)}${paired}` : "";
  return `${signed(b.value - a.value)}${reach}`;
}

const halfOf = ({ interval, low, high }) => interval ?? (high - low) / 2;

function showCompared() {
  const some = [...compared].map((id) => byAnchor.get(id));
  byId("compare").hidden = some.length < 2;
  const [first, ...others] = some;
  const line = (title, texts) => el("tr", {}, el("th", { scope: "row" }, title), ...texts.map((text) => el("td", {}, ...[text].flat())));
  const body = [];
  const scored = (title, weights) => {
    if (!some.some((row) => score(row, weights).value !== undefined)) return;
    const values = some.map((row) => score(row, weights).value);
    const texts = values.map((value) => (value === undefined ? "—" : fixed(value)));
    others.forEach((row, n) => (texts[n + 1] += ` (${difference(first, row, weights)})`));
    body.push(line(title, texts));
  };
  if (some.length > 1) {
    scored(titleOf(), chosen);
    for (const { title, keys } of about.columns.filter((column) => column.keys.length > 1)) scored(title, weightsOf(first, keys));
    for (const [key, { name }] of Object.entries(about.sets)) scored(name, [[key, 1]]);
    const plain = about.columns.filter(({ keys, name }) => !keys.length && name !== "kept_percent");
    for (const column of plain) body.push(line(column.title, some.map((row) => cell(row, column).textContent)));
    const settings = (row) => ({ start: row.start, run: row.run, trial: row.trial, ...row.hyperparameters });
    for (const key of new Set(some.flatMap((row) => Object.keys(settings(row))))) {
      const texts = some.map((row) => JSON.stringify(settings(row)[key]) ?? "—");
      if (new Set(texts).size > 1) body.push(line(key, texts.map((text) => text.replace(/^"|"$/g, ""))));
    }
  }
  const heads = some.map((row) => el("th", { scope: "col" }, nameOf(row, row.told)));
  byId("compared").tHead.replaceChildren(el("tr", {}, el("td"), ...heads));
  byId("compared").tBodies[0].replaceChildren(...body);
}

// ---- the figures: what is within the limits, by the chosen sets

adjust = (figure) => {
  const at = (row) => [pointsX.get(row.id), quality(row).value];
  const marks = figure.data.filter((trace) => trace.mode === "markers" && trace.customdata);
  const pointsX = new Map(marks.flatMap(({ x, customdata }) => customdata.map((id, n) => [id, x[n]])));
  const drawn = (id) => byAnchor.has(id) && within(byAnchor.get(id)) && quality(byAnchor.get(id)).value !== undefined;
  if (!marks.length) return figure;
  const faster = figure.layout.meta === "speed" ? -1 : 1;
  const shown = [];
  for (const trace of marks) {
    const some = trace.customdata.filter(drawn).map((id) => byAnchor.get(id));
    shown.push(...some);
    trace.customdata = some.map(({ id }) => id);
    [trace.x, trace.y] = [0, 1].map((axis) => some.map((row) => at(row)[axis]));
    trace.error_y.array = some.map((row) => quality(row).interval ?? 0);
    const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
    trace.hovertext = some.map((row) => `<b>${escaped(row.told)}</b><br>${told(row).map(escaped).join("<br>")}`);
  }
  const ours = (row) => row.role === "student" || row.role === "encoder";
  const fronts = [(row) => !row.documents && ours(row), (row) => !row.documents && !ours(row), (row) => row.documents];
  const joined = figure.data.filter((trace) => trace.mode === "lines");
  const value = (row) => merit(row).value ?? quality(row).value;
  joined.forEach((trace, n) => {
    const some = shown.filter((row) => fronts[n](row) && competes(row));
    some.sort((a, b) => faster * (at(a)[0] - at(b)[0]) || value(b) - value(a));
    const front = some.filter((row, place) => some.slice(0, place).every((other) => value(other) < value(row)));
    [trace.x, trace.y] = [0, 1].map((axis) => front.map((row) => at(row)[axis]));
  });
  const rings = figure.data.find(({ name }) => name === "recommended");
  const ringed = recommended.map((id) => byAnchor.get(id)).filter((row) => shown.includes(row));
  if (rings) [rings.x, rings.y] = [0, 1].map((axis) => ringed.map((row) => at(row)[axis]));
  const heights = shown.map((row) => at(row)[1]).sort((a, b) => a - b);
  const low = Math.min(heights[Math.floor(heights.length / 10)], ...joined.flatMap(({ y }) => y), ...ringed.map((row) => at(row)[1]));
  const room = 0.06 * (heights.at(-1) - low || 1);
  if (heights.length) figure.layout.yaxis.range = [low - room, heights.at(-1) + room];
  figure.layout.yaxis.title.text = own ? "Mean of the chosen sets" : figure.layout.yaxis.title.text;
  return figure;
};

// ---- what is chosen, and its address

function remember() {
  const state = new URLSearchParams();
  for (const box of form.elements)
    if (box.type === "checkbox" && box.checked !== box.defaultChecked) state.append("flip", `${box.name} ${box.value}`);
    else if (box.name && box.type !== "checkbox" && box.value) state.set(box.name, box.value);
  for (const [name, items] of opened) for (const item of items) state.append(name, item);
  if (order) state.set("sort", order.join(" "));
  if (everyRow) state.set("rows", "all");
  history.replaceState(null, "", state.size ? `#${state}` : location.pathname + location.search);
}

function recall() {
  const text = location.hash.slice(1);
  if (byAnchor.has(text)) return reveal(text);
  if (text && !text.includes("=")) return; // a place in the page
  const state = new URLSearchParams(text);
  form.reset();
  const flipped = state.getAll("flip");
  for (const box of form.elements)
    if (box.type === "checkbox") box.checked = box.defaultChecked !== flipped.includes(`${box.name} ${box.value}`);
    else if (box.name) box.value = state.get(box.name) ?? "";
  for (const [name, items] of opened) {
    items.clear();
    for (const item of state.getAll(name)) items.add(item);
  }
  for (const id of compared) if (!byAnchor.has(id)) compared.delete(id);
  const [name, direction] = (state.get("sort") ?? "").split(" ");
  order = direction && [...about.columns, { name: "name" }].some((column) => column.name === name) ? [name, direction] : null;
  everyRow = state.get("rows") === "all";
}

// Show everything anew, or the tables alone.
function show(all = true) {
  if (all) {
    model();
    showAnswer();
    byId("sets-chosen").textContent = `${chosen.length} of ${boxes.length}`;
    for (const caption of document.querySelectorAll("figcaption")) {
      const first = (caption.dataset.first ??= caption.textContent);
      caption.textContent = own ? first.replace(about.score, "The mean of the chosen sets") : first;
    }
    clearTimeout(drawing);
    drawing = setTimeout(drawCurrent, 150);
  }
  showHead();
  showRows();
  showCompared();
}

const changed = (all) => (show(all), remember());

// Show a row, whatever is folded or left out, and go there.
reveal = (id) => {
  const line = lineOf.get(byAnchor.get(id));
  if (!line) return;
  form.reset();
  found = id;
  if (line.kind === "other") control("every").checked = true;
  else if (line.row.id !== id) unfolded.add(line.row.id);
  show();
  if (!byId(id)) everyRow = true;
  showRows();
  byId(id).scrollIntoView({ block: "center" });
  byId(id).querySelector("a, input").focus({ preventScroll: true });
  remember();
};

if (board) {
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", ({ target }) => target.reportValidity());
  if (!rows.some((row) => row.times_teacher !== undefined)) [control("speed").disabled, control("speed").placeholder] = [true, "not measured"];
  for (const option of [...(judge?.options ?? [])].slice(1)) if (boxes.every((box) => judged(box, option.value) === box.defaultChecked)) option.remove();
  judge?.addEventListener("change", () => {
    for (const box of boxes) box.checked = judged(box, judge.value);
    changed(true);
  });
  document.addEventListener("input", ({ target }) => target !== judge && target.form === form && changed(target.name !== "q"));
  form.querySelector("[type=reset]").addEventListener("click", () => setTimeout(changed));
  document.addEventListener("change", ({ target }) => {
    if (!target.matches(".compare")) return;
    if (!compared.delete(target.value)) compared.add(target.value);
    if (compared.size > 3) compared.delete([...compared][0]);
    changed(false);
  });
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    const header = target.closest("#board th[aria-sort]");
    if (button?.matches(".fold-columns")) open.delete(button.value) || open.add(button.value);
    else if (button?.matches(".codes")) unfolded.delete(button.value) || unfolded.add(button.value);
    else if (button?.id === "more") everyRow = true;
    else if (header) {
      const text = header.className === "text";
      const [first, second] = text ? ["ascending", "descending"] : ["descending", "ascending"];
      const now = order?.[0] === header.dataset.key ? order[1] : null;
      order = now === second ? null : [header.dataset.key, now ? second : first]; // the third click: dev's order again
    } else return;
    changed(false);
    if (button?.matches(".codes")) byId(button.value).querySelector(".codes").focus();
  });
  // What is recommended is to be seen, also where another form of its encoder stands for it.
  for (const line of lines) if (line.codes.some(({ id }) => about.taken.includes(id))) unfolded.add(line.row.id);
  recall();
  show();
  addEventListener("hashchange", () => (recall(), show()));
}

// ---- the table of all indexes is made when it is asked for: in a large report it has thousands of rows

byId("every-index")?.addEventListener("toggle", () => {
  const [body, heads] = [byId("index-table").tBodies[0], byId("index-table").tHead.rows[0].cells];
  if (body.rows.length) return;
  for (const [id, name, ...values] of JSON.parse(byId("every-index-data").textContent)) {
    const texts = values.map((value) => [value].flat()); // "1,200" and "5 MB" are followed by the number that sorts them
    const cells = texts.map(([text, key], n) => el("td", { class: heads[n + 1].className, "data-v": key?.toString() }, text || "—"));
    body.append(el("tr", {}, el("th", { scope: "row", "data-v": name }, nameOf({ id }, name)), ...cells));
  }
});
