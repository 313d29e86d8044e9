// The table: only the rows in sight are in the document, so ten thousand are as quick as ten.
const ROW_PX = 33;
const ON_PAPER = new Set("state size nodes mbs gbs zero sec f_sec tflops mem lint file".split(" ")); // with the degrees: what fits
const aliases = () => ({ model: "size", procs: "world", gpus: "world", sec_per_it: "sec", mem_gib: "mem", source: "file", forecast: "f_sec", doubts: "lint",
  ...Object.fromEntries(V.columns.flatMap((c) => (c.aliases || []).map((alias) => [alias, c.name]))) });
const LINT_WORD = ["info", "warning", "error"];
const T = { order: [], sort: null, down: false, filter: "", state: "", columns: [], focus: 0, hay: null };

function cellText(name, row) {
  if (name === "sec" || name === "tflops" || name === "mem") return shown(name, row);
  if (name === "file") return has(cell("file", row)) ? place(row) : "";
  const value = cell(name, row);
  if (!has(value)) return "";
  if (name === "lint") return LINT_WORD[value];
  if (name === "state") return stateWord(row);
  return typeof value === "number" && !Number.isInteger(value) ? num(value) : String(value);
}

function compare(name) {
  const values = V.rows[name];
  return (a, b) => {
    const x = values[a], y = values[b];
    if (!has(x) || !has(y)) return has(x) ? -1 : has(y) ? 1 : a - b; // empty cells last, either way
    const order = x < y ? -1 : x > y ? 1 : 0;
    return (T.down ? -order : order) || a - b;
  };
}

function hay(row) {
  T.hay ??= new Array(V.count);
  return (T.hay[row] ??= Object.keys(V.rows).filter((k) => !k.startsWith("f_")).map((k) => cell(k, row)).filter(has).join(" \n").toLowerCase());
}

const TEST = /^([a-z_]+)(<=|>=|!=|=|<|>|~)(.*)$/i;
function tests(text) {
  const known = aliases();
  return text.trim().split(/\s+/).filter(Boolean).map((word) => {
    const match = TEST.exec(word), name = match && (known[match[1].toLowerCase()] || match[1].toLowerCase());
    if (!match || !(name in V.rows)) { const want = word.toLowerCase(); return (row) => hay(row).includes(want); }
    const [, , op, raw] = match, value = raw !== "" && !Number.isNaN(Number(raw)) ? Number(raw) : raw.toLowerCase();
    return (row) => {
      const own = cell(name, row);
      if (!has(own)) return op === "!=" || (op === "=" && raw === "");
      const mine = typeof own === "number" ? own : String(own).toLowerCase(), want = typeof own === "number" ? value : raw.toLowerCase();
      switch (op) {
        case "=": return mine === want;
        case "!=": return mine !== want;
        case "<": return mine < want;
        case "<=": return mine <= want;
        case ">": return mine > want;
        case ">=": return mine >= want;
        default: return String(mine).includes(String(want));
      }
    };
  });
}

function arrange() {
  const all = tests(T.filter), rows = [];
  for (let row = 0; row < V.count; row++) {
    if (T.state && (T.state === "doubted" ? !(cell("lint", row) >= 1) : cell("state", row) !== T.state)) continue;
    if (all.every((test) => test(row))) rows.push(row);
  }
  if (T.sort) rows.sort(compare(T.sort));
  T.order = rows;
  $("table-said").textContent = rows.length === V.count ? plural(V.count, "row") : `${rows.length.toLocaleString("en")} of ${plural(V.count, "row")}`;
}

function tableBody(every) {
  const box = $("grid"), body = $("grid-body");
  const from = every ? 0 : Math.max(0, Math.floor(box.scrollTop / ROW_PX) - 8);
  const to = every ? Math.min(T.order.length, 500) : Math.min(T.order.length, from + Math.ceil(box.clientHeight / ROW_PX) + 24);
  const pad = (rows) => h("tr", { class: "pad", "aria-hidden": "true" }, h("td", { colspan: T.columns.length }, h("div", {})));
  const above = pad(), below = pad();
  above.firstChild.firstChild.style.height = `${from * ROW_PX}px`;
  below.firstChild.firstChild.style.height = `${every ? 0 : (T.order.length - to) * ROW_PX}px`;
  const best = new Set(question() ? question().ranked.slice(0, 1).flatMap((c) => c.rows) : []);
  const made = [];
  for (let at = from; at < to; at++) {
    const row = T.order[at];
    const lost = cell("state", row) === "failed" || cell("state", row) === "planned";
    const tr = h("tr", { "data-row": row, tabindex: at === T.focus ? "0" : "-1", "aria-rowindex": at + 2, class: best.has(row) ? "best" : lost ? "lost" : null });
    for (const { name, number, degree } of T.columns) {
      const text = cellText(name, row);
      if (name === "state") tr.append(h("td", {}, badge(row)));
      else if (name === "lint") tr.append(h("td", {}, text && h("span", { class: `badge ${["info", "warn", "bad"][cell("lint", row)]}`, text })));
      else tr.append(h("td", { class: cls(name, number, degree), text, title: text.length > 18 ? text : null }));
    }
    made.push(tr);
  }
  const held = document.activeElement?.closest?.("#grid-body");
  body.replaceChildren(...(every ? made : [above, ...made, below]));
  if (held) body.querySelector(`tr[tabindex="0"]`)?.focus({ preventScroll: true });
}

