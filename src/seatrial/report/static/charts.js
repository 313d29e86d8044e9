// Pictures that follow the question: time against layout, memory against capacity, where the time goes.
const MOST_BARS = 18;
const COLOUR = {
  matmul: "c1", forward: "c1", attention: "c2", backward: "c2", logits: "c3", loss: "c3", recompute: "c4", checkpoint: "c13", memory: "c4", embedding: "c4",
  tensor: "c5", tp_comm: "c5", exchange: "c14", cp_comm: "c14", ep_comm: "c16", p2p: "c6", pp_send: "c6", gradients: "c7", grad_reduce: "c7", weight_gather: "c15", bubble: "c8", pp_wait: "c8",
  experts: "c2", dispatch: "c16", wait: "c8",
  optimizer: "c9", accumulate: "c10", launch: "c11", fixed: "c12", data: "c12",
  weights: "c1", activations: "c6", working: "c7", slack: "c8", communication: "c11", context: "c12", buffers: "c10", learned: "c13",
};
const MEMORY_COLOUR = { ...COLOUR, gradients: "c2", logits: "c5" };
const PART_SAYS = {
  matmul: "GEMMs of the layers", attention: "scores, softmax, weighted sum", logits: "the GEMM over the vocabulary, and the loss", memory: "norms, activations, dropout",
  tensor: "collectives of tensor parallelism", exchange: "keys and values between the ranks of a sequence", p2p: "between pipeline stages", bubble: "waiting while the pipeline fills and drains", gradients: "gradients over the replicas",
  optimizer: "the optimizer", accumulate: "adding up micro-batches", launch: "waiting for the host to start kernels", fixed: "what every iteration pays once",
  pp_wait: "waiting for another stage", pp_send: "sending to another stage", grad_reduce: "gradients over the replicas", tp_comm: "collectives of tensor parallelism",
  cp_comm: "keys and values between the ranks of a sequence", weight_gather: "weights from the replicas that keep them",
  experts: "GEMMs of the chosen experts", dispatch: "tokens to their experts and back", wait: "waiting for the fullest expert",
  slack: "kept by the allocator, or between blocks", context: "driver, runtime, communication library",
};
const colour = (name, map = COLOUR) => `p-${map[name] || "c13"} seg`;

// One line of a picture: the label beside the bar on a desk, above it on a phone.
function frame(width, lines, { line = 34, top = 24, bottom = 26, right = 96 } = {}) {
  const narrow = width < 620, left = narrow ? 0 : Math.min(300, Math.round(width * 0.28));
  const above = narrow ? 24 : 0, high = line + above;
  return { narrow, left, right: narrow ? 6 : right, high, top, bottom, width, height: top + lines * high + bottom, plot: width - left - (narrow ? 6 : right),
    y: (i) => top + i * high + above + line / 2 };
}
function axis(f, low, high, unit, format = num) {
  const x = (v) => f.left + ((v - low) / (high - low || 1)) * f.plot;
  const bottom = f.height - f.bottom;
  const marks = ticks(low, high, f.narrow ? 4 : 7).map((v) => [s("line", { x1: x(v), x2: x(v), y1: f.top - 4, y2: bottom, class: "axis" }),
    s("text", { x: x(v), y: bottom + 16, "text-anchor": "middle", class: "dimt", text: format(v, 3) })]);
  return { x, nodes: [marks, s("text", { x: f.left, y: 12, class: "dimt", text: unit })] };
}
function rowLabel(f, i, row, text) {
  const y = f.y(i), fit = (t, px) => (t.length * 6.4 > px ? `${t.slice(0, Math.max(4, Math.floor(px / 6.4) - 1))}…` : t);
  return f.narrow
    ? s("text", { x: 0, y: y - 19, class: "lab" }, fit(text.replaceAll(" × ", "×"), f.width - 126))
    : s("text", { x: 0, y: y + 4, class: "lab", text: fit(text, f.left - 12) });
}
function sideNote(f, i, text) {
  return f.narrow ? s("text", { x: f.width - 4, y: f.y(i) - 19, "text-anchor": "end", class: "dimt", text }) : s("text", { x: f.width, y: f.y(i) + 4, "text-anchor": "end", class: "dimt", text });
}

