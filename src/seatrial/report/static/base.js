"use strict";
// Small helpers. Every text goes in through textContent or an attribute: nothing from a record is ever read as HTML.
const NS = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);

function put(node, attrs, children) {
  for (const [key, value] of Object.entries(attrs || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "text") node.textContent = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(3)) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}
const h = (tag, attrs, ...children) => put(document.createElement(tag), attrs, children);
const s = (tag, attrs, ...children) => put(document.createElementNS(NS, tag), attrs, children);

let V = null; // the view that everything is drawn from
const has = (value) => value !== null && value !== undefined;
const cell = (name, row) => (V.rows[name] ? V.rows[name][row] : null);

// ---- numbers and words

function num(value, digits = 4) {
  if (!has(value)) return "";
  if (typeof value !== "number") return String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e15 || size < 1e-4) return value.toExponential(2);
  if (size >= 10 ** (digits - 1)) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}
const percent = (share, digits = 1) => `${(share * 100).toFixed(digits)} %`;
const shown = (name, row) => { // a figure with the digits it was printed with
  const text = cell(`${name}_text`, row);
  if (has(text)) return text;
  const value = cell(name, row);
  if (!has(value)) return "";
  // Our own medians have more digits than they know; a figure from a table has those it was written with.
  return has(cell("file", row)) || typeof value !== "number" || Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(5)));
};
const memory = (row) => (has(cell("mem_text", row)) && /[A-Za-z]/.test(cell("mem_text", row)) ? cell("mem_text", row) : `${has(cell("file", row)) ? shown("mem", row) : num(cell("mem", row))} GiB`);
function count(text) { // 300e9, 300B, 1.5T
  const match = /^\s*([\d.,_]+(?:e\d+)?)\s*([kmbt]?)\s*$/i.exec(text);
  if (!match) return null;
  const scale = { "": 1, k: 1e3, m: 1e6, b: 1e9, t: 1e12 }[match[2].toLowerCase()];
  const value = Number(match[1].replace(/[,_]/g, "")) * scale;
  return value > 0 && Number.isFinite(value) ? value : null;
}

// What a trial is made of comes with the view: a new field of a trial needs no word here.
const BATCH = ["mbs", "gbs"];
const fields = (test) => V.columns.filter((c) => c.group && test(c));
const wording = (c, value) => (value === true ? c.title.toLowerCase() : !has(value) || value === false ? "" : [c.word, value, c.unit].filter((part) => part !== "").join(" "));
const splits = () => fields((c) => c.searched && c.kind === "count" && !BATCH.includes(c.name)); // over processes and virtual stages
function others() { // but for where it ran and the batch: layout first
  const apart = new Set(["size", "nodes", ...BATCH, ...splits().map((c) => c.name)]);
  return [...fields((c) => c.group === "layout"), ...fields((c) => c.group !== "layout")].filter((c) => !apart.has(c.name));
}
const differs = (name, rows) => new Set(rows.map((row) => cell(name, row))).size > 1;

