// The page while a sweep runs: rows as they come, what is running, and the planner asked.
const L = { version: 0, failed: 0 };
async function ask(path) {
  const answer = await fetch(path, { credentials: "same-origin" });
  const body = answer.headers.get("Content-Type")?.includes("json") ? await answer.json() : { error: (await answer.text()).trim() };
  if (!answer.ok) throw new Error(body.error || answer.statusText);
  return body;
}
window.seatrialLive = {
  detail: (row) => ask(`/api/record?id=${encodeURIComponent(V.ids[row])}`),
  pipeline: (row) => ask(`/api/pipeline?id=${encodeURIComponent(V.ids[row])}`).catch(() => null),
};
const clock = (seconds) => { const t = Math.round(seconds), m = Math.floor(t / 60); return m >= 60 ? `${Math.floor(m / 60)}:${String(m % 60).padStart(2, "0")}:${String(t % 60).padStart(2, "0")}` : `${m}:${String(t % 60).padStart(2, "0")}`; };

function say(word, kind) { const box = $("live"); box.hidden = false; box.className = `badge ${kind}`; box.textContent = word; }

async function news() {
  try {
    const answer = await ask(`/api/view?since=${L.version}`);
    if (answer.view) { L.version = answer.version; drawAll(answer.view); }
    L.failed = 0;
    say("live", "good");
  } catch (error) {
    L.failed += 1;
    say(L.failed > 2 ? "the server is gone" : "…", "warn");
  }
  setTimeout(news, L.failed ? Math.min(10000, 700 * 2 ** L.failed) : document.hidden ? 3000 : 500);
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

async function planner() {
  const box = $("whatif-in");
  let known;
  try { known = await ask("/api/choices"); } catch (error) { box.replaceChildren(h("p", { class: "note", text: error.message })); return; }
  const pick = (name, label, list, chosen) => h("label", {}, label, h("select", { name }, list.map((v) => h("option", { value: v, selected: v === chosen, text: v }))));
  const field = (name, label, value, hint, cls) => h("label", { class: cls }, label, h("input", { name, value, placeholder: hint, autocomplete: "off" }));
  const out = h("div", { "aria-live": "polite" });
  let turn = 0, timer = 0;
  const form = h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); go(); }, oninput: () => { clearTimeout(timer); timer = setTimeout(go, 350); } },
    pick("model", "Model", known.models, "bloom-176b"), pick("cluster", "Cluster", known.clusters, "jz-a100"), pick("engine", "Engine", known.engines, "megatron-deepspeed"), field("nodes", "Nodes", "48", "all"), field("gbs", "Global batch", "2048", "needed"),
    fields((c) => c.searched && c.name !== "gbs").map((c) => field(c.field, c.label, "", "any")),
    field("tokens", "Tokens", "300B", "none"), field("rule", "Rules, with ; between", "", "dp % 4 == 0; pp <= 12", "wide2"), h("label", {}, "Learn from this logbook", h("select", { name: "learn" }, h("option", { value: "", text: "no" }), h("option", { value: "yes", text: "yes" }))), h("button", { class: "sr", type: "submit", text: "Plan" }));
  async function go() {
    const mine = ++turn, query = new URLSearchParams([...new FormData(form)].filter(([, v]) => v.trim()));
    out.setAttribute("aria-busy", "true");
    try {
      const answer = await ask(`/api/whatif?${query}`);
      if (mine === turn) out.replaceChildren(...ranking(answer), ...(query.get("learn") && !answer.calibration ? [h("p", { class: "note", text: "No measured row of this logbook is known to stand on that cluster, so nothing was learned (--cluster names it)." })] : []));
    }
    catch (error) { if (mine === turn) out.replaceChildren(h("p", { class: "note", text: error.message })); }
    out.removeAttribute("aria-busy");
  }
  box.replaceChildren(form, out);
  go();
}

function ranking(a) {
  if (!a.candidates.length) return [h("p", { class: "note", text: a.reason }), a.nearest?.length && h("p", { class: "small" }, "Nearest: ", a.nearest.map((n) => `${n.freed}: ${fields((c) => c.searched && (c.degree || c.name === "mbs")).map((c) => wording(c, n[c.field])).join(", ")}`).join("; "))].filter(Boolean);
  const figures = [["sec_per_it", "Sec/it"], ["tflops", `TFLOPs (${a.tflops_formula})`], ["mem_gib", "GiB"], ["fit_odds", "Fits"], ["days", "Days"], ["device_hours", "Device-hours"]];
  const columns = [...fields((c) => c.searched && c.name !== "gbs").map((c) => [c.field, c.label]), ...figures].filter(([k]) => k in a.candidates[0]);
  const cells = (c) => columns.map(([k]) => { const v = c[k]; return h("td", { class: typeof v === "number" ? "n" : null, text: k === "sec_per_it" ? `${num(v)} (${num(c.sec_lo, 3)} to ${num(c.sec_hi, 3)})` : k === "fit_odds" ? `${c.fits} ${percent(v)}` : num(v) }); });
  const lost = Object.entries(a.rejected).slice(0, 6).map(([k, n]) => `${k} ${n.toLocaleString("en")}`).join(", ");
  return [h("p", { class: "small dim", text: `${a.considered.toLocaleString("en")} layouts considered, ${a.accepted.toLocaleString("en")} can run${a.ties > 1 ? `; the first ${a.ties} cannot be told apart` : ""}. A forecast, not a measurement${a.calibration ? `, corrected by ${plural(a.calibration.rows, "row")} of this logbook` : ""}.` }),
    h("div", { class: "scroll-x" }, h("table", { class: "plain", id: "ranking" }, h("thead", {}, h("tr", {}, h("th", { text: "" }), columns.map(([, l]) => h("th", { scope: "col", text: l })))), h("tbody", {}, a.candidates.map((c, i) => h("tr", {}, h("td", {}, c.tie ? h("span", { class: "badge warn", text: "tie" }) : `${i + 1}`), cells(c)))))),
    lost && h("p", { class: "small dim", text: `Cannot run: ${lost}.` })].filter(Boolean);
}