function drawTime() {
  const q = question(), box = $("time-in");
  const all = q ? q.ranked : [], list = all.slice(0, MOST_BARS);
  if (!list.length) { box.replaceChildren(h("p", { class: "note", text: "No measured layouts in this question." })); return; }
  const base = cell("gbs", list[0].rows[0]);
  const sameBatch = list.every((c) => cell("gbs", c.rows[0]) === base);
  const lines = list.map((c) => {
    const row = c.rows[0], scale = base / cell("gbs", row), f = (name) => (has(cell(name, row)) ? cell(name, row) * scale : null);
    return { row, c, sec: c.sec_per_it * scale, lo: c.lo_s === null ? null : c.lo_s * scale, hi: c.hi_s === null ? null : c.hi_s * scale, fs: f("f_sec"), fl: f("f_lo"), fh: f("f_hi"), repeats: c.rows };
  });
  const ends = lines.flatMap((l) => [l.sec, l.lo, l.hi, l.fs, l.fl, l.fh]).filter(has);
  const low = Math.min(...ends), high = Math.max(...ends), pad = (high - low) * 0.06 || high * 0.05;
  const from = low < (high - low) * 1.2 ? 0 : low - pad;
  const anyForecast = lines.some((l) => has(l.fs)), anyInterval = lines.some((l) => has(l.lo) && l.hi > l.lo);
  const holder = h("div", {});
  box.replaceChildren(
    legend([layoutLegend(), [MARK.measured(), "measured"], ...(anyInterval ? [[MARK.whisker(), "its repeats or its interval"]] : []), ...(anyForecast ? [[MARK.forecast(), "forecast"], [MARK.band(), "its 90 % interval"]] : [])]),
    holder,
    h("p", { class: "dim small", text: [sameBatch ? "" : "Batches differ: times are brought to the same number of samples.", from > 0 ? "The axis does not begin at 0." : "", all.length > list.length ? `The ${list.length} fastest of ${all.length} layouts.` : "", anyForecast ? "The forecast knows the machine's data sheet and none of these rows." : "No forecast: name the machine with --cluster, and it stands beside each measurement."].filter(Boolean).join(" ") }));
  picture(holder, (width) => {
    const f = frame(width, lines.length), a = axis(f, from, high + pad, sameBatch ? "seconds per iteration" : `seconds for ${num(base)} samples`);
    return s("svg", { class: "chart", viewBox: `0 0 ${width} ${f.height}`, height: f.height, role: "group", "aria-label": "Time against layout" }, a.nodes, lines.map((l, i) => {
      const y = f.y(i), g = s("g", { "aria-label": `${layout(l.row)}: ${num(l.sec)} seconds${has(l.fs) ? `, forecast ${num(l.fs)}` : ""}` });
      g.append(s("rect", { x: 0, y: y - f.high / 2, width, height: f.high, fill: "transparent" }), rowLabel(f, i, l.row, label(l.row)));
      if (has(l.fl)) g.append(s("rect", { x: a.x(l.fl), y: y - 5, width: Math.max(1, a.x(l.fh) - a.x(l.fl)), height: 10, rx: 3, class: "f-band" }));
      if (has(l.fs)) { const x = a.x(l.fs); g.append(s("path", { d: `M${x} ${y - 6.5}l6.5 6.5-6.5 6.5-6.5-6.5z`, class: "f-dot" })); }
      if (has(l.lo) && l.hi > l.lo) g.append(s("path", { d: `M${a.x(l.lo)} ${y}H${a.x(l.hi)}M${a.x(l.lo)} ${y - 5}v10M${a.x(l.hi)} ${y - 5}v10`, class: "m-line" }));
      g.append(s("circle", { cx: a.x(l.sec), cy: y, r: 5.5, class: "m-dot" }), sideNote(f, i, `${num(l.sec)} s${i ? ` (+${percent(l.sec / lines[0].sec - 1)})` : ""}`));
      tip(g, `${layout(l.row)}\nmeasured ${num(l.sec, 5)} s${has(l.lo) && l.hi > l.lo ? ` (${num(l.lo)} to ${num(l.hi)})` : ""}${l.repeats.length > 1 ? `, ${l.repeats.length} rows` : ""}${has(l.fs) ? `\nforecast ${num(l.fs)} s (${num(l.fl, 3)} to ${num(l.fh, 3)})` : ""}\n${place(l.row)}`);
      return opens(g, l.row);
    }));
  });
}

// CP is said where a sequence is divided; a row that does not name it leaves sequences whole.
const degreesSaid = () => fields((c) => c.degree && (c.name !== "cp" || (V.rows.cp || []).some((size) => size > 1)));

