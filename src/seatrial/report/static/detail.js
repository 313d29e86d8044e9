// One row, opened: its record, what was expected, its iterations, its environment, its evidence.
let unpacked = null;
async function details(row) {
  if (window.seatrialLive) return window.seatrialLive.detail(row);
  unpacked ??= JSON.parse($("details").textContent);
  const size = unpacked.each, chunk = Math.floor(row / size);
  unpacked.made ??= [];
  if (!unpacked.made[chunk]) {
    const bytes = Uint8Array.from(atob(unpacked.chunks[chunk]), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    unpacked.made[chunk] = JSON.parse(await new Response(stream).text());
  }
  return unpacked.made[chunk][row % size];
}

const flat = (value) => (typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(7))) : value !== null && typeof value === "object" ? JSON.stringify(value) : String(value));
function pairs(entries, cls) {
  const list = entries.filter(([, value]) => has(value) && value !== "");
  return list.length ? h("dl", { class: cls }, list.map(([key, value, mark]) => h("div", {}, h("dt", { text: key.replaceAll("_", " ") + (mark ? ` (${mark})` : "") }), h("dd", {}, folded(flat(value)))))) : null;
}

function showDialog(dialog) {
  if (!dialog.open) { if (dialog.showModal) dialog.showModal(); else dialog.setAttribute("open", ""); }
  dialog.scrollTop = 0;
}
const closeButton = () => h("button", { type: "button", id: "row-close", text: "Close", onclick: () => $("row").close() });

