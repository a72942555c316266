/* What all charts of a page share: numbers, axes, legends, and what the pointer or the arrow keys point at. They are SVG;
   colours are classes of style.css, so that light, dark and print need no new drawing. */
const NS = "http://www.w3.org/2000/svg", COLOURS = 7;
const dashes = ["", "7 3", "2 3", "9 3 2 3", "5 2 5 2 2 2"];
const markers = [  // around 0, 0
  "M0 -4A4 4 0 1 1 0 4A4 4 0 1 1 0 -4Z", "M-3.5 -3.5H3.5V3.5H-3.5Z", "M0 -4.5L4.5 3.5H-4.5Z", "M0 -4.8L4.8 0L0 4.8L-4.8 0Z",
  "M0 4.5L4.5 -3.5H-4.5Z", "M-4 -4L0 -1.5L4 -4L1.5 0L4 4L0 1.5L-4 4L-1.5 0Z", "M-1.5 -4H1.5V-1.5H4V1.5H1.5V4H-1.5V1.5H-4V-1.5H-1.5Z",
  "M-4.5 0L3.5 -4.5V4.5Z", "M4.5 0L-3.5 -4.5V4.5Z", "M0 -5L1.3 -1.3L5 0L1.3 1.3L0 5L-1.3 1.3L-5 0L-1.3 -1.3Z",
  "M0 -4.5L4.3 -1.4L2.6 3.6H-2.6L-4.3 -1.4Z", "M-2.2 -4H2.2L4.4 0L2.2 4H-2.2L-4.4 0Z",
];
const cividis = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
const words = (name) => name.replaceAll("_", " ");

function element(parent, name, properties = {}, ...texts) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...texts);
  parent.append(made);
  return made;
}
function draw(parent, name, attributes = {}, text = "") {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  parent.append(made);
  return made;
}
function choice(parent, text, options, changed) {
  const label = element(parent, "label", {}, text + " "), select = element(label, "select");
  for (const [value, shown] of options) element(select, "option", { value, textContent: shown });
  select.addEventListener("change", changed);
  return select;
}
function check(parent, text, changed) {
  const label = element(parent, "label"), box = element(label, "input", { type: "checkbox" });
  label.append(" " + text);
  box.addEventListener("change", changed);
  return box;
}

