function shareCard(title, parts, unit, show, whole) {
  const total = Object.values(parts).reduce((a, b) => a + b, 0);
  const entries = Object.entries(parts).filter(([, value]) => value > 0);
  const device = total ? parts.device / total : null;
  return el("div", { class: "card share" },
    el("div", { class: "what" }, title),
    el("b", { class: device === null ? "none" : "" }, device === null ? "none" : percent(device)),
    el("div", { class: "bar", role: "img", "aria-label": entries.map(([k, v]) => `${NAMES[k]} ${percent(v / total)}`).join(", ") },
      entries.map(([k, v]) => el("i", { style: `flex:${v / total};background:var(--${k})` }))),
    el("div", { class: "parts" }, entries.flatMap(([k, v]) =>
      [el("i", { class: "dot", style: `background:var(--${k})` }), el("span", {}, NAMES[k]), el("span", {}, show(v))]),
      total ? null : el("span", {}, whole)));
}

function shares() {
  const s = facts.shares;
  return el("div", { class: "shares" },
    shareCard("of the time", s.time, "µs", duration, "no time"),
    shareCard("of the op calls", s.ops, "calls", count, "no op"),
    shareCard("of the multiply-adds", s.flops, "FLOP", flops, "no products in this run"),
    shareCard("of the bytes", s.bytes, "B", bytes, "nothing was moved"));
}

function advice() {
  if (!facts.advice.length) return section("What to do next", "Nothing stands out: no fallback, and no other part with more than 2 % to gain.");
  return section("What to do next", "Ranked by what each would gain at most, measured in this run.",
    el("div", { class: "card" }, el("ol", { class: "advice" }, facts.advice.map((entry) => el("li", {},
      el("div", { class: "gain", style: `color:var(--${entry.kind === "host" ? "soft" : entry.kind})` },
        percent(entry.share), el("small", {}, duration(entry.us))),
      el("div", {}, el("div", { class: "do" }, entry.do), el("div", { class: "why" }, entry.why)))))));
}

// Powers of ten inside a range, and every second or fifth of them where there is room.
function ticks(low, high, most) {
  const every = Math.ceil((high - low) / most);
  const out = [];
  for (let k = Math.ceil(low / every) * every; k <= high; k += every) out.push(k);
  return out;
}

// A chart with two logarithmic axes. `roof(x)` is the line that nothing should pass.
function logChart(node, width, options) {
  const height = Math.max(270, Math.min(360, width * 0.72));
  const left = 52, right = 14, top = 14, bottom = 42;
  const logs = (values) => values.filter((v) => v > 0).map(Math.log10);
  const xs = logs(options.points.map((p) => p.x).concat(options.xs || [])), ys = logs(options.points.map((p) => p.y).concat(options.ys || []));
  const lowX = Math.floor(Math.min(...xs)), highX = Math.max(Math.ceil(Math.max(...xs)), lowX + 1);
  const lowY = Math.floor(Math.min(...ys)), highY = Math.max(Math.ceil(Math.max(...ys) + 0.02), lowY + 1);
  const px = (x) => left + (width - left - right) * (Math.log10(x) - lowX) / (highX - lowX);
  const py = (y) => height - bottom - (height - top - bottom) * (Math.log10(y) - lowY) / (highY - lowY);
  const chart = svg("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": options.label });
  for (const k of ticks(lowX, highX, width / 70)) {
    chart.append(svg("line", { class: "grid", x1: px(10 ** k), x2: px(10 ** k), y1: top, y2: height - bottom }),
      svg("text", { x: px(10 ** k), y: height - bottom + 17, "text-anchor": "middle" }, options.showX(10 ** k)));
  }
  for (const k of ticks(lowY, highY, height / 40)) {
    chart.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: py(10 ** k), y2: py(10 ** k) }),
      svg("text", { x: left - 7, y: py(10 ** k) + 4, "text-anchor": "end" }, options.showY(10 ** k)));
  }
  chart.append(svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, options.axisX),
    svg("text", { x: left + 2, y: top + 2, "dominant-baseline": "hanging" }, options.axisY));
  if (options.roof) {
    let path = "";
    for (let k = 0; k <= 160; k++) {
      const x = 10 ** (lowX + (highX - lowX) * k / 160), y = Math.max(options.roof(x), 10 ** lowY);
      path += `${k ? "L" : "M"}${px(x).toFixed(1)} ${py(Math.min(y, 10 ** highY)).toFixed(1)}`;
    }
    chart.append(svg("path", { class: "roof", d: path }));
  }
  options.points.forEach((point, k) => {
    const circle = svg("circle", { class: "point", cx: px(point.x), cy: py(point.y), r: point.r, fill: `var(--k${point.color % 8})`,
      tabindex: k < 40 ? 0 : null, role: "img", "aria-label": point.lines().filter(Boolean).join(". ") });
    chart.append(explain(circle, point.lines));
  });
  if (options.roof) {
    chart.append(svg("text", { class: "strong", x: width - right, y: py(Math.min(options.roof(10 ** highX), 10 ** highY)) - 7, "text-anchor": "end" }, options.roofText));
  }
  node.replaceChildren(chart);
}