function layout(row, { batch = true } = {}) {
  const parts = splits().filter((c) => has(cell(c.name, row)) && (c.degree || cell(c.name, row) !== c.default)).map((c) => wording(c, cell(c.name, row)));
  const more = fields((c) => batch && BATCH.includes(c.name)).map((c) => wording(c, cell(c.name, row)));
  return [parts.join(" · ") || "layout not said", ...more].filter(Boolean).join(", ");
}
function around(row, beside) { // what else tells a row from its neighbours
  const usual = (c) => c.group === "around" && cell(c.name, row) === c.default;
  return others().filter((c) => (c.group === "model" || c.group === "cluster" ? differs(c.name, beside) : !usual(c))).map((c) => wording(c, cell(c.name, row))).filter(Boolean).join(", ");
}
function place(row) {
  const file = cell("file", row);
  if (has(file)) return has(cell("line", row)) ? `${file}:${cell("line", row)}` : file;
  return [cell("session", row), cell("machine", row)].filter(has).join(" · ") || V.ids[row];
}
const STATE = { measured: "good", estimated: "info", rehearsed: "info", planned: "" };
function stateWord(row) {
  const status = cell("status", row), state = cell("state", row);
  return (has(status) && status !== "ok" ? (["measured", "estimated", "rehearsed"].includes(state) ? `${state}, ${status}` : status) : state).replace("_", " ");
}
function badge(row) {
  const status = cell("status", row), state = cell("state", row);
  return h("span", { class: `badge ${(has(status) && status !== "ok" ? V.statuses[status] : STATE[state]) ?? "bad"}`, text: stateWord(row) });
}
const shortly = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const LONG = 400;
function folded(text) { // a very long text behind its beginning
  if (text.length <= LONG) return text;
  return h("details", { class: "fold" }, h("summary", {}, `${text.slice(0, LONG / 2)}… `, h("span", { class: "dim", text: `(${text.length.toLocaleString("en")} letters)` })), h("pre", { text }));
}
const devices = (row) => (has(cell("world_from", row)) ? `${cell("world", row)}*` : String(cell("world", row))); // * where counted from the layout
const COUNTED = () => { const from = (V.rows.world_from || []).find(has); return from ? `* devices counted from ${from}: the row does not say them.` : ""; };
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

// ---- hover, for the mouse; everything said here can also be read in the row itself

function showTip(event, text) {
  const box = $("tip"), over = $("row").open ? $("row") : document.body;
  if (box.parentElement !== over) over.append(box); // an open dialog lies above everything outside it
  box.textContent = text;
  box.hidden = false;
  const wide = box.offsetWidth, high = box.offsetHeight;
  box.style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - wide - 8))}px`;
  box.style.top = `${event.clientY + 18 + high > window.innerHeight ? event.clientY - high - 10 : event.clientY + 18}px`;
}
function tip(node, text) {
  // The innermost speaks: a segment inside a line that has words of its own.
  node.addEventListener("pointermove", (event) => { event.stopPropagation(); showTip(event, text); });
  node.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  return node;
}
function opens(node, row) {
  put(node, { tabindex: "0", role: "button", class: `${node.getAttribute("class") || ""} hit`,
    onclick: () => openRow(row),
    onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); openRow(row); } } }, []);
  return node;
}

// ---- scales

function ticks(low, high, wanted = 5) {
  const span = high - low || Math.abs(high) || 1;
  const rough = span / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((m) => span / m <= wanted) || power * 10;
  const out = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-6; v += step) out.push(Number(v.toPrecision(12)));
  return out;
}
// Each picture is drawn for the width it has, so that letters keep their size on a phone.
const drawn = new Map();
function picture(holder, draw) {
  const again = () => {
    const width = Math.floor(holder.clientWidth);
    if (width > 0) holder.replaceChildren(draw(width), svgButton(holder));
  };
  holder.classList.add("picture");
  drawn.set(holder, again);
  again();
  return holder;
}
let lastWidth = 0;
window.addEventListener("resize", () => {
  if (window.innerWidth === lastWidth) return;
  lastWidth = window.innerWidth;
  for (const [holder, again] of drawn) (holder.isConnected ? again() : drawn.delete(holder));
});
function legend(entries) {
  return h("ul", { class: "legend" }, entries.map(([mark, text]) => h("li", { class: mark ? null : "lead" }, mark, text)));
}
const swatch = (cls) => s("svg", { viewBox: "0 0 14 12", "aria-hidden": "true" }, s("rect", { x: 0, y: 1, width: 14, height: 11, rx: 2, class: cls }));
const MARK = {
  measured: () => s("svg", { viewBox: "0 0 14 12", "aria-hidden": "true" }, s("circle", { cx: 7, cy: 6, r: 5, class: "m-dot" })),
  forecast: () => s("svg", { viewBox: "0 0 14 12", "aria-hidden": "true" }, s("path", { d: "M7 0l6 6-6 6-6-6z", class: "f-dot" })),
  band: () => swatch("f-band"),
  whisker: () => s("svg", { viewBox: "0 0 14 12", "aria-hidden": "true" }, s("path", { d: "M0 6h14M1 2v8M13 2v8", class: "m-line" })),
};
