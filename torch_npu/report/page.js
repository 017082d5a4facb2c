// The headline with its figures and names set apart.
function headline(text) {
  const parts = text.split(/(\d[\d.]* %|\b[a-z_]+::[\w.]+)/);
  let seen = 0;
  return el("h1", {}, parts.map((part, k) => {
    if (k % 2 === 0) return part;
    if (part.endsWith("%")) return el("em", { class: seen++ ? "bad" : null }, part.replace(" ", "\u00a0"));
    return el("code", {}, part);
  }));
}

function themeButton() {
  const root = document.documentElement;
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const button = el("button", { class: "plain", type: "button", onclick: () => { root.dataset.theme = dark() ? "light" : "dark"; name(); redrawAll(); } });
  const name = () => { button.textContent = dark() ? "light" : "dark"; button.setAttribute("aria-label", `switch to ${button.textContent} colours`); };
  name();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  return button;
}

function footer() {
  const clock = facts.simulated
    ? "The device's clock is computed, not measured: its times are those of the chip. The host's own time is of another clock and not in the sum."
    : "Of things that happen at the same moment the first of device, fallback, transfer and host counts, so the parts add up to the wall time.";
  return el("footer", {},
    el("p", {}, `How it was measured: torch.profiler and the memory history were on, which makes small ops on the host slower than they are. ${clock}`),
    el("p", {}, `FLOPs are those of products and convolutions, two per multiply-add. The rate of equal commands is that of their median. Bytes are what commands read and write, broadcast parts once. The peak is ${facts.peak.source}.`),
    el("p", {}, `torch ${facts.torch}, torch_npu ${facts.torch_npu}, driver ${facts.driver}, ${facts.threads} thread${facts.threads > 1 ? "s" : ""} of PyTorch, ${facts.date}.`));
}

const run = facts.steps > 1 ? `${count(facts.steps)} steps of ${duration(facts.wall_us / facts.steps)}` : duration(facts.wall_us);
document.getElementById("page").append(
  el("header", {}, el("span", {}, el("span", { class: "title" }, facts.title), ` on ${facts.device} (${facts.device_name})`), themeButton()),
  headline(facts.headline),
  el("p", { class: "facts" }, `${run} · ${count(facts.counts.commands)} commands · ${count(facts.counts.copies)} copies · ` +
    `${facts.counts.fallbacks ? `${count(facts.counts.fallbacks)} fallbacks` : "no fallback"} · peak memory ${bytes(facts.memory.peak)}`),
  ...facts.notes.map((note) => el("p", { class: "facts" }, note)),
  shares(),
  ...[advice(), fallbacks(), timeline(), roofline(), memory(), transfers(), ops(), footer()].filter(Boolean),
);
document.documentElement.dataset.ready = "yes";