// What the rows of a question differ in, and only that; where nothing else tells two apart, the session they ran in.
function label(row, among = question() ? question().ranked.slice(0, MOST_BARS) : []) {
  const beside = [row, ...among.map((c) => c.rows[0])];
  const differing = [...fields((c) => c.name === "gbs"), ...others(), ...splits().filter((c) => !c.degree)].filter((c) => differs(c.name, beside));
  const degrees = (r) => degreesSaid().map((c) => cell(c.name, r) ?? (c.name === "cp" ? 1 : "?")).join(" × ");
  const words = (r) => [degrees(r), ...[...fields((c) => c.name === "mbs"), ...differing].map((c) => wording(c, cell(c.name, r)))].filter(Boolean).join(", ");
  const mine = words(row), session = cell("session", row);
  return has(session) && beside.some((r) => cell("session", r) !== session && words(r) === mine) ? `${mine}, ${session}` : mine;
}

const layoutLegend = () => [null, `Layouts: ${degreesSaid().map((c) => c.label).join(" × ")}`];

function stack(f, a, y, high, parts, map) {
  let at = 0;
  return Object.entries(parts).filter(([, v]) => v > 0).map(([name, value]) => {
    const x = a.x(at), w = a.x(at + value) - x;
    at += value;
    return tip(s("rect", { x, y, width: Math.max(0.4, w), height: high, class: colour(name, map) }), `${name}: ${num(value)}${PART_SAYS[name] ? `\n${PART_SAYS[name]}` : ""}`);
  });
}
const total = (parts) => Object.values(parts).reduce((a, b) => a + b, 0);
function partsLegend(lists, map, first = []) {
  const seen = new Map();
  for (const parts of lists) for (const [name, value] of Object.entries(parts || {})) if (value > 0) seen.set(name, (seen.get(name) || 0) + value);
  const all = [...seen.values()].reduce((a, b) => a + b, 0);
  return legend([...first, ...[...seen].filter(([, v]) => v > all * 0.002).sort((a, b) => b[1] - a[1]).map(([name]) => [swatch(colour(name, map)), name.replace("_", " ")])]);
}

function drawParts() {
  const q = question(), box = $("parts-in");
  const rows = q ? [...new Set([...q.ranked.map((c) => c.rows[0]), ...q.rows])].filter((r) => V.parts[r] && (V.parts[r].time || V.parts[r].breakdown)).slice(0, 12) : [];
  if (!rows.length) { box.replaceChildren(h("p", { class: "note", text: "Nothing says where the time of these rows went: neither timers of a run of ours, nor a machine to forecast on (--cluster)." })); return; }
  const lists = rows.flatMap((r) => [V.parts[r].time, V.parts[r].breakdown]).filter(Boolean), high = Math.max(...lists.map(total), ...rows.map((r) => cell("sec", r) || 0));
  const holder = h("div", {});
  const forecast = rows.map((r) => V.parts[r].time).filter(Boolean), timers = rows.map((r) => V.parts[r].breakdown).filter(Boolean);
  // The planner and the run's timers have names of their own, and share colours where they mean the same work.
  const keys = forecast.length && timers.length ? [legend([layoutLegend()]), partsLegend(forecast, undefined, [[null, "Forecast:"]]), partsLegend(timers, undefined, [[null, "Measured:"]])] : [partsLegend(lists, undefined, [layoutLegend()])];
  box.replaceChildren(...keys, holder, h("p", { class: "dim small", text: `${rows.some((r) => V.parts[r].time && V.parts[r].breakdown) ? "Upper bar: forecast; lower: the run's own timers, the mean over its ranks. " : rows.some((r) => V.parts[r].time) ? "Forecast, by part. " : "The runs' own timers, the mean over their ranks. "}${rows.some((r) => V.parts[r].time && has(cell("sec", r))) ? "The tick is the measured time." : ""}` }));
  picture(holder, (width) => {
    const f = frame(width, rows.length, { line: 36 }), a = axis(f, 0, high * 1.02, "seconds per iteration");
    return s("svg", { class: "chart", viewBox: `0 0 ${width} ${f.height}`, height: f.height, role: "group", "aria-label": "Where the time goes" }, a.nodes, rows.map((row, i) => {
      const y = f.y(i), p = V.parts[row], both = p.time && p.breakdown, g = s("g", { "aria-label": label(row) });
      g.append(s("rect", { x: 0, y: y - f.high / 2, width, height: f.high, fill: "transparent" }), rowLabel(f, i, row, label(row)));
      if (p.time) g.append(...stack(f, a, both ? y - 13 : y - 9, both ? 12 : 18, p.time));
      if (p.breakdown) g.append(...stack(f, a, both ? y + 1 : y - 9, both ? 12 : 18, p.breakdown));
      if (p.time && has(cell("sec", row))) g.append(s("line", { x1: a.x(cell("sec", row)), x2: a.x(cell("sec", row)), y1: y - 13, y2: y + 13, class: "m-line", "stroke-width": 3 }));
      g.append(sideNote(f, i, has(cell("sec", row)) ? `${num(cell("sec", row))} s` : `forecast ${num(cell("f_sec", row))} s`));
      return opens(g, row);
    }));
  });
}