/* Numbers and axes. */
const power = (k) => "10" + String(k).replace(/./g, (one) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[+one] ?? "⁻");
function number(value) {
  const size = Math.abs(value);
  if (size >= 1e4 && size < 1e15) {
    const place = Math.floor(Math.log10(size) / 3);
    return +(value / 1000 ** place).toPrecision(4) + ["", "k", "M", "G", "T"][place];
  }
  return size !== 0 && (size < 1e-3 || size >= 1e15) ? value.toExponential(2) : String(+value.toPrecision(4));
}
function wide(values) {  // no value is negative, and the positive ones span more than an ordinary axis shows
  const known = values.filter((v) => v !== null);
  let least = Infinity, low = Infinity, high = 0;
  for (const v of known) { low = Math.min(low, v); high = Math.max(high, v); if (v > 0) least = Math.min(least, v); }
  return high > 0 && low >= 0 && high > 20 * least;
}
function axis(values, log, from, to, ticks, zero) {  // where values lie, in pixels, and which have a label
  let low = Infinity, high = -Infinity;
  for (const v of values) if (v !== null && (!log || v > 0)) { low = Math.min(low, v); high = Math.max(high, v); }
  if (low > high) [low, high] = log ? [0.1, 1] : [0, 1];
  if (zero && !log) low = Math.min(0, low);
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  const scale = log ? Math.log10 : (v) => v;
  const room = zero ? 0 : 0.04 * (scale(high) - scale(low)), first = scale(low) - room, last = scale(high) + room;
  const at = (v) => from + (to - from) * (scale(v) - first) / (last - first);
  const marks = [], lines = [];
  if (log) {
    const step = Math.max(1, Math.ceil((last - first) / ticks)), few = last - first < 2;
    for (let k = Math.ceil(first - 1); k <= last; k++) {
      for (const m of [1, 2, 3, 4, 5, 6, 7, 8, 9]) {
        const v = m * 10 ** k, s = Math.log10(v);
        if (s < first || s > last) continue;
        if (m === 1 && k % step === 0) marks.push([v, few && Math.abs(k) < 4 ? number(v) : power(k)]);
        else if (few && (m === 2 || m === 5)) marks.push([v, number(v)]);
        else if (step === 1) lines.push(v);
      }
    }
  } else {
    const rough = (last - first) / ticks, size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].find((one) => one * size >= rough) * size;
    for (let k = Math.ceil(first / step); k * step <= last + step * 1e-9; k++) marks.push([k * step, number(k * step)]);
  }
  return { at, marks, lines, log };
}
function frame(place, alt, height, x, y, titles) {  // an empty plot with axes; x and y make axes for a range of pixels
  const width = place.clientWidth;
  const svg = draw(place, "svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": alt, tabindex: 0 });
  const box = { top: 12, bottom: height - 44, right: width - 12, left: 12 };
  const dummy = y(box.bottom, box.top);
  box.left = 28 + 7 * Math.max(2, ...dummy.marks.map(([, text]) => text.length));
  const across = x(box.left, box.right), up = y(box.bottom, box.top);
  for (const [v, text] of up.marks) {
    draw(svg, "line", { class: "grid", x1: box.left, x2: box.right, y1: up.at(v), y2: up.at(v) });
    draw(svg, "text", { x: box.left - 6, y: up.at(v) + 4, "text-anchor": "end" }, text);
  }
  for (const v of up.lines) draw(svg, "line", { class: "grid fine", x1: box.left, x2: box.right, y1: up.at(v), y2: up.at(v) });
  for (const [v, text] of across.marks) {
    draw(svg, "line", { class: "grid", x1: across.at(v), x2: across.at(v), y1: box.top, y2: box.bottom });
    draw(svg, "text", { x: across.at(v), y: box.bottom + 17, "text-anchor": "middle" }, text);
  }
  draw(svg, "path", { class: "axis", d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` });
  const middle = (box.left + box.right) / 2, long = titles[0].length * 6.6;
  draw(svg, "text", { class: "xtitle", x: Math.max(long / 2, Math.min(middle, width - long / 2)), y: height - 8, "text-anchor": "middle" }, titles[0]);
  draw(svg, "text", { class: "ytitle", "text-anchor": "middle", transform: `translate(13 ${(box.top + box.bottom) / 2}) rotate(-90)` }, titles[1]);
  return { svg, box, across, up };
}
function cursor(svg, output, count, tell) {  // what stands at a place, by pointer and by arrow keys
  let place = -1;
  const show = (next) => { place = Math.max(0, Math.min(count - 1, next)); output.textContent = tell(place); };
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Home") show(0);
    else if (event.key === "End") show(count - 1);
    else if (step) show(place + step);
    else return;
    event.preventDefault();
  });
  return show;
}
function sized(place, redraw) {  // draws when the width is known, and again when it changes
  let width = 0;
  const again = () => {
    if (!place.clientWidth) return;
    width = place.clientWidth;
    place.replaceChildren();
    redraw();
  };
  new ResizeObserver(() => { if (place.clientWidth !== width) again(); }).observe(place);
  again();
  return again;
}
function sample(parent, i, line) {  // of a legend
  const svg = draw(parent, "svg", { width: 34, height: 14, "aria-hidden": true });
  if (!line) return draw(svg, "rect", { x: 4, y: 1, width: 18, height: 12, class: "area", fill: fill(i) });
  draw(svg, "path", { class: "line s" + (i % COLOURS), d: "M1 7H33", "stroke-dasharray": dashes[i % dashes.length] });
  draw(svg, "path", { class: "mark s" + (i % COLOURS) + (i % 2 ? " hollow" : ""), d: markers[i % markers.length], transform: "translate(17 7)" });
}
function legend(parent, labels, hidden, changed, line) {
  const list = element(parent, "ul", { className: "legend" });
  labels.forEach((label, i) => {
    const button = element(element(list, "li"), "button", { type: "button", title: "show or hide" });
    sample(button, i, line);
    element(button, "span", {}, label);
    button.setAttribute("aria-pressed", true);
    button.addEventListener("click", () => {
      if (!hidden.delete(label)) hidden.add(label);
      button.setAttribute("aria-pressed", !hidden.has(label));
      changed();
    });
  });
}

/* The charts of a page: every <figure class="chart"> holds its data as JSON, and data-kind names its function. */
function curves(figure, data, alt) {
  const controls = element(figure, "div", { className: "controls" }), hidden = new Set();
  const y = choice(controls, "show", data.y.map((name) => [name, words(name)]), fresh);
  const x = choice(controls, "against", data.x, fresh);
  const logX = check(controls, "log x", () => again()), logY = check(controls, "log y", () => again());
  if (data.labels.length > 1) legend(figure, data.labels, hidden, () => again(), true);
  const place = element(figure, "div", { className: "plot" }), output = element(figure, "output");
  const list = (at) => data.lists[at];
  const view = () => (data.views[x.value + "|" + y.value] ?? []).map((one) => ({
    label: one.label, x: list(one.x), mean: list(one.mean), low: "low" in one ? list(one.low) : null, high: "low" in one ? list(one.high) : null,
  }));
  function fresh() {
    logX.checked = wide(view().map((one) => Math.max(...one.x)));
    logY.checked = wide(view().flatMap((one) => one.mean));
    if (again) again();
  }
  function redraw() {
    const shown = view().filter((one) => !hidden.has(one.label));
    const xs = shown.flatMap((one) => one.x), ticks = Math.max(2, Math.floor(place.clientWidth / 95));
    const ys = shown.flatMap((one) => (logY.checked || !one.low ? one.mean : [...one.mean, ...one.low, ...one.high]));
    const title = data.x.find(([name]) => name === x.value)[1];
    const { svg, box, across, up } = frame(place, alt, Math.min(420, Math.max(300, place.clientWidth * 0.7)),
      (from, to) => axis(xs, logX.checked, from, to, ticks), (from, to) => axis(ys, logY.checked, from, to, 6), [title, words(y.value)]);
    const id = "c" + Math.random().toString(36).slice(2);
    draw(draw(draw(svg, "defs"), "clipPath", { id }), "rect", { x: box.left, y: box.top - 6, width: box.right - box.left + 8, height: box.bottom - box.top + 6 });
    const inside = draw(svg, "g", { "clip-path": `url(#${id})` });
    const seen = (v, log) => v !== null && (!log || v > 0);
    const floor = (v) => (logY.checked && v <= 0 ? box.bottom + 20 : up.at(v));
    const good = (one) => one.x.map((_, k) => k).filter((k) => seen(one.x[k], logX.checked) && seen(one.mean[k], logY.checked));
    for (const one of shown) {
      const i = data.labels.indexOf(one.label), kept = good(one);
      if (!one.low || !kept.length) continue;
      const there = kept.map((k) => `${across.at(one.x[k]).toFixed(1)} ${floor(one.high[k]).toFixed(1)}`);
      const back = kept.map((k) => `${across.at(one.x[k]).toFixed(1)} ${floor(one.low[k]).toFixed(1)}`).reverse();
      draw(inside, "path", { class: "band s" + (i % COLOURS), style: `opacity:${Math.min(0.17, 0.6 / shown.length)}`, d: `M${[...there, ...back].join("L")}Z` });
    }
    for (const one of shown) {
      const i = data.labels.indexOf(one.label), style = "s" + (i % COLOURS), kept = good(one);
      const last = one.mean.length - 1;
      if (last >= 0 && one.x.every((v) => v === 0) && seen(one.mean[last], logY.checked))  // it spends nothing
        draw(inside, "path", { class: "line " + style, "stroke-dasharray": "1 4", d: `M${box.left} ${up.at(one.mean[last])}H${box.right}` });
      if (!kept.length) continue;
      const points = kept.map((k) => [across.at(one.x[k]), up.at(one.mean[k])]);
      const thick = Math.max(1.4, 3 - 1.6 * i / Math.max(1, data.labels.length - 1));
      if (points.length > 1) draw(inside, "path", {
        class: "line trace " + style, style: `stroke-width:${data.labels.length > 1 ? thick : 2}px`, "stroke-dasharray": dashes[i % dashes.length],
        d: "M" + points.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L"),
      });
      if (data.labels.length === 1 && points.length > 1) continue;
      let way = points.length > 1 ? 110 * ((0.5 + 0.618 * i) % 1) : 0, gone = 0;  // markers of coincident lines alternate
      points.forEach(([a, b], k) => {
        if (k) gone += Math.hypot(a - points[k - 1][0], b - points[k - 1][1]);
        if (gone < way) return;
        way = gone + 110;
        draw(svg, "path", { class: "mark " + style + (i % 2 ? " hollow" : ""), d: markers[i % markers.length], transform: `translate(${a.toFixed(1)} ${b.toFixed(1)})` });
      });
    }
    const stops = [...new Set(xs.filter((v) => seen(v, logX.checked)))].sort((a, b) => a - b);
    const rule = draw(svg, "line", { class: "rule", y1: box.top, y2: box.bottom, x1: -9, x2: -9 });
    const show = cursor(svg, output, stops.length, (k) => {
      const here = stops[k];
      rule.setAttribute("x1", across.at(here));
      rule.setAttribute("x2", across.at(here));
      const said = shown.map((one) => {
        let best = -1;
        one.x.forEach((v, j) => { if (v <= here) best = j; });
        return best < 0 || one.mean[best] === null ? "" : (data.labels.length > 1 ? one.label + " " : "") + number(one.mean[best]);
      });
      return `${title.split(" (")[0]} ${number(here)}: ${said.filter(Boolean).join(", ")}`;
    });
    svg.addEventListener("pointermove", (event) => {
      const at = event.clientX - svg.getBoundingClientRect().left;
      let best = 0;
      stops.forEach((v, k) => { if (Math.abs(across.at(v) - at) < Math.abs(across.at(stops[best]) - at)) best = k; });
      if (stops.length) show(best);
    });
  }
  let again = null;
  fresh();
  again = sized(place, redraw);
}

function network(figure, data, alt) {
  const controls = element(figure, "div", { className: "controls" });
  const field = choice(controls, "colour by", Object.keys(data.fields).map((one) => [one, words(one)]), () => again());
  const label = element(controls, "label", {}, "after round "), max = data.rounds.length - 1;
  const slider = element(label, "input", { type: "range", min: 0, max, value: max }), shown = element(label, "output");
  const play = element(controls, "button", { type: "button", textContent: "play" });
  const key = element(figure, "div", { className: "key" }), place = element(figure, "div", { className: "plot" }), output = element(figure, "output");
  let timer = 0;
  const stop = () => { clearInterval(timer); timer = 0; play.textContent = "play"; };
  play.addEventListener("click", () => {
    if (timer) return stop();
    if (+slider.value === max) slider.value = 0;
    play.textContent = "stop";
    timer = setInterval(() => {
      slider.value = +slider.value + 1;
      again();
      if (+slider.value === max) stop();
    }, still ? 900 : 300);
    again();
  });
  slider.addEventListener("input", () => again());
  function redraw() {
    const moment = +slider.value, values = data.fields[field.value];
    shown.textContent = data.rounds[moment];
    slider.setAttribute("aria-valuetext", "round " + data.rounds[moment]);
    const known = values.flat().filter((v) => v !== null), log = wide(known);
    const scale = (v) => (log ? Math.log10(Math.max(v, least)) : v), least = Math.min(...known.filter((v) => v > 0));
    const ends = known.length ? [Math.min(...known), Math.max(...known)].map(scale) : [0, 1];
    const tint = (v) => cividis[Math.round(9 * (ends[1] > ends[0] ? (scale(v) - ends[0]) / (ends[1] - ends[0]) : 0.5))];
    const real = (v) => number(log ? 10 ** v : v);
    key.replaceChildren(`${words(field.value)}: ${real(ends[0])} `);
    element(key, "span", { className: "ramp" });
    key.append(` ${real(ends[1])}` + (log ? " (logarithmic)" : ""));
    const width = place.clientWidth, height = Math.min(520, width), svg = draw(place, "svg", {
      viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": alt, tabindex: 0,
    });
    const size = data.nodes.length > 100 ? 5 : 9, pad = size + 4, side = Math.min(width, height) - 2 * pad;
    const spread = (all) => [Math.min(...all), Math.max(...all)];
    const [[x0, x1], [y0, y1]] = [spread(data.x), spread(data.y)], longest = Math.max(x1 - x0, y1 - y0) || 1;
    const x = data.x.map((v) => width / 2 + side * (v - (x0 + x1) / 2) / longest), y = data.y.map((v) => height / 2 + side * (v - (y0 + y1) / 2) / longest);
    let last = 0;
    data.links.forEach((one, i) => { if (one.moment <= moment) last = i; });
    const joined = data.links.length ? data.links[last].pairs : [];
    draw(svg, "path", { class: "links", d: joined.map(([a, b]) => `M${x[a].toFixed(1)} ${y[a].toFixed(1)}L${x[b].toFixed(1)} ${y[b].toFixed(1)}`).join("") || "M0 0" });
    const sent = data.fields.communications, caption = (i) => ["node " + data.nodes[i], ...Object.entries(data.fields).map(
      ([name, all]) => words(name) + " " + (all[moment][i] === null ? "not finite" : number(all[moment][i])))].join(", ");
    const show = cursor(svg, output, data.nodes.length, caption);
    data.nodes.forEach((_, i) => {
      const busy = !sent || sent[moment][i] > (moment ? sent[moment - 1][i] : 0), v = values[moment][i];
      const node = draw(svg, "circle", { class: "node", cx: x[i], cy: y[i], r: size * (busy ? 1 : 0.55), fill: v === null ? "none" : tint(v) });
      draw(node, "title", {}, caption(i));
      node.addEventListener("pointerenter", () => show(i));
    });
  }
  const again = sized(place, redraw);
}

const fill = (i) => (i < COLOURS ? `var(--c${i})` : `url(#hatch${i})`);
function bars(figure, data, alt) {
  const labels = data.series.map((one) => one.label), hidden = new Set();
  if (labels.length > 1) legend(figure, labels, hidden, () => again(), false);
  const place = element(figure, "div", { className: "plot" }), output = element(figure, "output");
  function redraw() {
    const shown = data.series.filter((one) => !hidden.has(one.label)), n = data.x.length;
    const sums = data.x.map((_, k) => shown.reduce((sum, one) => sum + (one.y[k] ?? 0), 0));
    const every = Math.max(1, Math.ceil(n / Math.max(2, Math.floor(place.clientWidth / 55))));
    const across = (from, to) => ({ at: (k) => from + (to - from) * (k + 0.5) / n, lines: [], marks: data.x.map((v, k) => [k, String(v)]).filter(([k]) => k % every === 0) });
    const { svg, box, across: x, up } = frame(place, alt, 340, across, (from, to) => axis(sums, false, from, to, 5, true), [data.x_title, data.y_title]);
    const wideness = Math.max(1, 0.8 * (box.right - box.left) / n), below = data.x.map(() => 0);
    const show = cursor(svg, output, n, (k) => `${data.x_title} ${data.x[k]}: ` + shown.map((one) => (labels.length > 1 ? one.label + " " : "") + number(one.y[k] ?? 0)).join(", "));
    for (const one of shown) {
      const i = labels.indexOf(one.label), group = draw(svg, "g", { class: "series" });
      one.y.forEach((v, k) => {
        const top = up.at(below[k] + (v ?? 0)), bottom = up.at(below[k]);
        below[k] += v ?? 0;
        const bar = draw(group, "rect", { class: "area", fill: fill(i), x: x.at(k) - wideness / 2, width: wideness, y: top, height: Math.max(0, bottom - top) });
        bar.addEventListener("pointerenter", () => show(k));
      });
    }
  }
  const again = sized(place, redraw);
}

function timeline(figure, data, alt) {
  element(figure, "figcaption", {}, alt);
  const key = element(figure, "ul", { className: "legend still" }), place = element(figure, "div", { className: "plot" }), output = element(figure, "output");
  const glyph = (parent, kind, x, y) => draw(parent, "path", {
    class: "event s" + (kind % COLOURS) + (kind % 2 ? " ring" : ""), d: markers[kind % markers.length], transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${kind % 2 ? 1.7 : 1})`,
  });
  const entry = (text, drawn) => {
    const one = element(key, "li");
    drawn(draw(one, "svg", { width: 26, height: 16, "aria-hidden": true }));
    element(one, "span", {}, text);
  };
  data.kinds.forEach((kind, i) => {
    if (data.events.some((one) => one[2] === i)) entry(kind, (svg) => glyph(svg, i, 13, 8));
  });
  const joint = (one) => one[0] === one[2], join = (svg, x0, y0, x1, y1) => {  // those of one event are bowed, since others may be at its time
    const middle = (x0 + x1) / 2 + (x0 === x1 ? 5 + 0.07 * Math.abs(y1 - y0) : 0);
    draw(svg, "path", { class: "sent", d: `M${x0.toFixed(1)} ${y0.toFixed(1)}Q${middle.toFixed(1)} ${((y0 + y1) / 2).toFixed(1)} ${x1.toFixed(1)} ${y1.toFixed(1)}` });
  };
  const partner = (svg, x, y) => draw(svg, "circle", { class: "partner", cx: x.toFixed(1), cy: y.toFixed(1), r: 2.4 });
  if (data.messages.some(joint)) entry("exchange with a partner", (svg) => { join(svg, 11, 1, 11, 13); partner(svg, 11, 13); });
  if (!data.messages.every(joint)) entry("sent, and used", (svg) => join(svg, 2, 14, 24, 2));
  const end = Math.max(...data.events.map(([time]) => time), 0), n = data.nodes.length;
  const caption = (k) => {
    const [time, lane, kind] = data.events[k], own = data.messages.filter(([start, giver]) => start === time && giver === lane);
    const others = own.map((one) => (joint(one) ? ", with node " + data.nodes[one[3]] : `, used by node ${data.nodes[one[3]]} at ${number(one[2])} s`));
    return `${number(time)} s: node ${data.nodes[lane]}, ${data.kinds[kind]}${others.join("")}`;
  };
  function redraw() {
    const lanes = (from, to) => ({ at: (k) => from + (to - from) * (k + 0.5) / n, lines: [], marks: data.nodes.map((v, k) => [k, String(v)]) });
    const ticks = Math.max(2, Math.floor(place.clientWidth / 95));
    const { svg, across, up } = frame(place, alt, 62 + 34 * n, (from, to) => axis([0, end * 1.02], false, from, to, ticks, true), lanes, ["simulated seconds", "node"]);
    for (const [start, giver, last, taker] of data.messages) {
      join(svg, across.at(start), up.at(giver), across.at(last), up.at(taker));
      if (start === last) partner(svg, across.at(last), up.at(taker));
    }
    const show = cursor(svg, output, data.events.length, caption);
    data.events.forEach(([time, lane, kind], k) => {
      const mark = glyph(svg, kind, across.at(time), up.at(lane));
      draw(mark, "title", {}, caption(k));
      mark.addEventListener("pointerenter", () => show(k));
    });
  }
  sized(place, redraw);
}

const hatches = draw(draw(document.body, "svg", { width: 0, height: 0, "aria-hidden": true, class: "hatches" }), "defs");
for (let i = COLOURS; i < 4 * COLOURS; i++) {
  const pattern = draw(hatches, "pattern", { id: "hatch" + i, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${45 * Math.floor(i / COLOURS)})` });
  draw(pattern, "rect", { width: 6, height: 6, fill: `var(--c${i % COLOURS})` });
  draw(pattern, "path", { d: "M0 3H6", class: "stripe" });
}
const kinds = { curves, network, bars, timeline };
for (const figure of document.querySelectorAll("figure.chart"))
  kinds[figure.dataset.kind](figure, JSON.parse(figure.querySelector("script").textContent), figure.getAttribute("aria-label"));
const opened = [];
matchMedia("print").addEventListener("change", (event) => {  // on paper nothing can be unfolded
  const folded = event.matches ? document.querySelectorAll("details:not([open])") : opened.splice(0);
  for (const one of folded) one.open = event.matches;
  if (event.matches) opened.push(...folded);
});
