// Two to four rows side by side: what they were asked, what came of it, what surrounded them; differences marked.
const MOST_PICKED = 4;
const rowOf = (id) => (id ? V.ids.indexOf(id) : -1);
const pickedRows = () => T.picked.map(rowOf).filter((row) => row >= 0);

function pick(id, on) {
  T.picked = on ? [...T.picked.filter((one) => one !== id), id].slice(-MOST_PICKED) : T.picked.filter((one) => one !== id);
  drawPicked(); tableBody(); settle();
}
function drawPicked() {
  const box = $("picked"), rows = pickedRows();
  box.hidden = !rows.length;
  box.replaceChildren(...(rows.length ? [h("span", { class: "dim", text: rows.length === 1 ? "One row chosen: choose another to compare." : `${rows.length} rows chosen` }),
    h("button", { type: "button", id: "compare", disabled: rows.length < 2, text: "Side by side", onclick: openCompare }), h("button", { type: "button", class: "link", text: "None", onclick: () => { T.picked = []; drawPicked(); tableBody(); settle(); } })] : []));
}

const RATIOS = new Set(["sec", "f_sec", "tflops", "rate", "mem", "f_mem", "mfu", "tokens"]);
async function openCompare() {
  const rows = pickedRows(), box = $("row-in"), dialog = $("row");
  SHOWN.open = "compare";
  settle();
  const all = await Promise.all(rows.map((row) => details(row).catch(() => ({ record: {} }))));
  if (SHOWN.open !== "compare") return;
  const groups = [
    ["Figures", V.columns.filter((c) => !c.group && c.number || c.name === "state").map((c) => [c.label, rows.map((row) => cellText(c.name, row)), RATIOS.has(c.name) && rows.map((row) => cell(c.name, row))])],
    ["Asked for", V.columns.filter((c) => c.group).map((c) => [c.title || c.label, rows.map((row) => cellText(c.name, row))])],
    ...[["env", "Environment"], ["versions", "Versions"], ["extra", "More"], ["breakdown", "Timers, s"]].map(([key, name]) =>
      [name, [...new Set(all.flatMap((one) => Object.keys(one.record[key] || {})))].map((k) => [k, all.map((one) => { const v = one.record[key]?.[k]; return has(v) ? flat(v) : ""; })])]),
    ["Where from", [["Place", rows.map(place)], ...["date", "run_id", "record_id"].map((key) => [key.replace("_", " "), all.map((one) => one.record[key] || "")])]],
  ];
  const body = h("tbody", {}), lines = [];
  for (const [name, list] of groups) {
    const kept = list.filter(([, texts]) => texts.some((t) => t !== ""));
    if (kept.length) body.append(h("tr", { class: "of" }, h("th", { colspan: rows.length + 1, text: name })));
    for (const [label, texts, values] of kept) {
      const differ = new Set(texts).size > 1, ratio = (i) => (values && i && has(values[i]) && values[0] ? ` ${values[i] >= values[0] ? "+" : "−"}${percent(Math.abs(values[i] / values[0] - 1))}` : "");
      lines.push([label, ...texts]);
      body.append(h("tr", { class: differ ? "differs" : "same" }, h("th", { scope: "row", text: label }), texts.map((text, i) => h("td", {}, folded(text), differ && ratio(i) && h("span", { class: "dim small ratio", text: ratio(i) })))));
    }
  }
  const heads = rows.map((row) => layout(row)), table = h("table", { class: "beside", id: "beside" }, h("thead", {}, h("tr", {}, h("th", {}), rows.map((row, i) => h("th", { scope: "col" }, h("button", { type: "button", class: "link", text: `${cell("size", row) || ""} ${heads[i]}`.trim(), onclick: () => openRow(row) }))))), body);
  box.replaceChildren(
    h("div", { class: "rowhead" }, h("h2", { id: "row-title", text: "Side by side" }), h("div", {}, closeButton())),
    h("p", { class: "row small" }, h("label", {}, h("input", { type: "checkbox", id: "differing", onchange: (e) => table.classList.toggle("differing", e.target.checked) }), "Differences alone"), h("a", { href: address(), text: "Link to this" }), csvButton("side by side", () => [["", ...heads], ...lines])),
    h("div", { class: "scroll-x" }, table));
  showDialog(dialog);
}
