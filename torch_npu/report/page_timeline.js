// Lanes on a canvas: drag or arrow keys move, the wheel with Ctrl, the buttons or + and - zoom.
function timeline() {
  const { names, places, lanes } = facts.timeline;
  const LANE = 30, GAP = 8, HEAD = 26, BUSY = 44, LABEL = 14, STRIDE = 5;
  const end = facts.wall_us * 10;
  let from = 0, to = end, hit = -1;
  const busy = facts.timeline.busy;
  const canvas = el("canvas", { tabindex: 0, role: "application",
    "aria-label": "Timeline of host threads and device streams. Arrow keys move, plus and minus zoom, 0 shows everything." });
  const height = HEAD + BUSY + GAP + lanes.length * (LANE + LABEL + GAP);
  canvas.style.height = `${height}px`;
  const top = (k) => HEAD + BUSY + GAP + k * (LANE + LABEL + GAP) + LABEL;

  function draw() {
    const width = canvas.clientWidth, ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    const fills = places.map((place) => color(place)), soft = color("soft"), rule = color("rule"), ink = color("ink"), card = color("card");
    const x = (t) => (t - from) / (to - from) * width;
    const font = getComputedStyle(document.body).fontFamily;
    c.font = `12px ${font}`;
    const step = niceStep((to - from) / Math.max(2, width / 110));
    c.strokeStyle = rule;
    c.fillStyle = soft;
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      c.beginPath(); c.moveTo(Math.round(x(t)) + 0.5, HEAD - 6); c.lineTo(Math.round(x(t)) + 0.5, height); c.stroke();
      const text = duration(t / 10);
      c.fillText(text, Math.min(x(t) + 3, width - c.measureText(text).width), 13);
    }
    drawBusy(c, busy, x, end, width, HEAD, BUSY, fills[places.indexOf("device")], soft, card);
    lanes.forEach((lane, k) => {
      const y = top(k), s = lane.slices;
      c.fillStyle = rule;
      c.globalAlpha = 0.45;
      c.fillRect(0, y, width, LANE);
      c.globalAlpha = 1;
      for (let i = 0; i < s.length; i += STRIDE) {
        if (s[i] > to || s[i] + s[i + 1] < from) continue;
        const a = Math.max(x(s[i]), -2), b = Math.min(x(s[i] + s[i + 1]), width + 2), wide = Math.max(b - a, 1);
        c.fillStyle = fills[s[i + 3]];
        c.globalAlpha = s[i + 4] > 1 ? 0.8 : 1;
        c.fillRect(a, y, wide, LANE);
        c.globalAlpha = 1;
        if (wide > 2.5) { c.fillStyle = card; c.fillRect(a + wide - 0.6, y, 0.6, LANE); }
        if (wide > 46) {
          c.fillStyle = places[s[i + 3]] === "host" ? ink : card;
          c.save(); c.beginPath(); c.rect(a, y, wide - 3, LANE); c.clip();
          c.fillText(shortName(names[s[i + 2]]), Math.max(a, 0) + 5, y + 19);
          c.restore();
        }
        if (hit === `${k}:${i}`) { c.strokeStyle = ink; c.lineWidth = 1.5; c.strokeRect(a + 0.5, y + 0.5, Math.max(wide - 1, 1), LANE - 1); c.lineWidth = 1; }
      }
      c.fillStyle = soft;
      c.fillText(lane.name, 0, y - 4);
    });
  }

  function find(px, py) {
    const k = lanes.findIndex((_, n) => py >= top(n) && py <= top(n) + LANE);
    if (k < 0) return null;
    const width = canvas.clientWidth, t = from + px / width * (to - from), slack = 2 * (to - from) / width, s = lanes[k].slices;
    let best = null;
    for (let i = 0; i < s.length; i += STRIDE) {
      if (s[i] > t + slack) break;
      const away = Math.max(s[i] - t, t - s[i] - s[i + 1], 0);
      if (away <= slack && (best === null || away < best.away || (away === best.away && s[i + 1] <= best.length))) best = { k, i, away, length: s[i + 1] };
    }
    return best;
  }
  function describe(found) {
    const s = lanes[found.k].slices, i = found.i, many = s[i + 4];
    return [names[s[i + 2]], many > 1 ? `and ${count(many - 1)} more, ${duration(s[i + 1] / 10)} together` : duration(s[i + 1] / 10),
      `at ${duration(s[i] / 10)}`, NAMES[places[s[i + 3]]] === NAMES.host ? "on the host" : NAMES[places[s[i + 3]]]];
  }
  function view(a, b) {
    const span = Math.min(end, Math.max(b - a, 20));
    from = Math.min(Math.max(0, a), end - span);
    to = from + span;
    draw();
  }
  function zoom(factor, at = 0.5) {
    const middle = from + at * (to - from), span = (to - from) * factor;
    view(middle - at * span, middle + (1 - at) * span);
  }
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, from, to }; canvas.setPointerCapture(event.pointerId); canvas.classList.add("drag"); });
  canvas.addEventListener("pointerup", () => { drag = null; canvas.classList.remove("drag"); });
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    if (drag) {
      const moved = (drag.x - event.clientX) / box.width * (drag.to - drag.from);
      view(drag.from + moved, drag.to + moved);
      hideTip();
      return;
    }
    const found = find(event.clientX - box.left, event.clientY - box.top);
    const now = found ? `${found.k}:${found.i}` : -1;
    if (now !== hit) { hit = now; draw(); }
    if (found) showTip(describe(found), event.clientX, event.clientY); else hideTip();
  });
  canvas.addEventListener("pointerleave", () => { hit = -1; hideTip(); draw(); });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - box.left) / box.width);
  }, { passive: false });
  canvas.addEventListener("dblclick", () => view(0, end));
  canvas.addEventListener("keydown", (event) => {
    const part = (to - from) * 0.15;
    const moves = { ArrowLeft: () => view(from - part, to - part), ArrowRight: () => view(from + part, to + part), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.6), 0: () => view(0, end) };
    if (moves[event.key]) { event.preventDefault(); moves[event.key](); }
  });
  redrawn(canvas, draw);
  const button = (text, label, act) => el("button", { class: "plain", type: "button", "aria-label": label, onclick: act }, text);
  const used = new Set(lanes.flatMap((lane) => lane.slices.filter((_, i) => i % STRIDE === 3)));
  const entries = places.map((place, k) => [place === "host" ? "ops on the host" : NAMES[place], `var(--${place})`, k]).filter(([, , k]) => used.has(k));
  const merged = facts.timeline.resolution ? ` Neighbours shorter than ${duration(facts.timeline.resolution)} are drawn as one.` : "";
  const clock = facts.simulated ? " The device's lengths are those of the computed chip, placed where they were asked for." : "";
  return section("Timeline", `What the host asked for, and what the device did. Drag to move; Ctrl and the wheel, or the buttons, zoom.${merged}${clock}`,
    el("div", { class: "card", id: "timeline" }, legend(entries, button("−", "zoom out", () => zoom(1.6)), button("+", "zoom in", () => zoom(0.6)), button("all", "show everything", () => view(0, end))), canvas));
}

function niceStep(raw) {
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
}
const shortName = (name) => name.replace(/^aten::/, "").replace(/^autograd::engine::evaluate_function: /, "");

function drawBusy(c, busy, x, end, width, top, height, fill, soft, card) {
  const base = top + height;
  c.fillStyle = fill;
  c.globalAlpha = 0.28;
  c.beginPath();
  c.moveTo(x(0), base);
  busy.forEach((value, k) => { const y = base - value * (height - 8); c.lineTo(x(end * k / busy.length), y); c.lineTo(x(end * (k + 1) / busy.length), y); });
  c.lineTo(x(end), base);
  c.fill();
  c.globalAlpha = 1;
  const text = "how busy the device was";
  const wide = c.measureText(text).width;
  c.fillStyle = card;
  c.globalAlpha = 0.8;
  c.fillRect(0, base - 17, wide + 8, 16);
  c.globalAlpha = 1;
  c.fillStyle = soft;
  c.fillText(text, 2, base - 5);
}
