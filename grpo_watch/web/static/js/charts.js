// The charts of a run: one cursor for all, linear or logarithmic; the keyboard moves the cursor too.
import { asking } from "./api.js";
import { button, el, renew, visible } from "./dom.js";
import { HEIGHT, LEAD_HEIGHT, caveats, columns, number, options, smoothed, t } from "./plot.js";
import { go, query } from "./router.js";

const SMOOTH = [0, 0.6, 0.9, 0.97];
const APART = "\n"; // between the names of metrics in the address: labels hold commas, no name a line break

export function chartsPart(holder, slug, route, show) {
  const grid = el("div", { class: "charts" });
  const tools = el("div", { class: "tools" });
  let drawn = [];
  let received = null;
  renew(holder, [el("h2", {}, t("Metrics by step")), tools, grid]);

  const state = () => ({
    log: route.query.get("log") === "1",
    also: (route.query.get("also") || "").split(APART).filter(Boolean),
    smooth: SMOOTH.find((each) => each === Number(route.query.get("smooth"))) || 0,
    step: /^\d{1,12}$/.test(route.query.get("step") || "") ? Number(route.query.get("step")) : null,
  });
  const change = (changes) =>
    go(`/run/${slug}`, query({ ...Object.fromEntries(route.query), ...changes }), { quiet: true });

  function bar() {
    const { log, smooth } = state();
    const pressed = (on) => ({ "aria-pressed": String(on) });
    renew(tools, [
      button(t("log scale"), () => change({ log: log ? "" : "1" }), {
        ...pressed(log),
        "data-key": "log",
        "aria-keyshortcuts": "l",
      }),
      el(
        "label",
        { class: "dim" },
        t("smoothing "),
        el(
          "select",
          { "data-key": "smooth", on: { change: (event) => change({ smooth: event.target.value }) } },
          SMOOTH.map((each) => el("option", { value: each || "", selected: each === smooth }, each ? String(each) : t("none"))),
        ),
      ),
      received?.further.length > 0 && more(),
      el(
        "span",
        { class: "dim" },
        t("Shaded: an alert that the chart shows evidence of. Solid line: fired; dashed: resolved; dotted: the run resumed. Drag to zoom, double-click to reset; a click puts the step into the address; arrow keys move the cursor."),
      ),
    ]);
  }

  // Any other metric that was logged; the address names those that are shown.
  function more() {
    const { also } = state();
    const toggled = (event) => {
      const { value } = event.target;
      change({ also: (also.includes(value) ? also.filter((each) => each !== value) : [...also, value]).join(APART) });
    };
    const choice = ({ title }) => el("option", { value: title }, `${also.includes(title) ? "✓ " : ""}${title}`);
    return el("select", { "data-key": "also", "aria-label": t("more metrics"), on: { change: toggled } }, el("option", { value: "" }, t("more metrics")), received.further.map(choice));
  }

  function draw() {
    const { log, smooth, also } = state();
    received.charts = [...received.own, ...received.further.filter(({ title }) => also.includes(title))];
    const same =
      drawn.length === received.charts.length &&
      drawn.every((each, place) => each.fits(received.charts[place], log, smooth));
    if (same) drawn.forEach((each, place) => each.renew(received, received.charts[place]));
    else {
      drawn.forEach((each) => each.destroy());
      const pointed = (step) => change({ step: String(step) });
      drawn = received.charts.map((chart) => oneChart(chart, received, slug, { log, smooth, pointed }));
      grid.replaceChildren(...drawn.map((each) => each.box));
      drawn.forEach((each) => each.make());
    }
    drawn.forEach((each) => each.point(state().step));
  }

  const asked = asking(
    () => `runs/${slug}/charts`,
    (answer) => {
      received = { ...answer, own: answer.charts.map(legible), further: answer.further.map((each) => legible({ ...each, lead: false, rules: [] })) };
      show(received.own.length > 0);
      bar();
      draw();
    },
    () => {},
  );
  const again = () => received && (drawn.forEach((each) => each.destroy()), (drawn = []), draw());
  const fit = () => drawn.forEach((each) => each.fit());
  addEventListener("resize", fit);
  addEventListener("themechange", again);
  bar();
  return {
    now: asked.now,
    stop: () => {
      asked.stop();
      removeEventListener("resize", fit);
      removeEventListener("themechange", again);
      drawn.forEach((each) => each.destroy());
    },
    rerouted: (next) => {
      const before = state();
      route = next;
      bar();
      if (JSON.stringify({ ...state(), step: 0 }) !== JSON.stringify({ ...before, step: 0 })) again();
      else drawn.forEach((each) => each.point(state().step));
    },
  };
}

