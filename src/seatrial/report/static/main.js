// Puts the page together, and again when there is news.
const SECTIONS = [["running", "Running"], ["answer", "Answer"], ["whatif", "What if"], ["table", "Table"], ["time", "Time"], ["parts", "Where it goes"], ["memory", "Memory"], ["pipeline", "Pipeline"], ["scaling", "Scaling"], ["knobs", "Knobs"], ["scatter", "Scatter"], ["failures", "Failures"], ["findings", "Doubts"]];

function drawQuestion() { drawAnswer(); tableBody(); drawTime(); drawParts(); drawMemory(); }

// What each picture is made from: one that has nothing new stays as it is, with what the reader opened in it.
const MADE_FROM = new Map([[drawTime, ["questions", "waiting"]], [drawParts, ["questions", "parts"]], [drawMemory, ["questions", "parts", "waiting"]], [drawPipeline, ["pipelines"]], [drawScaling, ["scaling"]], [drawKnobs, ["knobs"]], [drawScatter, ["count", "columns"]], [drawFailures, ["failures"]], [drawFindings, ["findings", "linted"]]]);
const last = new Map();

function drawAll(view) {
  const asked = V && question() && questionKey(question()); // a new row may put another question first
  V = view;
  A.question = Math.max(0, asked ? V.questions.findIndex((q) => questionKey(q) === asked) : A.question);
  const files = new Set((V.rows.file || []).filter(has)), states = V.rows.state.reduce((all, v) => ({ ...all, [v]: (all[v] || 0) + 1 }), {});
  $("about").textContent = [plural(V.count, "record"), files.size && plural(files.size, "file"), Object.entries(states).map(([k, n]) => `${n.toLocaleString("en")} ${k}`).join(", "), V.waiting && `${V.waiting.toLocaleString("en")} forecasts on their way`].filter(Boolean).join(" · ");
  $("foot").textContent = `Made ${V.made} by seatrial ${V.version}.${V.forecast_on.length ? ` Forecast on ${V.forecast_on.join(", ")}.` : ""} Every figure leads to its record; an empty cell means that nobody said.`;
  drawTable();
  if (!["INPUT", "SELECT"].includes(document.activeElement?.closest("#answer-in") && document.activeElement.tagName)) drawAnswer();
  requestAnimationFrame(() => performance.mark("rows"));
  // What is below the fold waits until the first of the page is on the screen.
  const rest = [];
  for (const [draw, names] of MADE_FROM) {
    const now = JSON.stringify(names.map((name) => V[name]));
    if (last.get(draw) !== now) { last.set(draw, now); rest.push(draw); }
  }
  const step = () => { const next = rest.shift(); if (next) { next(); setTimeout(step, 0); } else document.documentElement.dataset.drawn = "yes"; };
  requestAnimationFrame(() => setTimeout(step, 0));
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").setAttribute("aria-label", name === "dark" ? "Switch to light" : "Switch to dark");
  $("theme").textContent = name === "dark" ? "☀" : "☾";
}
// On a phone the title scrolls away and the sections stay; a link to a section stops below what stays.
function settleHead() {
  const head = document.querySelector(".top"), title = head.firstElementChild.offsetHeight, narrow = window.innerWidth < 640;
  head.style.top = narrow ? `${-title}px` : "";
  document.documentElement.style.scrollPaddingTop = `${head.offsetHeight - (narrow ? title : 0) + 10}px`;
}
function remember(name) { try { if (name) localStorage.setItem("seatrial-theme", name); else return localStorage.getItem("seatrial-theme"); } catch { /* a page from disk may have no memory */ } return null; }

(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  theme(remember() || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => { if (!remember()) theme(dark.matches ? "dark" : "light"); });
  $("theme").addEventListener("click", () => { const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark"; theme(next); remember(next); });
  const there = SECTIONS.filter(([id]) => $(id));
  $("nav").replaceChildren(...there.map(([id, name]) => h("li", {}, h("a", { href: `#${id}`, text: name, onclick: (event) => { event.preventDefault(); SHOWN.section = id; settle(); $(id).scrollIntoView(); } }))));
  const inSight = new Set();
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) inSight.add(entry.target.id); else inSight.delete(entry.target.id);
    const top = there.find(([id]) => inSight.has(id))?.[0];
    if (top) for (const a of document.querySelectorAll("nav a")) a.classList.toggle("on", a.hash === `#${top}`);
  }, { rootMargin: "-110px 0px -70% 0px" });
  for (const [id] of there) seen.observe($(id));
  $("row").addEventListener("close", () => { document.body.append($("tip")); $("tip").hidden = true; SHOWN.open = ""; settle(); });
  $("row").addEventListener("click", (event) => { if (event.target === $("row")) $("row").close(); });
  const view = JSON.parse($("view").textContent);
  if (view.tokens) A.tokens = view.tokens >= 1e12 ? `${view.tokens / 1e12}T` : view.tokens >= 1e9 ? `${view.tokens / 1e9}B` : String(view.tokens);
  if (view.price) A.price = String(view.price);
  if (view.assumed.seq) A.seq = view.assumed.seq;
  V = view;
  readAddress();
  drawAll(view);
  settleHead();
  openAddressed();
  window.addEventListener("resize", settleHead);
  if (window.seatrialLive) { L.version = view.live; news(); now(); planner(); }
})();
