const facts = JSON.parse(document.getElementById("facts").textContent);
const NAMES = { device: "on the device", fallback: "fallback on the CPU", transfer: "transfers", host: "waiting for the host", range: "ranges" };

function make(space, tag, attributes, children) {
  const node = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}
const el = (tag, attributes, ...children) => make(null, tag, attributes, children);
const svg = (tag, attributes, ...children) => make("http://www.w3.org/2000/svg", tag, attributes, children);

const three = (value) => {
  if (value === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return digits > 6 ? value.toExponential(1) : value.toLocaleString("en", { maximumFractionDigits: Math.min(digits, 6) });
};
const duration = (us) => (us < 1000 ? `${three(us)} µs` : us < 999500 ? `${three(us / 1e3)} ms` : `${three(us / 1e6)} s`);
function scaled(value, units, step = 1000) {
  let k = 0;
  while (Math.abs(value) >= 0.9995 * step && k < units.length - 1) { value /= step; k++; }
  return `${three(value)} ${units[k]}`;
}
const bytes = (value) => scaled(value, ["B", "KB", "MB", "GB", "TB"]);
const flops = (value) => scaled(value, ["FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP"]);
const count = (value) => value.toLocaleString("en");
function percent(share) {
  const value = 100 * share;
  if ((value > 0 && value < 1) || (value > 99 && value < 100)) return `${Math.min(Math.max(value, 0.1), 99.9).toFixed(1)} %`;
  return `${value.toFixed(0)} %`;
}
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// One tip for all charts. `text` is a list of lines: the first one is bold, those that begin with "> " are code.
const tip = document.getElementById("tip");
function showTip(lines, x, y) {
  tip.replaceChildren(...lines.filter(Boolean).map((line, k) =>
    k === 0 ? el("b", {}, line) : line.startsWith("> ") ? el("span", { class: "mono" }, line.slice(2)) : el("div", {}, line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, x + 14), innerWidth - box.width - 8);
  const top = y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18;
  tip.style.left = `${left}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}
const hideTip = () => { tip.hidden = true; };
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
addEventListener("scroll", hideTip, { passive: true });
function explain(node, lines) {
  node.addEventListener("pointermove", (event) => showTip(lines(), event.clientX, event.clientY));
  node.addEventListener("pointerleave", hideTip);
  node.addEventListener("focus", () => {
    const box = node.getBoundingClientRect();
    showTip(lines(), box.right, box.bottom);
  });
  node.addEventListener("blur", hideTip);
  return node;
}

// Charts draw themselves anew when their width or the colours change.
const drawn = [];
function redrawn(node, draw) {
  let width = 0;
  const again = () => { width = node.clientWidth; if (width > 0) draw(width); };
  drawn.push(again);
  new ResizeObserver(() => { if (Math.abs(node.clientWidth - width) > 1) again(); }).observe(node);
  return node;
}
const redrawAll = () => drawn.forEach((draw) => draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

const lineText = (line) => (line ? `${line.at} in ${line.in}` : "");
const lineTips = (lines) => (lines || []).flatMap((l) => [`${l.at} in ${l.in}${l.count > 1 ? ` × ${count(l.count)}` : ""}`, l.code ? `> ${l.code}` : null]);
const section = (title, lead, ...content) => el("section", {}, el("h2", {}, title), lead && el("p", { class: "lead" }, lead), ...content);
const legend = (entries, ...tools) => el("div", { class: "legend" },
  entries.map(([name, fill]) => el("span", {}, el("i", { class: "dot", style: `background:${fill}` }), name)), tools.length ? el("div", { class: "tools" }, tools) : null);
