// What a filter's words mean: whole words anywhere in a row, field:value, comparisons; what names no field is said.
const LETTER = /[\p{L}\p{N}]/u;
const TERM = /^(-?)([a-z_][a-z0-9_]*)(<=|>=|!=|=|<|>|~|:)(.*)$/is;
const aliases = () => ({ model: "size", procs: "world", devices: "world", gpus: "world", sec_per_it: "sec", mem_gib: "mem", source: "file", forecast: "f_sec", doubts: "lint", tag: "tags", tokens_per_s_per_process: "tokens",
  ...Object.fromEntries(V.columns.flatMap((c) => (c.aliases || []).map((alias) => [alias, c.name]))) });

// `oom` is a word of `oom_device` and none of `bloom`; a star lets a word go on: `blo*`.
function hasWord(text, want) {
  const before = want.startsWith("*"), after = want.endsWith("*") && want.length > 1, core = want.slice(before ? 1 : 0, after ? -1 : undefined);
  const opens = !before && LETTER.test(core[0] || ""), ends = !after && LETTER.test(core.at(-1) || "");
  for (let at = text.indexOf(core); at >= 0; at = text.indexOf(core, at + 1))
    if (!(opens && at > 0 && LETTER.test(text[at - 1])) && !(ends && LETTER.test(text[at + core.length] || ""))) return true;
  return false;
}
function hay(row) {
  T.hay ??= new Array(V.count);
  return (T.hay[row] ??= Object.keys(V.rows).filter((k) => !k.startsWith("f_")).map((k) => cell(k, row)).filter(has).join(" \n").toLowerCase());
}

function distance(a, b) { // letters to change, put in or leave out
  let line = [...Array(b.length + 1).keys()];
  for (let i = 1; i <= a.length; i++) {
    let corner = line[0];
    line[0] = i;
    for (let j = 1; j <= b.length; j++) [corner, line[j]] = [line[j], Math.min(line[j] + 1, line[j - 1] + 1, corner + (a[i - 1] !== b[j - 1]))];
  }
  return line[b.length];
}
function nearest(word, names) {
  const far = (name) => (name.startsWith(word) || word.startsWith(name) ? 1 : distance(word, name));
  const [least, name] = [...names].map((one) => [far(one), one]).sort((a, b) => a[0] - b[0])[0];
  return least <= Math.max(2, word.length / 2) ? ` (nearest: ${name})` : "";
}

// The tests that a row must pass, and what there is to say about them.
function parsed(text) {
  const known = aliases(), names = new Set([...V.columns.map((c) => c.name), "status", ...Object.keys(known)]), tests = [], said = [];
  for (const term of text.match(/(?:[^\s"]|"[^"]*"?)+/g) || []) {
    const plain = term.replaceAll('"', "").toLowerCase(), match = TERM.exec(term.replaceAll('"', ""));
    const name = match && (known[match[2].toLowerCase()] || match[2].toLowerCase());
    if (match && names.has(name)) {
      const test = fieldTest(name, match[3], match[4].trim(), said);
      if (test) tests.push(match[1] ? (row) => !test(row) : test);
      continue;
    }
    if (match) said.push(`no field “${match[2]}”${nearest(match[2].toLowerCase(), names)}, so “${plain}” is looked for as text`);
    const not = plain.length > 1 && plain.startsWith("-"), want = not ? plain.slice(1) : plain;
    if (want) tests.push(not ? (row) => !hasWord(hay(row), want) : (row) => hasWord(hay(row), want));
  }
  return { tests, said };
}

const YES = { on: "true", yes: "true", off: "false", no: "false" };
function fieldTest(name, op, raw, said) {
  if (raw === "" && op !== "=" && op !== "!=") return null; // still being typed
  const values = Object.hasOwn(V.rows, name) ? V.rows[name] : null;
  if (!values) { said.push(`no row says ${name}`); return () => op === "!=" || raw === ""; }
  const sample = values.find(has), numeric = typeof sample === "number" && name !== "lint", flag = typeof sample === "boolean";
  const value = numeric && raw !== "" ? (Number.isNaN(Number(raw)) ? count(raw) : Number(raw)) : null;
  if (numeric && raw !== "" && value === null && op !== "~") { said.push(`${name} is a number: “${raw}” is none`); return () => false; }
  const want = name === "lint" ? String(Math.max(-1, LINT_WORD.indexOf(raw.toLowerCase()))) : flag ? YES[raw.toLowerCase()] || raw.toLowerCase() : raw.toLowerCase();
  const exact = numeric ? (v) => v === value : (v) => String(v).toLowerCase() === want;
  const test = {
    "=": exact, ":": numeric || flag || name === "lint" ? exact : (v) => hasWord(String(v).toLowerCase(), want), "!=": (v) => !exact(v), "~": (v) => String(v).toLowerCase().includes(want),
    "<": (v) => (numeric ? v < value : String(v).toLowerCase() < want), "<=": (v) => (numeric ? v <= value : String(v).toLowerCase() <= want),
    ">": (v) => (numeric ? v > value : String(v).toLowerCase() > want), ">=": (v) => (numeric ? v >= value : String(v).toLowerCase() >= want),
  }[op];
  return (row) => (has(values[row]) ? raw === "" ? op === "!=" : test(values[row]) : op === "!=" ? raw !== "" : raw === "" && op === "=");
}