function drawMemory() {
  const q = question(), box = $("memory-in");
  const rows = q ? [...new Set([...q.ranked.map((c) => c.rows[0]), ...q.rows])].filter((r) => has(cell("mem", r)) || V.parts[r]?.memory || V.parts[r]?.held).slice(0, MOST_BARS) : [];
  if (!rows.length) { box.replaceChildren(h("p", { class: "note", text: "No row of this question says how much memory it took." })); return; }
  const part = (r) => V.parts[r] || {}, limits = rows.map((r) => cell("limit", r)).filter(has), limit = limits.length ? Math.max(...limits) : null;
  const high = Math.max(...rows.flatMap((r) => [cell("mem", r), part(r).memory && total(part(r).memory), cell("f_mem_hi", r)]).filter(has), limit || 0);
  const lists = rows.flatMap((r) => [part(r).memory, part(r).held?.parts]).filter(Boolean), holder = h("div", {});
  box.replaceChildren(
    partsLegend(lists, MEMORY_COLOUR, [layoutLegend(), [swatch("h-bar"), "measured, fullest device"]]), holder,
    h("p", { class: "dim small", text: [limit ? `The red line is what a device has to give: ${num(limit)} GiB.` : "No capacity line: these rows do not name their machine (--cluster does).", rows.some((r) => part(r).memory) ? `Upper bar: forecast, by part${assumes(rows)}.` : ""].filter(Boolean).join(" ") }));
  picture(holder, (width) => {
    const f = frame(width, rows.length, { line: 36, right: 150 }), a = axis(f, 0, high * 1.03, "GiB");
    const nodes = rows.map((row, i) => {
      const y = f.y(i), p = part(row), both = p.memory && (has(cell("mem", row)) || p.held), g = s("g", { "aria-label": `${label(row)}: ${has(cell("mem", row)) ? `${num(cell("mem", row))} GiB` : "not measured"}` });
      g.append(s("rect", { x: 0, y: y - f.high / 2, width, height: f.high, fill: "transparent" }), rowLabel(f, i, row, label(row)));
      if (p.memory) {
        g.append(...stack(f, a, both ? y - 13 : y - 9, both ? 12 : 18, p.memory, MEMORY_COLOUR));
        const lo = cell("f_mem_lo", row), hi = cell("f_mem_hi", row), m = both ? y - 7 : y;
        if (has(lo)) g.append(s("path", { d: `M${a.x(lo)} ${m}H${a.x(hi)}M${a.x(lo)} ${m - 3}v6M${a.x(hi)} ${m - 3}v6`, class: "f-line", fill: "none" }));
      }
      const top = both ? y + 1 : y - 9, tall = both ? 12 : 18;
      if (has(cell("mem", row))) g.append(tip(s("rect", { x: a.x(0), y: top, width: Math.max(1, a.x(cell("mem", row)) - a.x(0)), height: tall, class: "h-bar", opacity: p.held?.parts ? 0.35 : 1 }), `measured: ${memory(row)}`));
      if (p.held?.parts) g.append(...stack(f, a, top, tall, p.held.parts, MEMORY_COLOUR));
      const ranks = p.held?.ranks?.length;
      g.append(sideNote(f, i, has(cell("mem", row)) ? `${memory(row)}${ranks ? `, rank ${p.held.rank} of ${ranks}` : ""}` : `forecast ${num(cell("f_mem", row), 3)}`));
      return opens(g, row);
    });
    if (limit) nodes.unshift(s("line", { x1: a.x(limit), x2: a.x(limit), y1: f.top - 4, y2: f.height - f.bottom, class: "limit" }), s("text", { x: Math.min(a.x(limit), width - 60), y: 12, "text-anchor": "middle", class: "limitt", text: `${num(limit)} GiB` }));
    return s("svg", { class: "chart", viewBox: `0 0 ${width} ${f.height}`, height: f.height, role: "group", "aria-label": "Memory against capacity" }, a.nodes, nodes);
  });
}