const cls = (name, number, degree) => [number && "n", !degree && !ON_PAPER.has(name) && "opt"].filter(Boolean).join(" ") || null;

function tableHead() {
  const head = $("grid-head");
  head.replaceChildren(...T.columns.map(({ name, label, title, number, degree }) => {
    const mine = T.sort === name;
    return h("th", { scope: "col", class: cls(name, number, degree), title: title !== label && title, "aria-sort": mine ? (T.down ? "descending" : "ascending") : "none", "data-column": name },
      h("button", { type: "button", text: label + (mine ? (T.down ? " ↓" : " ↑") : ""), onclick: () => sortBy(name) }));
  }));
}

function sortBy(name) {
  // Once: the direction that puts the better first; again: the other; a third time: as the logbook has it.
  const first = ["tflops", "rate", "lint", "date"].includes(name);
  if (T.sort !== name) { T.sort = name; T.down = first; } else if (T.down === first) T.down = !first; else T.sort = null;
  T.focus = 0;
  arrange(); tableHead(); $("grid").scrollTop = 0; tableBody();
  $("grid-head").querySelector(`[data-column="${name}"] button`).focus();
}

function widths() {
  const look = Math.min(V.count, 400), step = Math.max(1, Math.floor(V.count / look));
  return T.columns.map(({ name, label }) => {
    let longest = label.length + 3;
    for (let row = 0; row < V.count; row += step) longest = Math.max(longest, Math.min(cellText(name, row).length + (name === "state" || name === "lint" ? 3 : 0), 30));
    return Math.round(longest * 7.3 + 18);
  });
}

function drawTable() {
  T.columns = V.columns.filter((c) => c.name in V.rows);
  if (window.innerWidth < 640) {
    // In sight before anybody scrolls.
    const front = ["state", "sec", ...fields((c) => c.degree).map((c) => c.name), "mbs", "mem"].flatMap((name) => T.columns.filter((c) => c.name === name));
    T.columns = [...front, ...T.columns.filter((column) => !front.includes(column))];
  }
  T.hay = null;
  const wide = widths(), states = [...new Set(V.rows.state)];
  const box = $("table-in");
  const keep = $("grid") ? { top: $("grid").scrollTop, left: $("grid").scrollLeft } : null;
  if (!$("grid")) {
    box.replaceChildren(
      h("div", { class: "filters" },
        h("input", { id: "filter", type: "search", placeholder: "Filter: 181B tp=4 mbs>=2 sec<115 oom", "aria-label": "Filter rows by words, or by column as tp=4 or sec<115",
          oninput: (event) => { T.filter = event.target.value; T.focus = 0; arrange(); $("grid").scrollTop = 0; tableBody(); } }),
        h("select", { id: "state", "aria-label": "Show rows of one state", onchange: (event) => { T.state = event.target.value; T.focus = 0; arrange(); $("grid").scrollTop = 0; tableBody(); } })),
      h("div", { class: "grid", id: "grid" },
        h("table", { id: "rows", role: "grid", "aria-label": "All rows" }, h("colgroup", { id: "grid-cols" }), h("thead", {}, h("tr", { id: "grid-head", "aria-rowindex": 1 })), h("tbody", { id: "grid-body" }))),
      h("p", { class: "dim small", text: "Choose a row to see its record, iterations, environment and evidence. An empty cell was empty in the source." }));
    let waiting = false;
    $("grid").addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; tableBody(); });
    }, { passive: true });
    $("grid-body").addEventListener("click", (event) => { const tr = event.target.closest("tr[data-row]"); if (tr) openRow(Number(tr.dataset.row)); });
    $("grid-body").addEventListener("keydown", tableKey);
  }
  $("state").replaceChildren(h("option", { value: "", text: "every state" }), ...states.map((v) => h("option", { value: v, text: v })),
    ...(V.findings.length ? [h("option", { value: "doubted", text: "with doubts" })] : []));
  $("state").value = T.state;
  $("grid-cols").replaceChildren(...wide.map((w) => { const col = h("col", {}); col.style.width = `${w}px`; return col; }));
  $("rows").style.width = `${wide.reduce((a, b) => a + b, 0)}px`;
  $("rows").setAttribute("aria-rowcount", V.count + 1);
  arrange(); tableHead(); tableBody();
  if (keep) { $("grid").scrollTop = keep.top; $("grid").scrollLeft = keep.left; }
}

function tableKey(event) {
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity }[event.key];
  if (event.key === "Enter" || event.key === " ") { event.preventDefault(); openRow(T.order[T.focus]); return; }
  if (step === undefined) return;
  event.preventDefault();
  T.focus = Math.max(0, Math.min(T.order.length - 1, T.focus + step));
  const box = $("grid"), top = T.focus * ROW_PX;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + ROW_PX > box.scrollTop + box.clientHeight - 40) box.scrollTop = top + 80 - box.clientHeight;
  tableBody();
}
window.addEventListener("beforeprint", () => tableBody(true));
window.addEventListener("afterprint", () => tableBody());