async function openRow(row) {
  const box = $("row-in"), dialog = $("row"), id = V.ids[row];
  SHOWN.open = id;
  settle();
  const title = `${cell("size", row) ? `${cell("size", row)} · ` : ""}${layout(row)}`;
  const head = h("div", { class: "rowhead" }, h("div", {}, h("h2", { id: "row-title", text: title }), h("p", { class: "dim small" }, badge(row), ` ${place(row)} · `, h("a", { href: address(), text: "Link to this" }), " · ",
      h("button", { type: "button", class: "link", id: "row-pick", text: T.picked.includes(id) ? "chosen to compare" : "compare", onclick: (event) => { pick(id, !T.picked.includes(id)); event.target.textContent = T.picked.includes(id) ? "chosen to compare" : "compare"; } }))), h("div", {}, closeButton()));
  box.replaceChildren(head, h("p", { class: "dim", text: "…" }));
  showDialog(dialog);
  let all;
  try { all = await details(row); } catch (error) { box.replaceChildren(head, h("p", { class: "note", text: `The record could not be unpacked: ${error.message}. The table's own columns are complete.` })); return; }
  if (SHOWN.open !== id) return; // another was opened meanwhile
  const r = all.record, f = all.forecast, out = [];
  const section = (name, ...nodes) => { const kept = nodes.flat(3).filter(Boolean); if (kept.length) out.push(h("h3", { text: name }), ...kept); };
  out.push(...remarks(row, all.remarks || []));
  if (r.outcome && r.outcome.status !== "ok") section("Outcome", pairs([["status", r.outcome.status], ["rank", r.outcome.rank], ["iteration", r.outcome.iteration], ["phase", r.outcome.phase], ["how often", r.outcome.rate && `${r.outcome.rate[0]} of ${r.outcome.rate[1]}`]]), r.outcome.message && h("p", {}, folded(r.outcome.message)));
  if (r.outcome?.evidence && Object.keys(r.outcome.evidence).length) section("Evidence", Object.entries(r.outcome.evidence).map(([key, value]) => [h("p", { class: "dim small", text: key }), h("pre", { text: Array.isArray(value) && value.every((v) => typeof v === "string") ? value.join("\n") : typeof value === "string" ? value : JSON.stringify(value, null, 1) })]));
  if (all.findings) section("Doubts", all.findings.map((x) => h("div", { class: "finding" }, h("span", { class: `badge ${{ error: "bad", warning: "warn", info: "info" }[x.level]}`, text: x.code }), findingText(x))));
  const inferred = new Set(r.inferred || []), estimated = new Set(r.estimated || []);
  for (const [name, keys] of Object.entries(V.groups)) section(name, pairs(keys.map((key) => [key, r[key], inferred.has(key) ? "worked out" : estimated.has(key) ? "estimated" : ""])));
  if (has(cell("world_from", row))) section("Worked out", pairs([["devices", `${cell("world", row)}, from ${cell("world_from", row)}`], ["tokens/s per device", has(cell("tokens", row)) ? num(cell("tokens", row)) : null]]));
  section("More", pairs(Object.entries(r.extra || {})));
  if (f) {
    section("Forecast", pairs([["seconds", `${num(f.sec)} (90 %: ${num(f.lo, 3)} to ${num(f.hi, 3)})`], ["memory", has(f.mem_gib) ? `${num(f.mem_gib, 3)} GiB (${num(f.mem_lo, 3)} to ${num(f.mem_hi, 3)})` : null], ["device", f.device], ["not compared", f.elsewhere], ["engine", f.engine], ["fits with", has(f.fit_odds) ? percent(f.fit_odds) : null], ["of a device's", has(f.limit_gib) ? `${num(f.limit_gib)} GiB` : null]]),
      f.assumed?.length ? h("p", { class: "dim small", text: `The row does not say ${f.assumed.join(", ")}: ${Object.keys(V.assumed).filter((k) => f.assumed.includes(k)).length ? `${Object.entries(V.assumed).filter(([k]) => f.assumed.includes(k)).map(([k, v]) => `${k} is taken as ${v}`).join(", ")}, the rest as usual` : "the forecast takes what is usual"}.` }) : null);
  }
  const bars = (parts, unit, map) => { const holder = h("div", {}); later.push(() => picture(holder, (width) => { const fr = { left: 0, plot: width - 4, narrow: true, top: 4, height: 40, bottom: 14 }, a = { x: (v) => (v / total(parts)) * (width - 4) };
    return s("svg", { class: "chart", viewBox: `0 0 ${width} 22`, height: 22, role: "img", "aria-label": "parts" }, stack(fr, a, 0, 20, parts, map)); }));
    return [holder, h("ul", { class: "legend" }, Object.entries(parts).filter(([, v]) => v > 0).sort((x, y) => y[1] - x[1]).map(([name, v]) => h("li", {}, swatch(colour(name, map)), `${name.replace("_", " ")} ${num(v, 3)} ${unit}`)))]; };
  const later = [];
  if (f?.parts_s && total(f.parts_s)) section("Where the time goes: forecast", bars(f.parts_s, "s"));
  if (r.breakdown && total(r.breakdown)) section("Where the time went: timers", bars(r.breakdown, "s"));
  if (f?.memory_gib && total(f.memory_gib)) section("Memory: forecast of the fullest device", bars(f.memory_gib, "GiB", MEMORY_COLOUR));
  if (r.memory?.fullest) section(`Memory: measured, fullest is rank ${r.memory.rank}`, r.memory.fullest.parts && total(r.memory.fullest.parts) ? bars(Object.fromEntries(Object.entries(r.memory.fullest.parts).map(([k, v]) => [k, v / 2 ** 30])), "GiB", MEMORY_COLOUR) : null, pairs(Object.entries(r.memory.fullest).filter(([k]) => k !== "parts")), rankStrip(r.memory, later));
  if (r.iterations?.length) section("Iterations", iterations(r.iterations, later, "sec", "Seconds of each iteration", "seconds"), r.measurement && pairs(Object.entries(r.measurement)));
  if (r.iterations?.some((i) => typeof i.loss === "number")) section("Loss", iterations(r.iterations, later, "loss", "Loss of each iteration", "loss"));
  const past = V.histories.find((one) => one.rows.includes(row));
  if (past) section("The same trial over time", timeline(past, row, later));
  const drawnHere = V.pipelines.find((p) => p.row === row) || (window.seatrialLive && (await window.seatrialLive.pipeline(row)));
  if (drawnHere) { const inner = h("div", {}); out.push(h("h3", { text: "Pipeline" }), inner); later.push(() => { inner.append(...pipelineParts(drawnHere).flat(3).filter(Boolean)); for (const [holder, again] of drawn) if (inner.contains(holder)) again(); }); }
  section("Environment", pairs([...Object.entries(r.env || {}), ...Object.entries(r.versions || {}), ...Object.entries(r.host || {})], "long"));
  if (r.printed) section("As printed", pairs(Object.entries(r.printed)));
  out.push(h("details", {}, h("summary", { text: "The whole record" }), h("pre", { text: JSON.stringify(r, null, 1) })));
  box.replaceChildren(head, ...out);
  if (SHOWN.open !== id) return;
  for (const draw of later) draw();
}

