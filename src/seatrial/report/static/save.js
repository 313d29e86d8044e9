// Out of the page: any table as CSV, any picture as an SVG file that looks the same anywhere.
function save(name, type, text) {
  const link = h("a", { download: `${fileName(`${V.title} ${name}`)}.${type === "text/csv" ? "csv" : "svg"}`, href: URL.createObjectURL(new Blob([text], { type })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
const fileName = (text) => text.replace(/[^\p{L}\p{N}.]+/gu, "-").replace(/^[-.]+|[-.]+$/g, "").slice(0, 80) || "seatrial";

// A text that a spreadsheet would run as a formula is marked as text.
function csvCell(value) {
  if (!has(value)) return "";
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
const csv = (lines) => lines.map((line) => line.map(csvCell).join(",")).join("\r\n") + "\r\n";
const csvButton = (name, lines) => h("button", { type: "button", class: "save-csv", text: "CSV", title: "Save this table as CSV", onclick: () => save(name, "text/csv", csv(lines())) });

// A small table of texts, with its CSV.
function plainTable(name, head, body, attrs = {}) {
  return [h("div", { class: "scroll-x" }, h("table", { class: "plain", ...attrs }, h("thead", {}, h("tr", {}, head.map((text, i) => h("th", { scope: "col", class: body[0]?.cells[i]?.className, text })))), h("tbody", {}, body.map((line) => h("tr", { class: line.cls }, line.cells))))),
    h("p", { class: "under" }, csvButton(name, () => [head, ...body.map((line) => line.cells.map((td) => td.textContent))]))];
}

const DRAWN_WITH = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "paint-order", "font-family", "font-size", "font-weight"];
function standalone(svg) {
  const copy = svg.cloneNode(true), { width, height } = svg.viewBox.baseVal;
  const from = [svg, ...svg.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, i) => {
    const style = getComputedStyle(node);
    for (const name of DRAWN_WITH) { const value = style.getPropertyValue(name); if (value && value !== "none" || name === "fill") to[i].setAttribute(name, value); }
    for (const name of ["class", "tabindex", "role"]) to[i].removeAttribute(name);
  });
  put(copy, { xmlns: NS, width, height }, []);
  copy.prepend(s("rect", { width, height, fill: getComputedStyle(document.documentElement).getPropertyValue("--card") }));
  return new XMLSerializer().serializeToString(copy);
}
const svgButton = (holder) => h("button", { type: "button", class: "save-svg", text: "SVG", title: "Save this picture as SVG", onclick: () => { const svg = holder.querySelector("svg"); save(svg.getAttribute("aria-label") || "picture", "image/svg+xml", standalone(svg)); } });