function roofline() {
  const rows = facts.commands.filter((row) => row.us > 0);
  if (!rows.length || !facts.peak.bandwidth) return null;
  const kinds = [...new Set(rows.map((row) => row.kind))];
  const longest = Math.max(...rows.map((row) => row.us));
  const peak = facts.peak;
  const point = (row, x, y) => ({
    x, y, r: 3 + 13 * Math.sqrt(row.us / longest), color: kinds.indexOf(row.kind),
    lines: () => [`${row.op} ${row.kind} ${row.shape}`,
      `${count(row.count)} × ${duration(row.us / row.count)}, ${percent(row.share)} of the time`,
      row.flops ? `${three(row.gflops)} GFLOP/s, ${three(row.gbps)} GB/s` : `${three(row.gbps)} GB/s`,
      row.of_roof ? `${percent(row.of_roof)} of the roof (${row.bound})` : null,
      row.cycles ? `${count(row.cycles)} cycles` : null, ...lineTips(row.lines)],
  });
  const products = rows.filter((row) => row.flops > 0), moved = rows.filter((row) => row.bytes > 0);
  const rate = (v) => scaled(v * 1e9, ["", "K", "M", "G", "T", "P"]).trim();
  const left = el("div"), right = el("div");
  redrawn(left, (width) => products.length
    ? logChart(left, width, {
      label: "Roofline of products: FLOP per second over FLOP per byte", points: products.map((row) => point(row, row.flops / row.bytes, row.gflops)),
      xs: [peak.flops / peak.bandwidth], ys: [peak.flops / 1e9], roof: (x) => Math.min(peak.flops, x * peak.bandwidth) / 1e9,
      roofText: `${scaled(peak.flops, ["", "K", "M", "G", "T"])}FLOP/s`, axisX: "FLOP per byte", axisY: "FLOP/s", showX: three, showY: rate })
    : left.replaceChildren(el("p", { class: "lead" }, "No products in this run.")));
  redrawn(right, (width) => moved.length
    ? logChart(right, width, {
      label: "Bandwidth of every command over its bytes", points: moved.map((row) => point(row, row.bytes, row.gbps)),
      ys: [peak.bandwidth / 1e9], roof: () => peak.bandwidth / 1e9, roofText: `${scaled(peak.bandwidth, ["B", "KB", "MB", "GB", "TB"])}/s`,
      axisX: "bytes per command", axisY: "bytes/s", showX: (v) => bytes(v).replace(" ", " "), showY: rate })
    : right.replaceChildren());
  const lead = `Every command, those of one op and shape together; the larger a dot, the more time it took. The roof is ${peak.source}. ` +
    "Dots above it had their data in a cache, or compute in a narrower type.";
  return section("How near to the roof", lead, el("div", { class: "card", id: "roofline" },
    legend(kinds.map((kind, k) => [kind, `var(--k${k % 8})`])),
    el("div", { class: "two" }, el("div", {}, el("h3", {}, "Products"), left), el("div", {}, el("h3", {}, "All commands: memory"), right))));
}

