// The page while a sweep runs: rows as they come, what is running, and the planner asked.
const L = { version: 0, failed: 0 };
async function ask(path, sent) {
  const answer = await fetch(path, { credentials: "same-origin", ...(sent && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(sent) }) });
  const body = answer.headers.get("Content-Type")?.includes("json") ? await answer.json() : { error: (await answer.text()).trim() };
  if (!answer.ok) throw new Error(body.error || answer.statusText);
  return body;
}
window.seatrialLive = {
  detail: (row) => ask(`/api/record?id=${encodeURIComponent(V.ids[row])}`),
  remark: async (row, text, tags) => { const answer = await ask("/api/remark", { id: V.ids[row], text, tags }); news(true); return answer; },
  pipeline: (row) => ask(`/api/pipeline?id=${encodeURIComponent(V.ids[row])}`).catch(() => null),
};
const clock = (seconds) => { const t = Math.round(seconds), m = Math.floor(t / 60); return m >= 60 ? `${Math.floor(m / 60)}:${String(m % 60).padStart(2, "0")}:${String(t % 60).padStart(2, "0")}` : `${m}:${String(t % 60).padStart(2, "0")}`; };

function say(word, kind) { const box = $("live"); box.hidden = false; box.className = `badge ${kind}`; box.textContent = word; }

async function news(once = false) {
  try {
    const answer = await ask(`/api/view?since=${L.version}`);
    if (answer.view) { L.version = answer.version; drawAll(answer.view); }
    L.failed = 0;
    say("live", "good");
  } catch (error) {
    L.failed += 1;
    say(L.failed > 2 ? "the server is gone" : "…", "warn");
  }
  if (!once) setTimeout(news, L.failed ? Math.min(10000, 700 * 2 ** L.failed) : document.hidden ? 3000 : 500);
}

async function now() {
  try { const answer = await ask("/api/running"); drawRunning(answer.running, answer.sweeps); } catch { /* the badge says it */ }
  setTimeout(now, document.hidden ? 5000 : 1000);
}

