// A table that its heads sort. A column is {title, key, show, num}; `key` may be a function of the row.
function sortable(columns, rows, options = {}) {
  const value = (column, row) => (typeof column.key === "function" ? column.key(row) : row[column.key]);
  let by = options.by ?? 0, down = true, all = false, chosen = rows;
  const body = el("tbody"), more = el("button", { class: "plain", type: "button", onclick: () => { all = true; fill(); } });
  const heads = columns.map((column, k) => el("th", { class: column.num ? "num" : null, scope: "col" },
    el("button", { type: "button", onclick: () => { if (by === k) down = !down; else { by = k; down = Boolean(column.num); } fill(); } }, column.title)));
  function fill() {
    heads.forEach((head, k) => { if (k === by) head.setAttribute("aria-sort", down ? "descending" : "ascending"); else head.removeAttribute("aria-sort"); });
    const column = columns[by];
    const sorted = [...chosen].sort((a, b) => {
      const x = value(column, a), y = value(column, b);
      return (typeof x === "string" ? x.localeCompare(y) : x - y) * (down ? -1 : 1);
    });
    const limit = all ? sorted.length : options.limit ?? 20;
    body.replaceChildren(...sorted.slice(0, limit).map((row) => {
      const cells = columns.map((c) => el("td", { class: [c.num && "num", c.class].filter(Boolean).join(" ") }, c.show(row)));
      return options.tip ? explain(el("tr", {}, cells), () => options.tip(row)) : el("tr", {}, cells);
    }));
    more.hidden = sorted.length <= limit;
    more.textContent = `show all ${count(sorted.length)}`;
  }
  fill();
  return { node: [el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, heads)), body), more)],
    choose: (rows) => { chosen = rows; fill(); } };
}

const firstLine = (row) => (row.lines.length ? row.lines[0].at + (row.lines.length > 1 ? " …" : "") : "");
const lineColumn = { title: "Python line", key: firstLine, show: firstLine, class: "line" };

function fallbacks() {
  if (!facts.fallbacks.length) return null;
  const columns = [
    { title: "op", key: "op", show: (r) => r.op, class: "name" },
    { title: "would save", key: "saved_us", num: true, show: (r) => [`${duration(r.saved_us)} (${percent(r.saved_share)})`,
      el("span", { class: "meter", style: `background:var(--fallback);width:${Math.max(2, 100 * r.saved_share)}%` })] },
    { title: "calls", key: "calls", num: true, show: (r) => count(r.calls) },
    { title: "on the CPU", key: "us", num: true, show: (r) => duration(r.us) },
    { title: "of it copying", key: "copies_us", num: true, show: (r) => duration(r.copies_us) },
    { title: "transfers", key: (r) => r.to_host + r.to_device, num: true, show: (r) => count(r.to_host + r.to_device) },
    { title: "bytes", key: (r) => r.to_host_bytes + r.to_device_bytes, num: true, show: (r) => bytes(r.to_host_bytes + r.to_device_bytes) },
    lineColumn,
  ];
  const table = sortable(columns, facts.fallbacks, { by: 1, tip: (r) => [r.op,
    `to the host: ${count(r.to_host)} copies, ${bytes(r.to_host_bytes)}`, `to the device: ${count(r.to_device)} copies, ${bytes(r.to_device_bytes)}`,
    r.least_us ? `on the device, its memory alone would take ${duration(r.least_us)}` : null, ...lineTips(r.lines)] });
  return section("Fallbacks: implement the first one next",
    "Ops that the device has no kernel for, or refused. \"Would save\" is the time in which only the fallback ran: the device stood still, and the transfers around it would vanish.",
    el("div", { class: "card", id: "fallbacks" }, table.node));
}

function transfers() {
  if (!facts.transfers.length) return null;
  const ways = { HtoD: "host → device", DtoH: "device → host" };
  const columns = [
    { title: "op", key: "op", show: (r) => r.op, class: "name" },
    { title: "direction", key: "direction", show: (r) => ways[r.direction] || r.direction },
    { title: "copies", key: "calls", num: true, show: (r) => count(r.calls) },
    { title: "bytes", key: "bytes", num: true, show: (r) => bytes(r.bytes) },
    { title: "copying", key: "us", num: true, show: (r) => duration(r.us) },
    { title: "host waited", key: "wait_us", num: true, show: (r) => duration(r.wait_us) },
    lineColumn,
  ];
  return section("Transfers that the program asked for", "Reading a value from the device makes the host wait until everything before it is done.",
    el("div", { class: "card", id: "transfers" }, sortable(columns, facts.transfers, { by: 5, limit: 8, tip: (r) => [r.op, ...lineTips(r.lines)] }).node));
}

function ops() {
  const most = Math.max(...facts.ops.map((r) => r.us), 1);
  const columns = [
    { title: "op", key: "op", show: (r) => r.op, class: "name" },
    { title: "ran on", key: "where", show: (r) => el("span", { class: "tag", style: `background:var(--${r.where})` }, { device: "device", fallback: "CPU", transfer: "transfer" }[r.where]) },
    { title: "command", key: "kind", show: (r) => r.kind },
    { title: "calls", key: "calls", num: true, show: (r) => count(r.calls) },
    { title: "time", key: "us", num: true, show: (r) => [duration(r.us), el("span", { class: "meter", style: `background:var(--${r.where});width:${Math.max(2, 100 * r.us / most)}%` })] },
    { title: "share", key: "share", num: true, show: (r) => percent(r.share) },
    { title: "bytes", key: "bytes", num: true, show: (r) => bytes(r.bytes) },
    { title: "GB/s", key: "gbps", num: true, show: (r) => three(r.gbps) },
    { title: "GFLOP/s", key: "gflops", num: true, show: (r) => (r.flops ? three(r.gflops) : "") },
    lineColumn,
  ];
  const table = sortable(columns, facts.ops, { by: 4, limit: 25, tip: (r) => [`${r.op} ${r.kind}`,
    `${count(r.calls)} calls, ${count(r.commands)} commands`, r.flops ? flops(r.flops) : null, ...lineTips(r.lines)] });
  const input = el("input", { type: "search", placeholder: "find an op or a line", "aria-label": "find an op or a line", oninput: () => {
    const text = input.value.toLowerCase();
    table.choose(facts.ops.filter((r) => `${r.op} ${r.kind} ${r.where} ${r.lines.map((l) => l.at).join(" ")}`.toLowerCase().includes(text)));
  } });
  return section("Every op", "Click a head to sort. A Python line is known where the op allocated memory; the backward pass has the lines of the forward.",
    el("div", { class: "card", id: "ops" }, el("div", { class: "filters" }, input), table.node));
}
