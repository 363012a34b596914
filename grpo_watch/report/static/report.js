// Draws the charts of the first runs, and of each other one when it comes near the screen; reads nothing but the JSON block of this file.
(() => {
  "use strict";
  const HEIGHT = 190;
  const AT_ONCE = 4;
  const root = document.documentElement;
  const runs = JSON.parse(document.getElementById("data").textContent);
  const drawn = new Map();
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  function number(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace(/\.?0+e/, "e");
    return String(Number(value.toPrecision(5)));
  }

  function element(name, text, kind) {
    const made = document.createElement(name);
    if (text) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  function reach(plot, low, high) {
    if (low === null || high === null) return [0, 1];
    if (low === 0 && high === 0) return [-0.06, 1];
    const room = high > low ? (high - low) * 0.08 : Math.abs(high) * 0.2;
    return [low - room, high + room];
  }

  // Shades what alerts cover, below the lines; where several do, in the colour of the worst.
  function shade(plot, bands) {
    const { ctx, bbox } = plot;
    const ends = (band) => [
      across(plot, Math.min(band.first, band.fired)),
      band.resolved === null ? bbox.left + bbox.width : across(plot, band.resolved),
    ];
    const weight = (band) => (band.severity === "critical" ? 2 : 0) + (band.explained ? 0 : 1);
    const spans = bands.map((band) => ({ band, ends: ends(band) }));
    const edges = [...new Set(spans.flatMap((span) => span.ends))].sort((a, b) => a - b);
    edges.slice(1).forEach((to, place) => {
      const from = edges[place];
      const over = spans.filter((span) => span.ends[0] <= from && span.ends[1] >= to).map((span) => span.band);
      if (!over.length) return;
      const worst = over.reduce((one, other) => (weight(other) > weight(one) ? other : one));
      ctx.globalAlpha = worst.explained ? 0.5 : 1;
      ctx.fillStyle = colour(`--${worst.severity}-band`);
      ctx.fillRect(from, bbox.top, to - from, bbox.height);
    });
    ctx.globalAlpha = 1;
  }

  function marks(plot, bands) {
    const { ctx, bbox } = plot;
    const stroke = (step, paint, dashes) => {
      const at = plot.valToPos(step, "x", true);
      if (at < bbox.left - 1 || at > bbox.left + bbox.width + 1) return;
      ctx.save();
      ctx.strokeStyle = paint;
      ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.setLineDash(dashes.map((length) => length * devicePixelRatio));
      ctx.beginPath();
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
      ctx.restore();
    };
    for (const band of bands.filter((each) => !each.explained)) {
      stroke(band.fired, colour(`--${band.severity}`), []);
      if (band.resolved !== null && band.resolved >= band.fired) stroke(band.resolved, colour("--healthy"), [4, 3]);
    }
  }

  function across(plot, step) {
    const { left, width } = plot.bbox;
    return Math.min(Math.max(plot.valToPos(step, "x", true), left), left + width);
  }

  function options(chart, run, width, log) {
    const axis = () => ({ stroke: () => colour("--dim"), grid: { stroke: () => colour("--grid"), width: 1 }, ticks: { show: false } });
    return {
      width,
      height: HEIGHT,
      padding: [8, 22, 0, 0],
      cursor: { sync: { key: `run-${run}`, setSeries: false }, drag: { x: true, y: false } },
      scales: { x: { time: false }, y: log ? { distr: 3 } : { range: reach } },
      axes: [
        { ...axis(), size: 28, values: (plot, splits) => splits.map((at) => (Number.isInteger(at) ? number(at) : "")) },
        { ...axis(), size: 56, values: (plot, splits) => splits.map((at) => (at === null ? "" : number(at))) },
      ],
      series: [
        { label: "step", value: (plot, at) => (at === null ? "–" : String(at)) },
        ...chart.lines.map((line, index) => ({
          label: line.name,
          stroke: () => colour(line.faint ? "--dim" : `--s${index % 7}`),
          width: line.faint ? 1 : 1.5,
          dash: line.faint ? [3, 3] : undefined,
          spanGaps: line.sparse,
          points: line.faint ? { show: false } : line.sparse ? { show: true, size: 6 } : {},
          value: (plot, at) => number(at),
        })),
      ],
      hooks: {
        drawClear: [(plot) => shade(plot, runs[run].bands)],
        draw: [(plot) => marks(plot, runs[run].bands)],
      },
    };
  }

  function values(chart, log) {
    const positive = (line) => line.y.map((value) => (value !== null && value > 0 ? value : null));
    return [chart.x, ...chart.lines.map((line) => (log ? positive(line) : line.y))];
  }

  function draw(chart, run) {
    const box = element("div", "", "chart");
    const head = element("h4", chart.title);
    const area = element("div");
    const lines = chart.lines.map((line) => line.y).flat();
    const hidden = lines.filter((value) => value !== null && value <= 0).length;
    const some = lines.some((value) => value > 0);
    const note = element("div", "", "dim");
    let plot = null;
    let log = false;
    const say = () => {
      const told = [];
      if (chart.rows > chart.x.length) told.push(`${chart.rows} steps: of each stretch its lowest and highest values`);
      if (chart.odd) told.push(`${chart.odd} logged as NaN or infinite`);
      if (log && hidden) told.push(`${hidden} values of 0 or less have no place on a log scale`);
      note.textContent = told.join("; ");
    };
    const make = () => {
      if (plot) plot.destroy();
      plot = new uPlot(options(chart, run, area.clientWidth || 320, log), values(chart, log), area);
      say();
    };
    if (some) {
      const button = element("button", "log");
      button.type = "button";
      button.title = "Logarithmic scale";
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => {
        log = !log;
        button.setAttribute("aria-pressed", String(log));
        make();
      });
      head.append(button);
    }
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", chart.title);
    box.append(head, area, note);
    return { box, make, fit: () => plot && plot.setSize({ width: area.clientWidth, height: HEIGHT }) };
  }

  function show(holder) {
    if (drawn.has(holder)) return;
    const run = Number(holder.dataset.run);
    const made = runs[run].charts.map((chart) => draw(chart, run));
    drawn.set(holder, made);
    holder.replaceChildren(...made.map((each) => each.box));
    made.forEach((each) => each.make());
  }

  const holders = document.querySelectorAll(".charts");
  const near = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => show(entry.target)),
    { rootMargin: "800px" },
  );
  holders.forEach((holder, place) => (place < AT_ONCE ? show(holder) : near.observe(holder)));
  addEventListener("beforeprint", () => holders.forEach(show));
  addEventListener("resize", () => [...drawn.values()].flat().forEach((each) => each.fit()));

  const again = () => [...drawn.values()].flat().forEach((each) => each.make());
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", again);
  const button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    again();
  });
})();