function memory() {
  const m = facts.memory, points = m.points;
  const box = el("div");
  redrawn(box, (width) => {
    const height = 250, left = 62, right = 12, top = 18, bottom = 28;
    const end = facts.wall_us, most = Math.max(1, ...points.map((p) => Math.max(p[1], p[2])));
    const px = (t) => left + (width - left - right) * Math.min(1, Math.max(0, t / end));
    const py = (v) => height - bottom - (height - top - bottom) * v / (most * 1.06);
    const line = (k) => points.map((p, i) => (i ? `H${px(p[0]).toFixed(1)}V${py(p[k]).toFixed(1)}` : `M${px(p[0]).toFixed(1)} ${py(p[k]).toFixed(1)}`)).join("");
    const chart = svg("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0,
      "aria-label": `Memory over time: at most ${bytes(m.peak)} allocated and ${bytes(m.peak_reserved)} reserved` });
    for (let k = 0; k <= 4; k++) {
      const value = most * k / 4;
      chart.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: py(value), y2: py(value) }),
        svg("text", { x: left - 8, y: py(value) + 4, "text-anchor": "end" }, bytes(value)));
    }
    const steps = Math.max(2, Math.floor(width / 130));
    for (let k = 0; k <= steps; k++) {
      const anchor = k === 0 ? "start" : k === steps ? "end" : "middle";
      chart.append(svg("text", { x: px(end * k / steps), y: height - 8, "text-anchor": anchor }, duration(end * k / steps)));
    }
    chart.append(svg("path", { d: `${line(1)}V${py(0)}H${px(points[0][0])}Z`, fill: "var(--device)", "fill-opacity": 0.22 }),
      svg("path", { d: line(1), fill: "none", stroke: "var(--device)", "stroke-width": 1.5 }),
      svg("path", { d: line(2), fill: "none", stroke: "var(--transfer)", "stroke-width": 1.5, "stroke-dasharray": "5 4" }),
      svg("circle", { cx: px(m.peak_time), cy: py(m.peak), r: 4.5, fill: "var(--device)", stroke: "var(--card)", "stroke-width": 1.5 }));
    const anchor = m.peak_time > end * 0.7 ? "end" : "start";
    chart.append(svg("text", { class: "strong", x: px(m.peak_time) + (anchor === "end" ? -9 : 9), y: py(m.peak) - 7, "text-anchor": anchor }, `peak ${bytes(m.peak)}`));
    const cursor = svg("line", { class: "axis", y1: top, y2: height - bottom, x1: 0, x2: 0, visibility: "hidden" });
    chart.append(cursor);
    const at = (t, x, y) => {
      let low = 0, high = points.length - 1;
      while (low < high) { const middle = (low + high + 1) >> 1; if (points[middle][0] <= t) low = middle; else high = middle - 1; }
      cursor.setAttribute("visibility", "visible"); cursor.setAttribute("x1", px(t)); cursor.setAttribute("x2", px(t));
      showTip([`at ${duration(t)}`, `allocated ${bytes(points[low][1])}`, `reserved ${bytes(points[low][2])}`], x, y);
    };
    let place = m.peak_time;
    chart.addEventListener("pointermove", (event) => {
      const edge = chart.getBoundingClientRect();
      place = Math.min(end, Math.max(0, (event.clientX - edge.left - left) / (width - left - right) * end));
      at(place, event.clientX, event.clientY);
    });
    chart.addEventListener("pointerleave", hideTip);
    chart.addEventListener("blur", hideTip);
    chart.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.preventDefault();
      place = Math.min(end, Math.max(0, place + (event.key === "ArrowLeft" ? -1 : 1) * end / 60));
      const edge = chart.getBoundingClientRect();
      at(place, edge.left + px(place), edge.top + top);
    });
    box.replaceChildren(chart);
  });
  const holders = el("ul", { class: "holders" }, m.tensors.map((row) => el("li", {},
    el("div", {}, row.line ? el("code", {}, `${row.line[0].split("/").pop()}:${row.line[1]}`) : "outside of Python",
      el("small", {}, `${row.line ? `${row.line[2]}, ` : ""}${count(row.count)} tensor${row.count > 1 ? "s" : ""}`)), el("span", {}, bytes(row.bytes)))));
  return section("Memory over time", `${count(m.allocations)} allocations; ${bytes(m.begin)} were there before the run.`,
    el("div", { class: "wide", id: "memory" },
      el("div", { class: "card" }, legend([["allocated to tensors", "var(--device)"], ["reserved from the device", "var(--transfer)"]]), box),
      el("div", { class: "card" }, el("h3", {}, "Who had it at the peak"), m.tensors.length ? holders : el("p", { class: "lead" }, "Nothing was allocated in this run."))));
}
