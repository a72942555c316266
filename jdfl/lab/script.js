"use strict";
/* Draws the charts of a page: every <figure class="chart"> holds its data as JSON, and data-kind says what it is. */
(() => {
  const dashes = ["solid", "dash", "dot", "dashdot"];
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;

  function look(height) {
    const ink = style("--ink"), line = style("--line");
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true, exponentformat: "SI" };
    return {
      height, autosize: true, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, family: "system-ui, sans-serif", size: 13 }, margin: { l: 55, r: 15, t: 15, b: 45 },
      hoverlabel: { bgcolor: style("--soft"), font: { color: ink } },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
      xaxis: { ...axis }, yaxis: { ...axis, exponentformat: "power" },
    };
  }
  const colour = (i) => { const all = style("--series").split(/\s+/); return all[i % all.length]; };
  const clear = (hex) => hex + "30";

  function element(parent, name, properties = {}) {
    const made = Object.assign(document.createElement(name), properties);
    parent.append(made);
    return made;
  }
  function choice(parent, text, options, chosen, changed) {
    const label = element(parent, "label");
    label.append(text + " ");
    const select = element(label, "select");
    for (const [value, shown] of options) element(select, "option", { value, textContent: shown });
    if (chosen !== undefined) select.value = chosen;
    select.addEventListener("change", changed);
    return select;
  }
  function check(parent, text, changed) {
    const label = element(parent, "label");
    const box = element(label, "input", { type: "checkbox" });
    label.append(" " + text);
    box.addEventListener("change", changed);
    return box;
  }
  function plot(figure, alt) {
    const place = element(figure, "div");
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", alt);
    return place;
  }
  const options = { responsive: true, displaylogo: false, displayModeBar: "hover" };
  function wide(values) {  // no value is negative, and the positive ones span more than an ordinary axis shows
    const known = values.filter((v) => v !== null), positive = known.filter((v) => v > 0);
    return positive.length > 0 && Math.min(...known) >= 0 && Math.max(...positive) > 20 * Math.min(...positive);
  }
  const words = (name) => name.replaceAll("_", " ");

  function curves(figure, data, alt) {
    const controls = element(figure, "div", { className: "controls" });
    const place = plot(figure, alt);
    const y = choice(controls, "show", data.y.map((name) => [name, words(name)]), data.y[0], fresh);
    const x = choice(controls, "against", data.x, data.x[0][0], fresh);
    const logX = check(controls, "log x", draw), logY = check(controls, "log y", draw);
    const view = () => data.views[x.value + "|" + y.value] ?? [];
    function fresh() {
      logX.checked = wide(view().map((one) => Math.max(...one.x)));
      logY.checked = wide(view().flatMap((one) => one.mean));
      draw();
    }
    function draw() {
      const traces = [];
      for (const one of view()) {
        const i = data.labels.indexOf(one.label), tint = colour(i), group = { legendgroup: one.label, x: one.x };
        if (one.low) {
          const edge = { ...group, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
          traces.push({ ...edge, y: one.low }, { ...edge, y: one.high, fill: "tonexty", fillcolor: clear(tint) });
        }
        traces.push({
          ...group, y: one.mean, name: one.label, mode: one.x.length > 1 ? "lines" : "markers",
          line: { color: tint, width: 2, dash: dashes[Math.floor(i / 7) % dashes.length] }, marker: { color: tint },
        });
      }
      const layout = look(420);
      layout.showlegend = data.labels.length > 1;
      Object.assign(layout.xaxis, { title: { text: data.x.find(([name]) => name === x.value)[1] } });
      Object.assign(layout.yaxis, { title: { text: words(y.value) } });
      layout.xaxis.type = logX.checked ? "log" : "linear";
      layout.yaxis.type = logY.checked ? "log" : "linear";
      Plotly.react(place, traces, layout, options);
    }
    fresh();
    return draw;
  }

  function network(figure, data, alt) {
    const controls = element(figure, "div", { className: "controls" });
    const place = plot(figure, alt);
    const field = choice(controls, "colour by", Object.keys(data.fields).map((one) => [one, words(one)]), undefined, draw);
    const label = element(controls, "label");
    label.append("after round ");
    const slider = element(label, "input", { type: "range", min: 0, max: data.rounds.length - 1, value: data.rounds.length - 1 });
    const shown = element(label, "output");
    const play = element(controls, "button", { type: "button", textContent: "play" });
    let timer = 0;
    const stop = () => { clearInterval(timer); timer = 0; play.textContent = "play"; };
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (+slider.value === +slider.max) slider.value = 0;
      play.textContent = "stop";
      timer = setInterval(() => {
        slider.value = +slider.value + 1;
        draw();
        if (+slider.value === +slider.max) stop();
      }, still ? 900 : 300);
      draw();
    });
    slider.addEventListener("input", draw);
    function draw() {
      const moment = +slider.value, values = data.fields[field.value];
      shown.textContent = data.rounds[moment];
      slider.setAttribute("aria-valuetext", "round " + data.rounds[moment]);
      let last = 0;
      data.links.forEach((one, i) => { if (one.moment <= moment) last = i; });
      const x = [], y = [];
      for (const [a, b] of data.links[last].pairs) {
        x.push(data.x[a], data.x[b], null);
        y.push(data.y[a], data.y[b], null);
      }
      const known = values.flat().filter((v) => v !== null);
      const log = wide(known), least = Math.min(...known.filter((v) => v > 0));
      const tint = (v) => (v === null || !log ? v : Math.log10(Math.max(v, least)));
      const ends = known.length ? [tint(Math.min(...known)), tint(Math.max(...known))] : [0, 1];
      const powers = Array.from({ length: Math.floor(ends[1]) - Math.ceil(ends[0]) + 1 }, (_, i) => Math.ceil(ends[0]) + i);
      const ticks = log && powers.length > 1 ? { tickvals: powers, ticktext: powers.map((one) => "10<sup>" + one + "</sup>") }
        : log ? { tickvals: ends, ticktext: ends.map((one) => (10 ** one).toPrecision(2)) } : {};
      const heard = data.fields.communications;
      const busy = data.nodes.map((_, i) => !heard || heard[moment][i] > (moment ? heard[moment - 1][i] : 0));
      const text = data.nodes.map((node, i) => ["node " + node, ...Object.entries(data.fields).map(
        ([name, all]) => words(name) + ": " + (all[moment][i] === null ? "not finite" : all[moment][i]))].join("<br>"));
      const layout = look(520);
      for (const axis of [layout.xaxis, layout.yaxis]) Object.assign(axis, { visible: false });
      layout.yaxis.scaleanchor = "x";
      layout.showlegend = false;
      layout.margin = { l: 10, r: 10, t: 10, b: 10 };
      Plotly.react(place, [
        { x, y, mode: "lines", line: { color: style("--line"), width: 1 }, hoverinfo: "skip" },
        {
          x: data.x, y: data.y, text, mode: "markers", hovertemplate: "%{text}<extra></extra>",
          marker: {
            size: busy.map((one) => (one ? 1 : 0.55) * (data.nodes.length > 100 ? 11 : 18)), opacity: 1,
            color: values[moment].map(tint), colorscale: "Cividis", cmin: ends[0], cmax: ends[1],
            line: { color: style("--ink"), width: 1 },
            colorbar: { title: { text: words(field.value), side: "right" }, thickness: 12, outlinewidth: 0, ...ticks },
          },
        },
      ], layout, options);
    }
    draw();
    return draw;
  }

  function bars(figure, data, alt) {
    const place = plot(figure, alt);
    function draw() {
      const layout = look(340);
      layout.barmode = "stack";
      layout.showlegend = data.series.length > 1;
      Object.assign(layout.xaxis, { title: { text: data.x_title } });
      Object.assign(layout.yaxis, { title: { text: data.y_title } });
      Plotly.react(place, data.series.map((one, i) => ({
        type: "bar", x: data.x, y: one.y, name: one.label,
        marker: { color: colour(i), pattern: { shape: ["", "/", ".", "x"][Math.floor(i / 7) % 4] } },
      })), layout, options);
    }
    draw();
    return draw;
  }

  const kinds = { curves, network, bars }, redraw = [];
  for (const figure of document.querySelectorAll("figure.chart")) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    redraw.push(kinds[figure.dataset.kind](figure, data, figure.getAttribute("aria-label")));
  }
  const again = () => redraw.forEach((draw) => draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  const opened = [];
  matchMedia("print").addEventListener("change", (event) => {  // on paper nothing can be unfolded
    const folded = event.matches ? document.querySelectorAll("details:not([open])") : opened.splice(0);
    for (const one of folded) one.open = event.matches;
    if (event.matches) opened.push(...folded);
    again();
  });
  addEventListener("toggle", (event) => {
    if (event.target.open) event.target.querySelectorAll(".js-plotly-plot").forEach((one) => Plotly.Plots.resize(one));
  }, true);
})();
