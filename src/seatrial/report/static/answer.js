// The answer first: what is fastest, what it costs, what comes next, and how sure that is.
const A = { question: 0, tokens: "300B", seq: "", price: "" };
const question = () => V.questions[A.question] || null;
const questionLabel = (q) => `${q.model} on ${has(q.nodes) ? plural(q.nodes, "node") : ""}${has(q.nodes) && has(q.world) ? `, ` : ""}${has(q.world) ? `${plural(q.world, "process").replace("processs", "processes")}${q.rows.some((row) => has(cell("world_from", row))) ? "*" : ""}` : ""}${!has(q.nodes) && !has(q.world) ? "a number of nodes nobody said" : ""} · ${q.source} (${plural(q.ranked.length, "layout")})`;

function sequence(row) {
  if (has(cell("seq", row))) return { value: cell("seq", row), said: "" };
  const typed = count(A.seq);
  if (typed) return { value: typed, said: "with the sequence length given above" };
  return { value: null, said: "" };
}
function price(row, sec) {
  const tokens = count(A.tokens), seq = sequence(row), gbs = cell("gbs", row), world = cell("world", row);
  if (!tokens || !seq.value || !gbs) return null;
  const iterations = Math.ceil(Math.ceil(tokens / seq.value) / gbs), hours = (iterations * sec) / 3600;
  return { iterations, days: hours / 24, deviceHours: has(world) ? hours * world : null,
    said: [seq.said, has(world) && has(cell("world_from", row)) && `* devices counted from ${cell("world_from", row)}`].filter(Boolean).join("; ") };
}
const fact = (value, label) => h("div", {}, h("b", { text: value }), h("span", { text: label }));

function drawAnswer() {
  const q = question(), box = $("answer-in");
  if (!q || !q.ranked.length) {
    const why = V.count === 0 ? "The logbook is empty: nothing has been recorded yet."
      : "No row here was measured to a good end with a batch size beside its time, so there is nothing to rank.";
    box.replaceChildren(...[chooser(q), h("p", { class: "note", text: why }), q && asideNote(q)].filter(Boolean));
    return;
  }
  const first = q.ranked[0], row = first.rows[0], second = q.ranked[1];
  const cost = price(row, first.sec_per_it), after = second && price(second.rows[0], second.sec_per_it);
  const money = count(A.price);
  const facts = [fact(`${num(first.sec_per_it, 5)} s`, "per iteration"), has(cell("tflops", row)) && fact(has(cell("file", row)) ? shown("tflops", row) : num(cell("tflops", row)), `TFLOPs${has(cell("formula", row)) ? ` (${cell("formula", row)})` : ""}`),
    has(cell("mfu", row)) && fact(percent(cell("mfu", row)), "MFU"), has(cell("tokens", row)) && fact(num(cell("tokens", row)), `tokens/s per device${has(cell("world_from", row)) ? "*" : ""}`),
    has(cell("mem", row)) && fact(memory(row), "fullest device")];
  const priced = cost ? [fact(num(cost.days, 3), "days"), has(cost.deviceHours) && fact(num(cost.deviceHours, 3), `device-hours${has(cell("world_from", row)) ? "*" : ""}`), fact(num(cost.iterations), "iterations"),
    money && has(cost.deviceHours) && fact(num(cost.deviceHours * money, 3), `in the price's unit${has(cell("world_from", row)) ? "*" : ""}`)] : [];
  box.replaceChildren(chooser(q),
    h("div", { class: "hero" },
      h("div", { class: "tile first" }, h("h3", { text: `Fastest of ${plural(q.ranked.length, "measured layout")}` }),
        h("p", { class: "layout" }, layout(row, { batch: false }), " ", h("small", { text: [has(cell("mbs", row)) && `MBS ${cell("mbs", row)}`, `GBS ${cell("gbs", row)}`, around(row, q.ranked.map((c) => c.rows[0]))].filter(Boolean).join(", ") })),
        h("div", { class: "facts" }, facts),
        forecastLine(row, first),
        h("p", { class: "small" }, h("button", { class: "link", type: "button", text: `Its record: ${place(row)}`, onclick: () => openRow(row) }), first.rows.length > 1 ? ` and ${plural(first.rows.length - 1, "repeat")}` : "")),
      h("div", { class: "tile" }, h("h3", { text: `Price of ${A.tokens} tokens` }),
        cost ? h("div", { class: "facts" }, priced) : h("p", { class: "dim", text: count(A.tokens) ? (has(cell("gbs", row)) ? "The row does not say its sequence length: type it above, and the price stands here." : "The row does not say its batch.") : "Type a number of tokens, as 300B." }),
        cost && h("p", { class: "small dim", text: [`at full batch, without ramp-up, restarts or checkpoints`, cost.said].filter(Boolean).join("; ") }),
        cost && after && h("p", { class: "small", text: `The runner-up would take ${num(after.days - cost.days, 2)} ${num(after.days - cost.days, 2) === "1" ? "day" : "days"} more.` })),
      h("div", { class: "tile" }, h("h3", { text: "How sure" }), sure(q, first, second))),
    h("div", { class: "row small" }, asideNote(q), !window.seatrialLive && h("span", { class: "dim" }, "What if another model, cluster or knob? ", h("code", { text: "seatrial serve" }), " has a planner on this page, and takes remarks.")));
}

