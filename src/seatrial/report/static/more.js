// Pictures over all rows: scaling, one knob at a time, pipelines; then failures and findings.
const M = { scaling: null, knob: 0, pipeline: 0, level: "warning" };

function drawScaling() {
  const box = $("scaling-in"), all = V.scaling;
  if (!all.length) { box.replaceChildren(h("p", { class: "note", text: "No model was measured on two numbers of processes." })); return; }
  // What was asked about, if it was scaled at all.
  const asked = question() && all.findIndex((o) => o.label === `${question().model} · ${question().source}`);
  const at = M.scaling !== null && M.scaling < all.length ? M.scaling : asked > 0 ? asked : 0, one = all[at];
  const points = one.points.map(([world, row]) => ({ world, row, rate: cell("rate", row) })), first = points[0];
  for (const p of points) p.efficiency = p.rate / p.world / (first.rate / first.world);
  const left = h("div", {}), right = h("div", {});
  box.replaceChildren(
    h("div", { class: "ask" }, h("label", {}, "Model", h("select", { onchange: (e) => { M.scaling = Number(e.target.value); drawScaling(); } }, all.map((o, i) => h("option", { value: i, selected: i === at, text: `${o.label} (${plural(o.points.length, "size")})` }))))),
    legend([[MARK.measured(), "best measured row of each size"], [s("svg", { viewBox: "0 0 14 12", class: "chart" }, s("path", { d: "M0 6h14", class: "ideal" })), `ideal, from ${first.world}`]]),
    h("div", { class: "many two" }, h("div", { class: "small-chart" }, h("p", { text: "Samples per second" }), left), h("div", { class: "small-chart" }, h("p", { text: `Efficiency against ${plural(first.world, "process").replace("processs", "processes")}` }), right)),
    h("p", { class: "dim small", text: "Both axes of the first picture are logarithmic. Rows of one model may differ in layout and batch: each point is the best of its size." + (points.some((p) => has(cell("world_from", p.row))) ? ` ${COUNTED()}` : "") }));
  const lg = Math.log2, xs = points.map((p) => lg(p.world)), lowX = Math.min(...xs), highX = Math.max(...xs);
  const sketch = (width, values, ticksY, y, extra, name) => {
    const high = 240, l = 48, b = 28, x = (w) => l + 8 + ((lg(w) - lowX) / (highX - lowX || 1)) * (width - l - 24), yy = (v) => 12 + (1 - y(v)) * (high - b - 20);
    const named = []; // from the largest down, as far as they do not run into each other
    for (const p of [...points].reverse()) if (!named.length || x(named.at(-1).world) - x(p.world) > 34) named.push(p);
    return s("svg", { class: "chart", viewBox: `0 0 ${width} ${high}`, height: high, role: "group", "aria-label": name },
      ticksY.map((v) => [s("line", { x1: l, x2: width, y1: yy(v), y2: yy(v), class: "axis" }), s("text", { x: l - 6, y: yy(v) + 4, "text-anchor": "end", class: "dimt", text: extra.format(v) })]),
      named.map((p) => s("text", { x: x(p.world), y: high - 8, "text-anchor": "middle", class: "dimt", text: p.world })),
      s("path", { d: extra.ideal(x, yy), class: "ideal" }), s("polyline", { points: points.map((p) => `${x(p.world)},${yy(values(p))}`).join(" "), class: "m-line" }),
      points.map((p) => { const g = s("g", { "aria-label": `${p.world} processes: ${num(p.rate)} samples per second, ${percent(p.efficiency, 0)}` }, s("circle", { cx: x(p.world), cy: yy(values(p)), r: 9, fill: "transparent" }), s("circle", { cx: x(p.world), cy: yy(values(p)), r: 4.5, class: "m-dot" }));
        tip(g, `${devices(p.row)} processes\n${num(p.rate)} samples/s, efficiency ${percent(p.efficiency)}\n${layout(p.row)}`); return opens(g, p.row); }));
  };
  const rates = points.map((p) => p.rate), ideal = (w) => (first.rate / first.world) * w, top = Math.max(...rates, ideal(points.at(-1).world)), low = Math.min(...rates);
  let logTicks = []; for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(top)); e++) for (const m of [1, 2, 5]) { const v = m * 10 ** e; if (v >= low * 0.8 && v <= top * 1.15) logTicks.push(v); }
  if (logTicks.length < 3) logTicks = ticks(low * 0.8, top * 1.15, 4);
  picture(left, (w) => sketch(w, (p) => p.rate, logTicks, (v) => (Math.log(v) - Math.log(low * 0.8)) / (Math.log(top * 1.15) - Math.log(low * 0.8)), { format: (v) => num(v, 2), ideal: (x, y) => `M${x(first.world)} ${y(first.rate)}L${x(points.at(-1).world)} ${y(ideal(points.at(-1).world))}` }, "Samples per second over processes"));
  const most = Math.max(1.1, ...points.map((p) => p.efficiency * 1.05));
  picture(right, (w) => sketch(w, (p) => p.efficiency, ticks(0, most, 5), (v) => v / most, { format: (v) => `${Math.round(v * 100)} %`, ideal: (x, y) => `M${x(first.world)} ${y(1)}H${x(points.at(-1).world)}` }, "Efficiency over processes"));
}

