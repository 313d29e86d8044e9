// Any two figures of the rows that the filter leaves, against each other, coloured by a third.
const S = { x: "", y: "", by: "", points: [], waiting: 0 };
const STEPS = 6;
const scale = (values) => { // logarithmic where the largest is far above the smallest
  const low = Math.min(...minmax(values)), high = Math.max(...minmax(values)), log = low > 0 && high / low > 30;
  const at = (v) => (log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low || 1));
  const marks = () => { if (!log) return ticks(low, high, 6); const out = []; for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) for (const m of high / low > 1e4 ? [1] : [1, 3]) if (m * 10 ** e >= low * 0.999 && m * 10 ** e <= high * 1.001) out.push(m * 10 ** e); return out; };
  return { at, marks, log };
};
function minmax(values) { let low = Infinity, high = -Infinity; for (const v of values) { if (v < low) low = v; if (v > high) high = v; } return [low, high]; }
const figures = () => V.columns.filter((c) => c.number && Object.hasOwn(V.rows, c.name) && V.rows[c.name].some((v) => typeof v === "number"));

// Bins of a number, or a colour for each of the commonest words.
function colours(name, rows) {
  if (!Object.hasOwn(V.rows, name)) return { of: () => 0, labels: [] };
  const values = V.rows[name], given = rows.map((row) => values[row]).filter(has), own = new Set(given);
  if (typeof given[0] === "number" && own.size > STEPS) {
    const sorted = given.sort((a, b) => a - b), edges = [...Array(STEPS - 1).keys()].map((i) => sorted[Math.floor(((i + 1) * sorted.length) / STEPS)]);
    const text = (v) => num(v, 3);
    return { of: (row) => (has(values[row]) ? edges.filter((e) => values[row] >= e).length : null), kind: "r", labels: [...Array(STEPS).keys()].map((i) => (i === 0 ? `under ${text(edges[0])}` : i === STEPS - 1 ? `${text(edges.at(-1))} and more` : `${text(edges[i - 1])} to ${text(edges[i])}`)) };
  }
  const often = new Map();
  for (const v of given) often.set(v, (often.get(v) || 0) + 1);
  const words = [...often].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([v]) => v).sort((a, b) => (a < b ? -1 : 1)), place = new Map(words.map((v, i) => [v, i]));
  return { of: (row) => (place.has(values[row]) ? place.get(values[row]) : null), kind: "w", labels: words.map((v) => shortly(String(v), 40)) };
}