function progressBar(value, most, label) {
  const bar = h("i", {});
  bar.style.width = `${most ? Math.min(100, (100 * value) / most) : 0}%`;
  return h("div", { class: "bar", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": most || 0, "aria-valuenow": value, "aria-label": label }, bar);
}

const ENDED = { done: ["done", "good"], spent: ["budget spent", "warn"], stopped: ["stopped", "warn"] };
function sweepCard(s) {
  const gone = s.state === "running" && s.quiet_s > 30;
  const [word, kind] = ENDED[s.state] || (gone ? [`no sign of it for ${clock(s.quiet_s)}`, "warn"] : ["running", "good"]);
  const counts = Object.entries(s.counts).map(([outcome, n]) => `${n} ${outcome}`).join(", ");
  const facts = [counts, s.best && `best ${s.best}${has(s.best_s) ? `: ${num(s.best_s)} s per iteration` : ""}`, `${clock(s.spent_s)} spent in trials${has(s.budget_s) ? ` of a budget of ${clock(s.budget_s)}` : ""}`, s.note];
  return h("div", { class: "card sweep", "data-session": s.session },
    h("div", { class: "head" },
      h("div", { class: "row" }, h("span", { class: `badge ${kind}`, text: word }), h("b", { text: `${s.kind} ${s.name}` })),
      h("p", { class: "left" }, h("b", { text: has(s.total) ? `${s.done} of ${s.total}` : `${s.done}` }), " trials", s.state === "running" && !gone && h("span", { class: "dim", text: has(s.left_s) ? ` · about ${clock(s.left_s)} left` : " · time left is known after the first" }))),
    progressBar(s.done, s.total, `trials of ${s.kind} ${s.name}`),
    has(s.budget_s) && h("div", { class: "thin" }, progressBar(Math.min(s.spent_s, s.budget_s), s.budget_s, "budget spent")),
    h("p", { class: "small dim", text: facts.filter(Boolean).join(" · ") }));
}

function drawRunning(list, sweeps) {
  const box = $("running-in");
  const above = sweeps.length ? [h("div", { class: "cards now" }, sweeps.map(sweepCard))] : [];
  if (!list.length) { box.replaceChildren(...above, h("p", { class: "dim small", text: "No trial is running in this logbook." })); return; }
  box.replaceChildren(...above, h("div", { class: "cards now" }, list.map((one) => {
    const stale = one.quiet_s > 15;
    return h("div", { class: "card trial" },
      h("div", { class: "row" }, h("span", { class: `badge ${stale ? "warn" : "good"}`, text: stale ? `silent for ${clock(one.quiet_s)}` : one.phase || "running" }), h("b", { text: one.label || one.key })),
      h("p", { class: "small dim", text: [one.session, has(one.steps) ? `step ${one.step} of ${one.steps}` : `step ${one.step}`, one.phase && (has(one.rank) ? `${one.phase} on rank ${one.rank}` : one.phase), one.collective && `last collective ${one.collective}`, `for ${clock(one.for_s)}`, has(one.left_s) && `about ${clock(one.left_s)} left at most`, has(one.beat_s) && `heartbeat ${num(one.beat_s, 2)} s ago`, has(one.sec) && `${num(one.sec)} s per iteration`].filter(Boolean).join(" · ") }),
      progressBar(one.step, one.steps, "steps"),
      one.line && h("div", { class: "logline", title: one.line, text: one.line }));
  })));
}

const OWN = "my own …";
const STARTS = {
  model: 'base = "llama3.1-8b"\nlayers = 40\n\n# or all of a [model] table, or a Hugging Face config.json',
  cluster: 'base = "dgx-h100"\nnodes = 32\n\n# or all of a [cluster] table',
};
async function planner() {
  const box = $("whatif-in");
  let known;
  try { known = await ask("/api/choices"); } catch (error) { box.replaceChildren(h("p", { class: "note", text: error.message })); return; }
  const first = known.start; // the logbook's own
  const pick = (name, label, list, chosen) => h("label", {}, label, h("select", { name, "data-empty": list[0] === "any" ? "" : null }, list.map((v) => h("option", { value: v === "any" ? "" : v, selected: v === chosen, text: v }))));
  const field = (name, label, value, hint, cls) => h("label", { class: cls }, label, h("input", { name, value, placeholder: hint, autocomplete: "off" }));
  const own = (name, label) => { const area = h("textarea", { name: `${name}_text`, rows: 6, spellcheck: "false", placeholder: STARTS[name], "aria-label": label, text: first[`${name}_text`] || "" }); return h("label", { class: "own", hidden: true, "data-own": name }, label, area); };
  const knob = (c) => (known.words[c.field] ? pick(c.field, c.label, ["any", ...known.words[c.field]], "any") : field(c.field, c.label, "", "any"));
  const out = h("div", { "aria-live": "polite" }, h("p", { class: "dim small", text: "The planner is asked …" }));
  let turn = 0, timer = 0;
  const form = h("form", { id: "whatif-form", onsubmit: (event) => { event.preventDefault(); go(); }, oninput: (event) => { if (event.target.name === "cluster") form.elements.nodes.value = ""; clearTimeout(timer); timer = setTimeout(go, 350); } },
    h("div", { class: "form" },
      pick("model", "Model", [...known.models, OWN], first.model || OWN), pick("cluster", "Cluster", [...known.clusters, OWN], first.cluster || OWN), pick("engine", "Engine", known.engines, first.engine), field("nodes", "Nodes", first.nodes, "all"), field("gbs", "Global batch", first.gbs, "needed"), field("tokens", "Tokens", A.tokens, "none"),
      own("model", "Your model, as TOML or config.json"), own("cluster", "Your cluster, as TOML")),
    h("details", { class: "more" }, h("summary", { text: "Every knob" }), h("div", { class: "form" },
      fields((c) => c.searched && c.name !== "gbs").map(knob),
      pick("sequence_parallel", "Sequence parallel", known.words.sequence_parallel, "auto"), known.words.precision && pick("precision", "Precision", ["any", ...known.words.precision], "any"), known.words.attention && pick("attention", "Attention", ["any", ...known.words.attention], "any"),
      field("seq", "Sequence length", "", "as the model"), field("procs_per_node", "Processes per node", "", "as the cluster"), field("headroom", "Memory to stay free", "", "4GiB or 5%"), field("rule", "Rules, with ; between", "", "dp % 4 == 0; pp <= 12", "wide2"),
      h("label", {}, "Learn from this logbook", h("select", { name: "learn" }, h("option", { value: "", text: "no" }), h("option", { value: "yes", text: "yes" }))))),
    h("button", { class: "sr", type: "submit", text: "Plan" }));
  function asked() { // what is not said is left out; one's own text in place of a preset's name
    const said = Object.fromEntries([...new FormData(form)].filter(([, v]) => v.trim()));
    for (const name of ["model", "cluster"]) {
      const mine = said[name] === OWN;
      form.querySelector(`[data-own=${name}]`).hidden = !mine;
      if (mine) delete said[name]; else delete said[`${name}_text`];
      if (mine && !said[`${name}_text`]) return null;
    }
    return said;
  }
  async function go() {
    const mine = ++turn, said = asked();
    if (!said) { out.replaceChildren(h("p", { class: "note", text: "Write or paste yours above; the ranking follows while you type." })); return; }
    out.setAttribute("aria-busy", "true");
    try {
      const answer = await ask("/api/whatif", said);
      if (mine === turn) out.replaceChildren(...ranking(answer), ...(said.learn && !answer.calibration ? [h("p", { class: "note", text: "No measured row of this logbook is known to stand on that cluster, so nothing was learned (--cluster names it)." })] : []));
    }
    catch (error) { if (mine === turn) out.replaceChildren(h("p", { class: "note", text: error.message })); }
    out.removeAttribute("aria-busy");
  }
  box.replaceChildren(form, out);
  go();
}

function ranking(a) {
  if (!a.candidates.length) return [h("p", { class: "note", text: a.reason }), a.nearest?.length && h("p", { class: "small" }, "Nearest: ", a.nearest.map((n) => `${n.freed}: ${fields((c) => c.searched && (c.degree || c.name === "mbs")).map((c) => wording(c, n[c.field])).join(", ")}`).join("; "))].filter(Boolean);
  const figures = [["sec_per_it", "Sec/it"], ["tflops", `TFLOPs (${a.tflops_formula})`], ["mfu", "MFU"], ["tokens_per_s_per_process", "Tokens/s/device"], ["mem_gib", "GiB"], ["fit_odds", "Fits"], ["days", "Days"], ["device_hours", "Device-hours"]];
  const knobs = fields((c) => c.searched && c.name !== "gbs"), pairs = (list) => list.map((c) => [c.field, c.label]);
  // On a phone the seconds stand beside the degrees: what is to the right of them is scrolled to.
  const order = window.innerWidth < 640 ? [...pairs(knobs.filter((c) => c.degree)), figures[0], ...pairs(knobs.filter((c) => !c.degree)), ...figures.slice(1)] : [...pairs(knobs), ...figures];
  const columns = order.filter(([k]) => has(a.candidates[0][k]));
  const cells = (c) => columns.map(([k]) => { const v = c[k]; return h("td", { class: typeof v === "number" ? "n" : null, text: k === "sec_per_it" ? `${num(v)} (${num(c.sec_lo, 3)} to ${num(c.sec_hi, 3)})` : k === "mfu" ? percent(v) : k === "fit_odds" ? `${c.fits} ${percent(v)}` : num(v) }); });
  const lost = Object.entries(a.rejected).slice(0, 6).map(([k, n]) => `${k} ${n.toLocaleString("en")}`).join(", ");
  return [h("p", { class: "small dim", text: `${a.considered.toLocaleString("en")} layouts considered, ${a.accepted.toLocaleString("en")} can run${a.ties > 1 ? `; the first ${a.ties} cannot be told apart` : ""}. A forecast, not a measurement${a.calibration ? `, corrected by ${plural(a.calibration.rows, "row")} of this logbook` : ""}.` }),
    ...plainTable("what if", ["", ...columns.map(([, l]) => l)], a.candidates.map((c, i) => ({ cells: [h("td", {}, c.tie ? h("span", { class: "badge warn", text: "tie" }) : `${i + 1}`), ...cells(c)] })), { id: "ranking" }),
    lost && h("p", { class: "small dim", text: `Cannot run: ${lost}.` })].filter(Boolean);
}