// What people said about a row: the last holds, the earlier can be unfolded; with a server behind the page, it can be written.
function remarks(row, said) {
  const box = h("div", { id: "remarks" });
  const show = (list) => {
    const now = list.at(-1) || { text: "", tags: [] }, before = list.slice(0, -1).filter((one) => one.text || one.tags.length);
    const line = (one) => h("div", {}, one.tags.length ? h("p", { class: "row" }, one.tags.map((tag) => h("span", { class: "badge info", text: tag }))) : null, one.text ? h("p", { class: "remark" }, folded(one.text)) : null);
    box.replaceChildren(...[now.text || now.tags.length ? line(now) : null,
      before.length ? h("details", { class: "fold" }, h("summary", { class: "dim small", text: `${plural(before.length, "earlier remark")}` }), before.reverse().map((one) => h("div", {}, h("p", { class: "dim small", text: one.written_at.slice(0, 16).replace("T", " ") }), line(one)))) : null,
      window.seatrialLive ? editor(row, now, show) : null].filter(Boolean));
  };
  show(said);
  return box.childNodes.length ? [h("h3", { text: "Remarks" }), box] : [];
}
function editor(row, now, show) {
  const text = h("textarea", { name: "text", rows: 2, maxlength: 4000, placeholder: "A remark on this row; it is added to the logbook", "aria-label": "Remark" });
  text.value = now.text;
  const tags = h("input", { name: "tags", value: now.tags.join(" "), placeholder: "tags, as keep baseline", "aria-label": "Tags", autocomplete: "off" }), said = h("span", { class: "said", role: "status" });
  return h("form", { class: "remark-form", onsubmit: async (event) => {
    event.preventDefault();
    said.textContent = "…";
    try { show((await window.seatrialLive.remark(row, text.value, tags.value)).remarks); } catch (error) { said.textContent = error.message; }
  } }, text, h("div", { class: "row" }, tags, h("button", { type: "submit", text: "Keep" }), said));
}

function timeline(past, row, later) {
  const holder = h("div", {}), points = past.rows.map((one, i) => ({ row: one, at: past.at[i], versions: past.versions[i], sec: cell("sec", one) }));
  later.push(() => picture(holder, (width) => {
    const high = 130, l = 50, [least, most] = minmax(points.map((p) => p.sec)), pad = (most - least) * 0.15 || most * 0.1, from = Math.max(0, least - pad), top = most + pad;
    const x = (i) => l + 14 + (i / (points.length - 1)) * (width - l - 34), y = (v) => 8 + (1 - (v - from) / (top - from)) * (high - 36);
    return s("svg", { class: "chart", viewBox: `0 0 ${width} ${high}`, height: high, role: "img", "aria-label": "Seconds per iteration over time" },
      ticks(from, top, 4).map((v) => [s("line", { x1: l, x2: width, y1: y(v), y2: y(v), class: "axis" }), s("text", { x: l - 6, y: y(v) + 4, "text-anchor": "end", class: "dimt", text: num(v, 3) })]),
      s("polyline", { points: points.map((p, i) => `${x(i)},${y(p.sec)}`).join(" "), class: "m-line", opacity: 0.5 }),
      points.map((p, i) => opens(tip(s("g", {}, s("circle", { cx: x(i), cy: y(p.sec), r: 10, fill: "transparent" }), s("circle", { cx: x(i), cy: y(p.sec), r: p.row === row ? 6 : 4, class: p.row === row ? "f-bar" : "m-dot" })), `${p.at}${p.versions ? `, ${p.versions}` : ""}\n${num(p.sec, 5)} s per iteration`), p.row)),
      s("text", { x: l, y: high - 6, class: "dimt", text: `seconds per iteration, ${points[0].at} to ${points.at(-1).at}; this row larger` }));
  }));
  const best = Math.min(...points.map((p) => p.sec));
  return [holder, plainTable("history", ["Date", "Session", "Sec/it", "Against the best", "Software that differs"], points.map((p) => ({ cls: p.row === row ? "best" : null,
    cells: [p.at, cell("session", p.row) || "", shown("sec", p.row), p.sec === best ? "" : `+${percent(p.sec / best - 1)}`, p.versions].map((text, i) => h("td", { class: i === 2 || i === 3 ? "n" : null, text })) })), { id: "history" })];
}