// Names of reward functions are texts of the run.
function legible(chart) {
  // A line has one name: what the run itself calls it, where it does.
  const named = (line) => visible(line.key || line.name);
  return { ...chart, lines: chart.lines.map((line) => ({ ...line, name: named(line), share: line.name.endsWith("_ratio") })) };
}

function oneChart(chart, received, key, { log, smooth, pointed }) {
  const area = el("div");
  const note = el("div", { class: "dim" });
  const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 };
  const moved = (event) => {
    if (!(event.key in moves)) return;
    event.preventDefault();
    move(plot, moves[event.key]);
  };
  const box = el(
    "div",
    { class: chart.lead ? "chart lead" : "chart", role: "group", "aria-label": t(chart.title), tabindex: 0, on: { keydown: moved } },
    el("div", { class: "head" }, el("h3", {}, t(chart.title)), el("b", { class: "last" })),
    area,
    note,
  );
  const place = { key, log, bands: [], resumes: [], lead: chart.lead };
  const shape = (of, scale, weight) =>
    JSON.stringify([of.title, of.lead, of.lines.map((line) => [line.name, line.sparse]), scale, weight]);
  const own = shape(chart, log, smooth);
  let plot = null;
  const fillIn = (next, now) => {
    const own = now.bands.filter((band) => next.rules.includes(band.rule)); // what a chart shows no evidence of is not shaded
    place.bands.splice(0, Infinity, ...own); // the same arrays, which the plot's hooks hold
    box.querySelector(".last").textContent = lastValue(next, smooth);
    place.resumes.splice(0, Infinity, ...now.resumes);
    note.textContent = caveats(next, log);
  };
  return {
    box,
    fits: (next, scale, weight) => shape(next, scale, weight) === own,
    make: () => {
      fillIn(chart, received);
      area.addEventListener("click", () => plot.cursor.idx !== null && !plot.select.width && pointed(plot.data[0][plot.cursor.idx]));
      plot = new uPlot(options(chart, { ...place, smooth, width: area.clientWidth || 320 }), columns(chart, log, smooth), area);
    },
    renew: (now, next) => {
      fillIn(next, now);
      const { min, max } = plot.scales.x;
      const zoomed = plot.data[0].length > 1 && (min > plot.data[0][0] || max < plot.data[0].at(-1));
      plot.setData(columns(next, log, smooth));
      if (zoomed) plot.setScale("x", { min, max });
    },
    // The step of the address; with a click on a chart the address names that step.
    point: (step) => {
      place.resumes.splice(0, Infinity, ...place.resumes.filter((each) => !each.pointed));
      if (step !== null) place.resumes.push({ at: step, label: t("step {step}", { step }), pointed: true });
      plot?.redraw(false);
    },
    fit: () => plot?.setSize({ width: area.clientWidth, height: chart.lead ? LEAD_HEIGHT : HEIGHT }),
    destroy: () => plot?.destroy(),
  };
}

// The newest value of the first line, and what it is smoothed.
function lastValue(chart, smooth) {
  const newest = (y) => y.findLast((each) => each !== null);
  const y = chart.lines[0]?.y || [];
  if (newest(y) === undefined) return "";
  return smooth ? `${number(newest(y))} · ${t("smoothed")} ${number(newest(smoothed(y, smooth)))}` : number(newest(y));
}

function move(plot, by) {
  const steps = plot.data[0];
  const from = plot.cursor.idx ?? (by > 0 ? -1 : steps.length);
  const at = Math.min(Math.max(from + by, 0), steps.length - 1);
  plot.setCursor({ left: plot.valToPos(steps[at], "x"), top: plot.bbox.height / devicePixelRatio / 2 }, true, true);
}