function drawKnobs() {
  const box = $("knobs-in"), all = V.knobs;
  if (!all.length) { box.replaceChildren(h("p", { class: "note", text: "No two rows differ in one knob alone." })); return; }
  M.knob = Math.min(M.knob, all.length - 1);
  const knob = all[M.knob], grid = h("div", { class: "many" });
  box.replaceChildren(
    h("div", { class: "chips", role: "group", "aria-label": "Knob" }, all.map((k, i) => h("button", { type: "button", "aria-pressed": String(i === M.knob), text: k.title, onclick: () => { M.knob = i; drawKnobs(); $("knobs-in").querySelectorAll(".chips button")[i].focus(); } }))),
    grid, h("p", { class: "dim small", text: `Each picture holds rows that differ in ${knob.title} alone${{ tp: ", with DP taking up what TP leaves", pp: ", with DP taking up what PP leaves", procs_per_node: ", with DP following" }[knob.name] || ""}.${knob.left_out ? ` ${plural(knob.left_out, "smaller series").replace("seriess", "series")} not shown.` : ""}` }));
  for (const series of knob.series) {
    const rated = series.points.every(([, row]) => has(cell("tflops", row))), y = (row) => (rated ? cell("tflops", row) : cell("rate", row));
    const points = series.points.filter(([, row]) => has(y(row))), values = [...new Set(points.map(([v]) => v))];
    if (values.length < 2) continue;
    const middle = values.map((v) => { const ys = points.filter(([x]) => x === v).map(([, r]) => y(r)).sort((a, b) => a - b); return (ys[Math.floor((ys.length - 1) / 2)] + ys[Math.ceil((ys.length - 1) / 2)]) / 2; });
    const best = middle.indexOf(Math.max(...middle)), worst = middle.indexOf(Math.min(...middle)), gain = middle[best] / middle[worst] - 1;
    const holder = h("div", {});
    grid.append(h("div", { class: "small-chart" }, h("p", {}, h("b", { text: `${values[best]}` }), gain < 0.01 ? " and the others cannot be told apart" : `: ${percent(gain)} over ${values[worst]}`, h("br", {}), h("span", { class: "dim", text: series.label })), holder));
    picture(holder, (width) => {
      const high = 150, l = 40, low = Math.min(...points.map(([, r]) => y(r))), top = Math.max(...points.map(([, r]) => y(r))), pad = (top - low) * 0.25 || top * 0.1;
      const from = Math.max(0, low - pad), x = (i) => l + 20 + (i / Math.max(1, values.length - 1)) * (width - l - 48), yy = (v) => 10 + (1 - (v - from) / (top + pad - from)) * (high - 46);
      return s("svg", { class: "chart", viewBox: `0 0 ${width} ${high}`, height: high, role: "group", "aria-label": `${knob.title}: ${series.label}` },
        ticks(from, top + pad, 4).map((v) => [s("line", { x1: l, x2: width, y1: yy(v), y2: yy(v), class: "axis" }), s("text", { x: l - 6, y: yy(v) + 4, "text-anchor": "end", class: "dimt", text: num(v, 3) })]),
        values.map((v, i) => s("text", { x: x(i), y: high - 20, "text-anchor": values.length === 2 && String(v).length > 10 ? (i ? "end" : "start") : "middle", text: v })), s("text", { x: l, y: high - 4, class: "dimt", text: rated ? "TFLOPs per process" : "samples per second" }),
        // Words have no order that a line could follow.
        values.every((v) => typeof v === "number") && s("polyline", { points: middle.map((v, i) => `${x(i)},${yy(v)}`).join(" "), class: "m-line" }),
        points.map(([v, row]) => { const g = s("g", { "aria-label": `${v}: ${num(y(row))}` }, s("circle", { cx: x(values.indexOf(v)), cy: yy(y(row)), r: 10, fill: "transparent" }), s("circle", { cx: x(values.indexOf(v)), cy: yy(y(row)), r: 4.5, class: "m-dot" }));
          tip(g, `${knob.title} ${v}\n${num(y(row))} ${rated ? "TFLOPs" : "samples per second"}${has(cell("sec", row)) ? `, ${shown("sec", row)} s` : ""}\n${place(row)}`); return opens(g, row); }));
    });
  }
}