function rankStrip(memory, later) {
  const used = (memory.ranks || []).map((x) => x.reserved_peak_gib ?? x.allocated_peak_gib ?? x.rss_peak_gib).filter(has);
  if (used.length < 2) return null;
  const holder = h("div", {}), top = Math.max(...used);
  later.push(() => picture(holder, (width) => { const w = Math.min(28, (width - 10) / used.length); return s("svg", { class: "chart", viewBox: `0 0 ${width} 74`, height: 74, role: "img", "aria-label": `Memory of ${used.length} ranks` },
    used.map((v, i) => tip(s("rect", { x: i * w, y: 56 - (v / top) * 50, width: Math.max(1, w - 1.5), height: (v / top) * 50, class: i === memory.rank ? "f-bar" : "m-bar" }), `rank ${i}: ${num(v)} GiB`)), s("text", { x: 0, y: 71, class: "dimt", text: `by rank, up to ${num(top)} GiB; the fullest marked` })); }));
  return holder;
}

function iterations(list, later, key, name, word) {
  const timed = list.filter((i) => typeof i[key] === "number");
  if (timed.length < 2) return pairs(timed.map((i) => [`step ${i.step}`, i[key]]));
  const holder = h("div", {});
  later.push(() => picture(holder, (width) => {
    const values = timed.map((i) => i[key]), [least, most] = minmax(values), from = key === "sec" ? 0 : least - (most - least) * 0.08, top = most + (most - from) * 0.08 || 1;
    const high = 150, l = 50, x = (i) => l + 8 + (i / (timed.length - 1)) * (width - l - 20), y = (v) => 8 + (1 - (v - from) / (top - from || 1)) * (high - 36);
    const says = (i) => `step ${i.step}: ${num(i[key], 5)}${key === "sec" ? " s" : ""}${i.warmup ? ", warm-up" : ""}${i.outlier ? ", outlier" : ""}${key === "sec" && has(i.loss) ? `\nloss ${num(i.loss, 5)}` : ""}`;
    return s("svg", { class: "chart", viewBox: `0 0 ${width} ${high}`, height: high, role: "img", "aria-label": name },
      ticks(from, top, 4).map((v) => [s("line", { x1: l, x2: width, y1: y(v), y2: y(v), class: "axis" }), s("text", { x: l - 6, y: y(v) + 4, "text-anchor": "end", class: "dimt", text: num(v, 3) })]),
      s("polyline", { points: timed.map((i, k) => `${x(k)},${y(i[key])}`).join(" "), class: "m-line", opacity: 0.5 }),
      timed.map((i, k) => tip(s("circle", { cx: x(k), cy: y(i[key]), r: timed.length > 120 ? 2 : 4, class: i.warmup ? "f-dot" : i.outlier ? "bad-dot" : "m-dot" }), says(i))),
      s("text", { x: l, y: high - 6, class: "dimt", text: `${word} of steps ${timed[0].step} to ${timed.at(-1).step}${timed.some((i) => i.warmup) ? "; open: warm-up, not counted" : ""}` }));
  }));
  return holder;
}
