// What the charts of the status page and of the HTML report share: numbers, ranges, bands of alerts, uPlot's options.

// Our texts in the reader's language, by their English; places in braces are filled with values.
export const words = {};
export const t = (text, values = {}) => (words[text] ?? text).replace(/\{(\w+)\}/g, (place, name) => String(values[name] ?? place));

export const HEIGHT = 190;
export const LEAD_HEIGHT = 300;

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(5)));
}

export function element(name, text, kind) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function reach(plot, low, high) {
  if (low === null || high === null) return [0, 1];
  if (low === 0 && high === 0) return [-0.06, 1];
  if (low === 1 && high === 1 && plot.series.every((line, at) => at === 0 || line.share)) return [0, 1.06];
  const room = high > low ? (high - low) * 0.08 : Math.abs(high) * 0.2;
  return [low - room, high + room];
}

function across(plot, place) {
  const { left, width } = plot.bbox;
  return Math.min(Math.max(plot.valToPos(place, "x", true), left), left + width);
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

// Labels stand below each other where they would touch, and left of a stroke that is near the right end.
function stroke(plot, place, paint, dashes, label, taken) {
  const { ctx, bbox } = plot;
  const at = plot.valToPos(place, "x", true);
  if (at < bbox.left - 1 || at > bbox.left + bbox.width + 1) return;
  ctx.save();
  ctx.strokeStyle = paint;
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash(dashes.map((length) => length * devicePixelRatio));
  ctx.beginPath();
  ctx.moveTo(at, bbox.top);
  ctx.lineTo(at, bbox.top + bbox.height);
  ctx.stroke();
  if (label) {
    ctx.fillStyle = paint;
    ctx.textBaseline = "alphabetic";
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    const room = ctx.measureText(label).width + 8 * devicePixelRatio;
    const from = at + room > bbox.left + bbox.width ? at - room : at;
    const level = [0, 1, 2, 3, 4].find((each) => taken.every((other) => other.level !== each || other.to < from || other.from > from + room)) ?? 0;
    taken.push({ level, from, to: from + room });
    ctx.textAlign = "left";
    const [x, y] = [from + 4 * devicePixelRatio, bbox.top + (11 + 13 * level) * devicePixelRatio];
    ctx.setLineDash([]);
    ctx.strokeStyle = colour("--ground"); // keeps the label apart from a line below it
    ctx.lineWidth = 3 * devicePixelRatio;
    ctx.strokeText(label, x, y);
    ctx.fillText(label, x, y);
  }
  ctx.restore();
}

// A full stroke where an alert fired, a dashed one where it resolved, a dotted one where a restart went on.
function marks(plot, bands, resumes, lead) {
  const taken = [];
  for (const band of bands.filter((each) => !each.explained)) {
    stroke(plot, band.fired, colour(`--${band.severity}`), [], lead ? t("{rule} fired", { rule: band.rule }) : "", taken);
    if (band.resolved !== null && band.resolved >= band.fired) stroke(plot, band.resolved, colour("--healthy"), [4, 3]);
  }
  for (const resume of resumes) stroke(plot, resume.at, colour("--dim"), [1, 3], resume.label || t("attempt {n}", { n: resume.attempt }), taken);
}

const whole = (plot, splits) => splits.map((at) => (Number.isInteger(at) ? number(at) : ""));

// uPlot's options for one chart. `place` has: key (charts with the same one share their cursor), bands, resumes, width,
// log, smooth.
export function options(chart, { key, bands, resumes = [], width, log, lead = false, smooth = 0 }) {
  const axis = () => ({
    stroke: () => colour("--dim"),
    grid: { stroke: () => colour("--grid"), width: 1 },
    ticks: { show: false },
  });
  return {
    width,
    height: lead ? LEAD_HEIGHT : HEIGHT,
    padding: [8, 22, 0, 0],
    cursor: { sync: { key, setSeries: false }, drag: { x: true, y: false } },
    scales: { x: { time: false }, y: log ? { distr: 3 } : { range: reach } },
    axes: [
      { ...axis(), size: 28, values: whole },
      { ...axis(), size: 56, values: (plot, splits) => splits.map((at) => (at === null ? "" : number(at))) },
    ],
    series: [
      { label: t("step"), value: (plot, at) => (at === null ? "–" : String(at)) },
      ...drawnLines(chart, smooth).map(({ line, index, role }) => ({
        share: line.share ?? line.name.endsWith("_ratio"),
        label: role === "smooth" ? `${line.name} ${t("smoothed")}` : line.name,
        stroke: () => colour(`--s${index % 7}`),
        alpha: role === "raw" ? 0.35 : 1,
        width: 1.5,
        spanGaps: line.sparse || line.joined || role === "smooth",
        points: role ? { show: false } : line.sparse ? { show: true, size: 6 } : {},
        value: (plot, at) => number(at),
      })),
    ],
    hooks: {
      drawClear: [(plot) => shade(plot, bands)],
      draw: [(plot) => marks(plot, bands, resumes, lead)],
    },
  };
}

// uPlot's columns; a log scale has no place for 0 and below.
export function columns(chart, log, smooth = 0) {
  const positive = (y) => y.map((value) => (value !== null && value > 0 ? value : null));
  const values = drawnLines(chart, smooth).map(({ line, role }) => (role === "smooth" ? smoothed(line.y, smooth) : line.y));
  return [chart.x, ...values.map((y) => (log ? positive(y) : y))];
}

// What is drawn of a chart: each line, and above it its smoothed course where that is asked for.
function drawnLines(chart, smooth) {
  return chart.lines.flatMap((line, index) =>
    smooth ? [{ line, index, role: "raw" }, { line, index, role: "smooth" }] : [{ line, index, role: "" }],
  );
}

// An exponential moving average without the pull of its start, as TensorBoard has it: 0 is none, 1 would be flat.
export function smoothed(y, weight) {
  let sum = 0;
  let share = 0;
  return y.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return sum / share;
  });
}

// What a chart does not show, in words.
export function caveats(chart, log) {
  const received = [];
  const hidden = chart.lines.flatMap((line) => line.y).filter((value) => value !== null && value <= 0).length;
  if (chart.rows > chart.x.length) received.push(t("{n} steps: showing the lowest and highest values of each interval", { n: chart.rows }));
  if (chart.odd) received.push(t("{n} logged as NaN or infinite", { n: chart.odd }));
  if (log && hidden) received.push(t("{n} values of 0 or less are not shown on a log scale", { n: hidden }));
  return received.join("; ");
}
