// The table: only the rows in sight are in the document, so ten thousand are as quick as ten.
const ROW_PX = 33;
const ON_PAPER = new Set("state size nodes mbs gbs zero sec f_sec tflops mem lint file".split(" ")); // with the degrees: what fits
const LINT_WORD = ["info", "warning", "error"];
const FIGURES = new Set(["f_sec", "f_mem", "rate", "tokens"]); // a count is written without commas, as in a command
const T = { order: [], sort: null, down: false, filter: "", state: "", columns: [], chosen: null, picked: [], focus: 0, hay: null };

function cellText(name, row) {
  if (name === "sec" || name === "tflops" || name === "mem") return shown(name, row);
  if (name === "world") return has(cell("world", row)) ? devices(row) : "";
  if (name === "mfu") return has(cell("mfu", row)) ? percent(cell("mfu", row)) : "";
  if (name === "file") return has(cell("file", row)) ? place(row) : "";
  const value = cell(name, row);
  if (!has(value)) return "";
  if (name === "lint") return LINT_WORD[value];
  if (name === "state") return stateWord(row);
  return typeof value === "number" && (FIGURES.has(name) || !Number.isInteger(value)) ? num(value) : String(value);
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

function arrange() {
  const { tests: all, said } = parsed(T.filter), rows = [];
  for (let row = 0; row < V.count; row++) {
    if (T.state && (T.state === "doubted" ? !(cell("lint", row) >= 1) : cell("state", row) !== T.state)) continue;
    if (all.every((test) => test(row))) rows.push(row);
  }
  if (T.sort) rows.sort(compare(T.sort));
  T.order = rows;
  if (!rows.length && T.filter && !said.length) said.push("no row has all of that; blo* finds words that begin so, notes~loom any letters of a field");
  $("filter-said").textContent = said.length ? `${said.join("; ")}.` : "";
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
      else tr.append(h("td", { class: cls(name, number, degree), text: text.slice(0, LONG), title: name === "world" && has(cell("world_from", row)) ? COUNTED() : text.length > 18 ? shortly(text, LONG) : null }));
    }
    const id = V.ids[row];
    tr.firstChild?.prepend(h("input", { type: "checkbox", class: "pick", checked: T.picked.includes(id), "aria-label": `Compare ${layout(row)}`, tabindex: at === T.focus ? "0" : "-1", onchange: (event) => pick(id, event.target.checked) }));
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
  arrange(); tableHead(); $("grid").scrollTop = 0; tableBody(); settle();
  $("grid-head").querySelector(`[data-column="${name}"] button`).focus();
}

function widths() {
  const look = Math.min(V.count, 400), step = Math.max(1, Math.floor(V.count / look));
  return T.columns.map(({ name, label }, at) => {
    const ticked = at ? 0 : 5; // room for the box that chooses a row
    let longest = label.length + 3 + ticked;
    for (let row = 0; row < V.count; row += step) longest = Math.max(longest, Math.min(cellText(name, row).length + (name === "state" || name === "lint" ? 3 : 0) + ticked, 30 + ticked));
    return Math.round(longest * 7.5 + 24);
  });
}

function drawTable() {
  T.columns = V.columns.filter((c) => Object.hasOwn(V.rows, c.name) && (!T.chosen || T.chosen.includes(c.name)));
  if (!T.columns.length) T.columns = V.columns.filter((c) => c.name === "state");
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
        h("input", { id: "filter", type: "search", placeholder: "Filter: 181B tp>=4 sec<115 machine:jz oom", "aria-label": "Filter rows by words, or by field as tp=4, sec<115 or notes:slow", "aria-describedby": "filter-said",
          oninput: (event) => { T.filter = event.target.value; again(); settle(true); } }),
        h("select", { id: "state", "aria-label": "Show rows of one state", onchange: (event) => { T.state = event.target.value; again(); settle(); } }),
        h("details", { class: "drop", id: "columns" }, h("summary", { text: "Columns" }), h("div", { class: "drop-in", id: "columns-in" })),
        csvButton("rows", tableLines)),
      h("p", { id: "filter-said", class: "said", "aria-live": "polite" }), h("p", { id: "picked", class: "row", hidden: true }),
      h("div", { class: "grid", id: "grid" },
        h("table", { id: "rows", role: "grid", "aria-label": "All rows" }, h("colgroup", { id: "grid-cols" }), h("thead", {}, h("tr", { id: "grid-head", "aria-rowindex": 1 })), h("tbody", { id: "grid-body" }))),
      h("p", { class: "dim small", id: "table-note" }));
    const shut = (event) => { if (event.key === "Escape" || (!event.key && !event.target.closest("#columns") && event.target.isConnected)) $("columns").open = false; };
    document.addEventListener("click", shut);
    $("columns").addEventListener("keydown", shut);
    let waiting = false;
    $("grid").addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; tableBody(); });
    }, { passive: true });
    $("grid-body").addEventListener("click", (event) => { if (event.target.classList.contains("pick")) return; const tr = event.target.closest("tr[data-row]"); if (tr) openRow(Number(tr.dataset.row)); });
    $("grid-body").addEventListener("keydown", tableKey);
  }
  $("state").replaceChildren(h("option", { value: "", text: "every state" }), ...states.map((v) => h("option", { value: v, text: v })),
    ...(V.findings.length ? [h("option", { value: "doubted", text: "with doubts" })] : []));
  $("state").value = T.state;
  if ($("filter").value !== T.filter) $("filter").value = T.filter;
  $("table-note").textContent = `Choose a row to see its record, iterations, environment and evidence; tick two to four to see them side by side. An empty cell was empty in the source. ${COUNTED()}`;
  drawColumns(); drawPicked();
  $("grid-cols").replaceChildren(...wide.map((w) => { const col = h("col", {}); col.style.width = `${w}px`; return col; }));
  $("rows").style.width = `${wide.reduce((a, b) => a + b, 0)}px`;
  $("rows").setAttribute("aria-rowcount", V.count + 1);
  arrange(); tableHead(); tableBody();
  if (keep) { $("grid").scrollTop = keep.top; $("grid").scrollLeft = keep.left; }
}

function again() { T.focus = 0; arrange(); $("grid").scrollTop = 0; tableBody(); scatterSoon(); }

function drawColumns() {
  const all = V.columns.filter((c) => Object.hasOwn(V.rows, c.name)), shownNow = new Set(T.columns.map((c) => c.name));
  const set = (names) => { T.chosen = names; drawTable(); settle(); };
  $("columns-in").replaceChildren(h("button", { type: "button", class: "link", text: "All", onclick: () => set(null) }),
    ...all.map((c) => h("label", {}, h("input", { type: "checkbox", "data-name": c.name, checked: shownNow.has(c.name), onchange: (event) => {
      const names = all.map((one) => one.name).filter((name) => (name === c.name ? event.target.checked : shownNow.has(name)));
      set(names.length === all.length ? null : names);
      $("columns-in").querySelector(`[data-name="${c.name}"]`).focus();
    } }), c.title || c.label)));
}
// The rows that are shown, in their order, under the names that an import reads.
function tableLines() {
  const value = (name, row) => { const text = cell(`${name}_text`, row); return has(text) && !/[A-Za-z]/.test(text) ? text : name === "lint" ? cellText(name, row) : cell(name, row); };
  return [T.columns.map((c) => c.csv || c.name), ...T.order.map((row) => T.columns.map((c) => value(c.name, row)))];
}

function tableKey(event) {
  if (event.target.classList.contains("pick") && event.key === " ") return;
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