const span = (letter) => V.spans[letter] || V.spans.x; // its class and its word
function gantt(made, title) {
  const holder = h("div", {}), letters = new Set(made.spans.flat().map(([k]) => k));
  picture(holder, (width) => {
    const l = 74, line = made.ranks.length > 16 ? 15 : 22, high = 8 + made.ranks.length * line + 24, x = (t) => l + (t / made.total_s) * (width - l - 2);
    return s("svg", { class: "chart", viewBox: `0 0 ${width} ${high}`, height: high, role: "img", "aria-label": title },
      made.ranks.map((name, i) => [s("rect", { x: l, y: 4 + i * line, width: width - l - 2, height: line - 3, fill: "var(--soft)" }), s("text", { x: 0, y: 4 + i * line + line / 2 + 2, class: "dimt", text: name }),
        made.spans[i].map(([kind, micro, chunk, from, to]) => { const w = x(to) - x(from), g = s("g", {}, s("rect", { x: x(from), y: 4 + i * line, width: Math.max(0.5, w), height: line - 3, class: `p-${span(kind)[0]}${w > 3 ? " seg" : ""}`, opacity: chunk ? 0.6 : 1 }));
          if (has(micro) && w > 7 * String(micro).length + 4 && line > 18) g.append(s("text", { x: x(from) + w / 2, y: 4 + i * line + line / 2 + 2, "text-anchor": "middle", class: "in-bar", text: micro }));
          return tip(g, `${span(kind)[1]}${has(micro) ? ` of micro-batch ${micro}` : ""}${chunk ? `, virtual stage ${chunk}` : ""}\n${num(from)} to ${num(to)} s`); })]),
      (width < 520 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]).map((t) => s("text", { x: x(made.total_s * t), y: high - 6, "text-anchor": t === 0 ? "start" : t === 1 ? "end" : "middle", class: "dimt", text: `${num(made.total_s * t, 3)} s` })));
  });
  return [h("h3", { text: title }), legend([...letters].map((k) => [swatch(`p-${span(k)[0]}`), span(k)[1]])), holder];
}
function pipelineParts(one) {
  const f = one.forecast, m = one.measured;
  return [f && gantt(f, `Forecast: ${f.schedule}, ${f.drawn < f.microbatches ? `the first ${f.drawn} of ${f.microbatches} micro-batches` : plural(f.microbatches, "micro-batch").replace("batchs", "batches")}; grey is the bubble`),
    m && gantt(m, `Measured: step ${m.step}, one rank per stage, by the run's own timers`),
    f && !m && h("p", { class: "dim small", text: "No measured timeline: this row has no trace (recipe.trace_steps makes one)." }),
    m && !f && h("p", { class: "dim small", text: "No forecast: the trial names no cluster (--cluster does)." })];
}
function drawPipeline() {
  const box = $("pipeline-in"), all = V.pipelines;
  if (!all.length) { box.replaceChildren(h("p", { class: "note", text: "No pipeline to draw: that takes more than one stage, and a machine to forecast on (--cluster) or a traced step." })); return; }
  M.pipeline = Math.min(M.pipeline, all.length - 1);
  const one = all[M.pipeline], inner = h("div", {});
  box.replaceChildren(h("div", { class: "ask" }, h("label", {}, "Trial", h("select", { id: "pipeline-of", onchange: (e) => { M.pipeline = Number(e.target.value); drawPipeline(); $("pipeline-of").focus(); } },
    all.map((p, i) => h("option", { value: i, selected: i === M.pipeline, text: `${cell("size", p.row) || ""} ${layout(p.row)}${p.measured ? " (traced)" : ""} · ${place(p.row)}` })))), h("button", { type: "button", class: "link", text: "its record", onclick: () => openRow(one.row) })), inner);
  inner.append(...pipelineParts(one).flat(3).filter(Boolean));
  for (const [holder, again] of drawn) if (inner.contains(holder)) again();
}

