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