function drawScatter() {
  const box = $("scatter-in"), known = figures(), named = (name) => known.find((c) => c.name === name);
  if (known.length < 2) { box.replaceChildren(h("p", { class: "note", text: "It takes two columns of figures." })); return; }
  const usual = (names) => named(names.find(named)) || known[0];
  const x = named(S.x) || usual(["world", "mbs", "tp"]), y = named(S.y) || usual(["tflops", "rate", "sec"].filter((n) => n !== x.name)), by = V.columns.find((c) => c.name === S.by);
  const rows = T.order.filter((row) => typeof cell(x.name, row) === "number" && typeof cell(y.name, row) === "number");
  const choose = (key, label, list, chosen, none) => h("label", {}, label, h("select", { id: `scatter-${key}`, onchange: (e) => { S[key] = e.target.value; drawScatter(); $(`scatter-${key}`).focus(); settle(); } },
    none && h("option", { value: "", text: none }), list.map((c) => h("option", { value: c.name, selected: c === chosen, text: c.title || c.label }))));
  const words = V.columns.filter((c) => Object.hasOwn(V.rows, c.name) && !["notes", "remark", "env", "file"].includes(c.name));
  const paint = colours(by ? by.name : "", rows), mark = (i) => (paint.labels.length ? (i === null ? "s-none" : `s-${paint.kind}${i}`) : "s-w0"), holder = h("div", { class: "scatter" });
  box.replaceChildren(h("div", { class: "ask" }, choose("x", "Across", known, x), choose("y", "Up", known, y), choose("by", "Coloured by", words, by, "nothing")),
    paint.labels.length ? legend([[null, by.label], ...paint.labels.map((text, i) => [s("svg", { viewBox: "0 0 14 12" }, s("path", { d: "M7 6h0", class: `s-dot ${mark(i)}` })), text]), ...(rows.some((r) => paint.of(r) === null) ? [[s("svg", { viewBox: "0 0 14 12" }, s("path", { d: "M7 6h0", class: "s-dot s-none" })), "others, or not said"]] : [])]) : "", holder,
    h("p", { class: "dim small", text: `${plural(rows.length, "row")} of the ${T.order.length.toLocaleString("en")} that the table's filter leaves ${rows.length === 1 ? "says" : "say"} both. Choose a point to open its row.` }));
  if (!rows.length) return;
  picture(holder, (width) => {
    const high = Math.min(420, Math.max(260, width * 0.5)), l = 56, b = 40, sx = scale(rows.map((r) => cell(x.name, r))), sy = scale(rows.map((r) => cell(y.name, r)));
    const px = (v) => l + 10 + sx.at(v) * (width - l - 24), py = (v) => 14 + (1 - sy.at(v)) * (high - b - 26), dots = new Map();
    S.points = rows.map((row) => { const point = [px(cell(x.name, row)), py(cell(y.name, row)), row], cls = mark(paint.of(row)); dots.set(cls, `${dots.get(cls) || ""}M${point[0].toFixed(1)} ${point[1].toFixed(1)}h0`); return point; });
    const ring = s("circle", { r: 7, class: "s-ring", visibility: "hidden" });
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${width} ${high}`, height: high, role: "img", "aria-label": `${y.label} over ${x.label}` },
      sy.marks().map((v) => [s("line", { x1: l, x2: width, y1: py(v), y2: py(v), class: "axis" }), s("text", { x: l - 6, y: py(v) + 4, "text-anchor": "end", class: "dimt", text: num(v, 3) })]),
      sx.marks().map((v) => [s("line", { x1: px(v), x2: px(v), y1: 8, y2: high - b + 2, class: "axis" }), s("text", { x: px(v), y: high - b + 16, "text-anchor": "middle", class: "dimt", text: num(v, 3) })]),
      s("text", { x: width - 4, y: high - 6, "text-anchor": "end", class: "dimt", text: `${x.title || x.label}${sx.log ? ", logarithmic" : ""} →` }), s("text", { x: 0, y: high - 6, class: "dimt", text: `↑ ${y.title || y.label}${sy.log ? ", logarithmic" : ""}` }),
      [...dots].map(([cls, d]) => s("path", { d, class: `s-dot ${cls}` })), ring);
    const near = (event) => {
      const frame = svg.getBoundingClientRect(), ex = ((event.clientX - frame.left) * width) / frame.width, ey = ((event.clientY - frame.top) * high) / frame.height;
      let best = null, least = 18 ** 2;
      for (const point of S.points) { const d = (point[0] - ex) ** 2 + (point[1] - ey) ** 2; if (d < least) { least = d; best = point; } }
      return best;
    };
    svg.addEventListener("pointermove", (event) => {
      const point = near(event);
      ring.setAttribute("visibility", point ? "visible" : "hidden");
      svg.style.cursor = point ? "pointer" : "";
      if (!point) { $("tip").hidden = true; return; }
      put(ring, { cx: point[0], cy: point[1] }, []);
      const row = point[2], line = (c) => `${c.title || c.label}: ${cellText(c.name, row) || "not said"}`;
      showTip(event, [`${cell("size", row) || ""} ${layout(row)}`.trim(), line(x), line(y), by && line(by), place(row)].filter(Boolean).join("\n"));
    });
    svg.addEventListener("pointerleave", () => { $("tip").hidden = true; ring.setAttribute("visibility", "hidden"); });
    svg.addEventListener("click", (event) => { const point = near(event); if (point) openRow(point[2]); });
    return svg;
  });
}
function scatterSoon() { clearTimeout(S.waiting); S.waiting = setTimeout(drawScatter, 250); }