function drawFailures() {
  const box = $("failures-in"), all = V.failures;
  if (!all.length) { box.replaceChildren(h("p", { class: "note", text: "Nothing failed." })); return; }
  const counts = {};
  for (const f of all) counts[f.status] = (counts[f.status] || 0) + 1;
  const list = h("div", { class: "cards" });
  box.replaceChildren(h("p", { class: "dim", text: Object.entries(counts).map(([k, n]) => `${n} × ${k.replace("_", " ")}`).join(", ") }), list);
  const show = (some) => list.append(...some.map((f) => h("div", { class: "card" },
    h("div", { class: "row" }, badge(f.row), f.rate && h("span", { class: "badge", text: `${f.rate[0]} of ${f.rate[1]} repeats` }), h("button", { type: "button", class: "link", text: `${cell("size", f.row) || ""} ${layout(f.row)}`, onclick: () => openRow(f.row) })),
    f.message && h("p", {}, folded(f.message)),
    h("p", { class: "dim small", text: [has(f.rank) && `rank ${f.rank}`, has(f.iteration) && `iteration ${f.iteration}`, f.phase && `in ${f.phase}`, has(cell("nodes", f.row)) && plural(cell("nodes", f.row), "node"), place(f.row)].filter(Boolean).join(" · ") }))));
  show(all.slice(0, 60));
  if (all.length > 60) box.append(h("p", {}, h("button", { type: "button", text: `Show all ${all.length}`, onclick: (e) => { show(all.slice(60)); e.target.remove(); } })));
}

function drawFindings() {
  const box = $("findings-in"), all = V.findings;
  if (!all.length) { box.replaceChildren(h("p", { class: "note", text: !V.count ? "No rows yet." : V.linted ? `Rows were ${V.linted}.`.replace("were no imported rows", "are all of our own runs: lint reads imported tables") : "Nothing was found in the imported rows." })); return; }
  const levels = ["error", "warning", "info"], at = levels.indexOf(M.level), groups = new Map();
  for (const f of all) if (levels.indexOf(f.level) <= at) { if (!groups.has(f.code)) groups.set(f.code, []); groups.get(f.code).push(f); }
  const n = (level) => all.filter((f) => f.level === level).length;
  box.replaceChildren(
    h("div", { class: "chips", role: "group", "aria-label": "At least" }, levels.map((level) => h("button", { type: "button", "aria-pressed": String(level === M.level), text: `${level === "error" ? "errors" : level === "warning" ? "+ warnings" : "+ remarks"} (${n(level)})`, onclick: () => { M.level = level; drawFindings(); } }))),
    ...[...groups].map(([code, list]) => h("details", { open: groups.size <= 3 }, h("summary", {}, h("span", { class: `badge ${{ error: "bad", warning: "warn", info: "info" }[list[0].level]}`, text: list[0].level }), " ", h("b", { text: code }), ` · ${list.length}`),
      ...list.slice(0, 200).map((f) => h("div", { class: "finding" }, has(f.row) ? h("button", { type: "button", class: "link where", text: `${f.file}:${f.line}`, onclick: () => openRow(f.row) }) : h("span", { class: "where", text: `${f.file}${f.line ? `:${f.line}` : ""}` }), findingText(f))))));
}
const findingText = (f) => h("span", {}, folded(f.message), f.proposed && h("span", { class: "dim", text: ` (${f.column}: ${f.printed} → ${f.proposed})` }));