// What the forecast had to take for granted, where rows do not say it.
function assumes(rows) {
  const names = [...new Set(rows.flatMap((row) => (cell("f_assumed", row) || "").split(" ").filter(Boolean)))];
  if (!names.length) return "";
  const given = names.filter((name) => name in V.assumed), usual = names.filter((name) => !(name in V.assumed));
  return `; not said, so taken as ${[given.length && given.map((name) => `${name.replace("_", " ")} ${V.assumed[name]}`).join(", "), usual.length && `usual: ${usual.join(", ").replaceAll("_", " ")}`].filter(Boolean).join(", and as ")}`;
}

function forecastLine(row, first) {
  const sec = cell("f_sec", row), other = cell("f_elsewhere", row);
  if (other) return h("p", { class: "small", title: other, text: `Cold forecast: - (${other})` });
  if (!has(sec)) return null;
  const off = sec / first.sec_per_it - 1;
  return h("p", { class: "small", text: `Cold forecast: ${num(sec)} s (90 %: ${num(cell("f_lo", row), 3)} to ${num(cell("f_hi", row), 3)}), ${percent(Math.abs(off))} ${off < 0 ? "under" : "over"} the measurement${assumes([row])}` });
}

function sure(q, first, second) {
  if (!second) return [h("p", { class: "big" }, "Nothing to compare"), h("p", { class: "small dim", text: "One layout was measured: it is the best of one." })];
  const word = { clear: ["good", "Clear lead"], once: ["info", "Ahead, measured once"], open: ["warn", "Ahead, not proven"], tie: ["warn", "A tie"] }[q.verdict];
  const why = {
    clear: `${percent(q.gap)} ahead, and the two do not overlap: repeats or iterations lie within ±${percent(q.noise)}.`,
    once: `${percent(q.gap)} ahead of the next. Not both were repeated or have an interval, so what a repeat would differ by is not known.`,
    open: `${percent(q.gap)} ahead, but the two overlap: repeats or iterations lie within ±${percent(q.noise)}. Measure both again.`,
    tie: `${plural(q.ties, "layout")} within 1 %: nobody can tell them apart by these rows, so memory may decide.`,
  }[q.verdict];
  const next = second.rows[0], apart = others().filter((c) => differs(c.name, [next, first.rows[0]])).map((c) => wording(c, cell(c.name, next))).filter(Boolean);
  return [h("p", { class: "big" }, h("span", { class: `badge ${word[0]}`, text: word[1] })), h("p", { class: "small", text: why }),
    q.verdict === "tie" ? h("ul", { class: "small ties" }, q.ranked.slice(0, Math.min(q.ties, 5)).map((c) => h("li", {}, h("button", { class: "link", type: "button", text: label(c.rows[0], q.ranked.slice(0, Math.min(q.ties, 5))).replaceAll(" × ", "×"), onclick: () => openRow(c.rows[0]) }), h("span", { text: `${num(c.sec_per_it, 5)} s${has(cell("mem", c.rows[0])) ? `, ${memory(c.rows[0])}` : ""}` }))), q.ties > 5 && h("li", { class: "dim", text: `and ${q.ties - 5} more` }))
    : h("p", { class: "small" }, "Runner-up: ", h("button", { class: "link", type: "button", text: [layout(next), ...apart, `${num(second.sec_per_it, 5)}\u00a0s`].join(", "), onclick: () => openRow(next) }))];
}

function asideNote(q) {
  if (!q || !q.set_aside.length) return null;
  return h("span", { class: "dim" }, `${plural(q.set_aside.length, "row")} set aside because the arithmetic cannot be right: `,
    q.set_aside.slice(0, 6).map(([row, code], i) => [i ? ", " : "", h("button", { class: "link", type: "button", text: `${place(row)} (${code})`, onclick: () => openRow(row) })]), q.set_aside.length > 6 ? " …" : "");
}

function chooser(q) {
  if (!V.questions.length) return null;
  const typed = (key) => (event) => { A[key] = event.target.value; drawAnswer(); };
  const field = (key, label, hint) => h("label", {}, label, h("input", { "data-key": key, value: A[key], placeholder: hint, inputmode: "text", onchange: typed(key), size: 6 }));
  const unsaid = q?.ranked.length > 0 && !has(cell("seq", q.ranked[0].rows[0]));
  return h("div", { class: "ask" },
    h("label", {}, "Question", h("select", { id: "question", onchange: (event) => { A.question = Number(event.target.value); drawQuestion(); $("question").focus(); settle(); } },
      V.questions.map((one, i) => h("option", { value: i, selected: i === A.question, text: questionLabel(one) })))),
    field("tokens", "Tokens", "300B"), unsaid && field("seq", "Sequence length", "not said"), field("price", "Price per device-hour", "none"));
}
