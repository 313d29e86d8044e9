// The address says what is shown: a link opens the same view, and the browser's back goes where one was.
//     #table?filter=tp%3D4&sort=-tflops&cols=size,sec&rows=ID,ID&open=compare
const SHOWN = { section: "", open: "" }; // open: the id of a row, or compare
const questionKey = (q) => [q.model, q.world, q.source].join("|");
const PARTS = {
  filter: [() => T.filter, (v) => { T.filter = v; }],
  state: [() => T.state, (v) => { T.state = v; }],
  sort: [() => (T.sort ? `${T.down ? "-" : ""}${T.sort}` : ""), (v) => { const name = v.replace(/^-/, ""); T.sort = Object.hasOwn(V.rows, name) ? name : null; T.down = v.startsWith("-"); }],
  cols: [() => (T.chosen || []).join(","), (v) => { const names = v.split(",").filter((name) => V.columns.some((c) => c.name === name)); T.chosen = names.length ? names : null; }],
  q: [() => (A.question ? questionKey(question()) : ""), (v) => { A.question = Math.max(0, v ? V.questions.findIndex((q) => questionKey(q) === v) : 0); }],
  rows: [() => T.picked.join(","), (v) => { T.picked = v.split(",").filter((id) => rowOf(id) >= 0).slice(0, MOST_PICKED); }],
  x: [() => S.x, (v) => { S.x = v; }],
  y: [() => S.y, (v) => { S.y = v; }],
  by: [() => S.by, (v) => { S.by = v; }],
  open: [() => SHOWN.open, (v) => { SHOWN.open = v; }],
};

function address() {
  const parts = Object.entries(PARTS).map(([name, [get]]) => [name, get()]).filter(([, v]) => v);
  return `#${SHOWN.section}${parts.length ? `?${new URLSearchParams(parts)}` : ""}`;
}
// After what a reader did; while typing, the same entry of the history changes.
function settle(typing = false) {
  const now = address();
  if (now === (location.hash || "#")) return;
  try { history[typing ? "replaceState" : "pushState"](null, "", now); } catch { /* a page that may not have an address of its own still works */ }
}
function readAddress() {
  const [section, query] = location.hash.slice(1).split(/\?(.*)/s), said = new URLSearchParams(query || "");
  SHOWN.section = SECTIONS.some(([id]) => id === section) ? section : "";
  for (const [name, [, set]] of Object.entries(PARTS)) set(said.get(name) || "");
}
function openAddressed() {
  const row = rowOf(SHOWN.open);
  if (SHOWN.open === "compare" && T.picked.length > 1) openCompare();
  else if (row >= 0) openRow(row);
  else { SHOWN.open = ""; if ($("row").open) $("row").close(); }
  if (SHOWN.section) $(SHOWN.section)?.scrollIntoView();
}
window.addEventListener("popstate", () => {
  readAddress();
  drawTable(); drawQuestion(); drawScatter();
  openAddressed();
});
