// Runs side by side: where each parts from the first, in what, and how else they differ; and all in one chart a metric.
import { ask, asking } from "./api.js";
import { el, mark, part, renew, table, visible } from "./dom.js";
import { count, shown } from "./format.js";
import { columns, number, options, t } from "./plot.js";
import { go, query } from "./router.js";

const SIDES = [..."abcdefg"]; // as many runs as charts have colours

export function comparePage(main, route, tell) {
  const others = route.query.get("with") || "";
  const chosen = [route.name, ...others.split(",").filter(Boolean)].slice(0, SIDES.length);
  const choices = el("div", { class: "tools" });
  const body = el("div");
  const grid = el("div", { class: "charts" });
  renew(main, [el("h1", { class: "title" }, t("Compare runs")), choices, body, grid]);
  document.title = `${t("Compare")} · grpo-watch`;
  let plots = [];

  const choose = (place, slug) => {
    const [first, ...rest] = Object.assign([...chosen], { [place]: slug });
    go(`/compare/${encodeURIComponent(first)}`, query({ with: rest.filter(Boolean).join(",") }));
  };
  const drawChoices = part(choices, ({ runs }) =>
    SIDES.slice(0, Math.max(2, chosen.length + 1)).map((side, place) =>
      el("label", {}, el("span", { class: "dim" }, `${side} `), choice(side, runs, chosen[place], (slug) => choose(place, slug))),
    ),
  );
  const drawBody = part(body, (pairs) => [runsOf(pairs), pairs.map((pair, place) => differences(pair, SIDES[place + 1], pairs.length > 1))]);
  const pair = (other = "") => `compare?${query({ a: chosen[0], b: other })}`;
  const asked = asking(
    () => pair(chosen[1]),
    async (received) => {
      tell([]);
      drawChoices({ runs: received.runs.map(({ slug, run }) => ({ slug, run })) });
      if (!received.comparison) return renew(body, el("p", { class: "dim" }, t("Choose two runs or more.")));
      try {
        const more = await Promise.all(chosen.slice(2).map((other) => ask(pair(other))));
        const pairs = [received, ...more].map(({ comparison, whole }) => ({ comparison, whole }));
        drawBody(pairs);
        await charts(pairs.map(({ comparison }) => comparison.parted_step));
      } catch (problem) {
        tell([problem.message]);
      }
    },
    (problem) => tell([problem.message]),
  );

  async function charts(parted) {
    const all = await Promise.all(chosen.map((slug) => ask(`runs/${encodeURIComponent(slug)}/charts`)));
    plots.forEach((plot) => plot.destroy());
    plots = [];
    grid.replaceChildren();
    if (!grid.isConnected) return;
    for (const { title } of all[0].charts) {
      const lines = all.map(({ charts }) => charts.find((each) => each.title === title));
      if (lines.filter(Boolean).length > 1) plots.push(overlaid(grid, title, lines, parted));
    }
  }

  const fit = () => plots.forEach((plot) => plot.setSize({ width: plot.root.parentElement.clientWidth, height: plot.height }));
  addEventListener("resize", fit);
  return {
    now: asked.now,
    stop: () => (asked.stop(), removeEventListener("resize", fit), plots.forEach((plot) => plot.destroy())),
    rerouted: (next) => (next.query.get("with") || "") !== others && dispatchEvent(new Event("reopen")),
  };
}

function choice(side, runs, chosen, run) {
  const needed = side === "a" || side === "b";
  const blank = needed && runs.some((each) => each.slug === chosen) ? [] : [el("option", { value: "" }, t("choose a run"))];
  const listed = runs.map((each) => el("option", { value: each.slug, selected: each.slug === chosen }, each.run));
  return el("select", { "aria-label": t("Run {side}", { side }), "data-key": side, on: { change: (event) => run(event.target.value) } }, blank, listed);
}

function runsOf(pairs) {
  const runs = [pairs[0].comparison.runs.a, ...pairs.map(({ comparison }) => comparison.runs.b)];
  const about = (run) => [mark(run.verdict), " ", run.run, el("span", { class: "dim" }, ` · ${t("step {step}", { step: run.steps })}`)];
  return el("ul", {}, runs.map((run, place) => el("li", {}, `${SIDES[place]}: `, about(run))));
}

// Of the first run and another, which is called `b` where it comes from.
function differences({ comparison, whole }, other, several) {
  const { settings, findings, metrics } = comparison;
  const first = SIDES[0];
  const name = (side) => (side === "b" ? other : first);
  const parted = metrics.filter((each) => each.status === "parted").sort((one, other) => other.counted - one.counted || one.parted_step - other.parted_step);
  const listed = (status, words, run) => {
    const names = metrics.filter((each) => each.status === status).map((each) => each.metric);
    return whole && names.length > 0 && el("p", { class: "dim" }, `${t(words, { run })}${t(": ")}${names.join(", ")}`);
  };
  return [
    several && el("h2", {}, t("{one} and {other}", { one: first, other })),
    el("p", { class: "seen" }, verdict(comparison, parted, whole)),
    parted.length > 0 &&
      table(
        ["metric", "parted at", first, other, "noise"],
        parted.map((each) => [[el("code", {}, each.metric), !each.counted && t(" (not counted)")], t("step {step}", { step: each.parted_step }), short(each.a), short(each.b), short(each.noise)]),
      ),
    settings.length > 0 && [
      el("h2", {}, count(settings.length, "setting that differs", "settings that differ")),
      table(
        ["setting", first, other],
        settings.map((each) => [el("code", {}, each.setting), ...["a", "b"].map((side) => (each[side] ? shown(each[side].value) : el("span", { class: "dim" }, t("unknown"))))]),
      ),
    ],
    findings.length > 0 && [
      el("h2", {}, t("Findings of one run only")),
      table(
        ["run", "finding", "since", ""],
        findings.map((each) => [name(each.only_in), [mark(each.severity), " ", each.rule], t("step {step}", { step: each.first_step }), each.summary]),
      ),
    ],
    listed("differs", "Different within noise"),
    listed("same", "The same"),
    listed("only-a", "Only in {run}", "a"),
    listed("only-b", "Only in {run}", other),
  ];
}

function verdict(comparison, parted, whole) {
  const steps = comparison.common_steps;
  if (!whole) return t("At least one run is too long for the daemon to keep every row; grpo-watch diff compares their files step by step.");
  if (comparison.parted_step === null)
    return comparison.verdict === "same" ? t("No difference beyond noise in {n} common steps.", { n: steps.count }) : t("Too few common steps to compare ({n}).", { n: steps.count });
  const first = parted.filter((each) => each.counted && each.parted_step === comparison.parted_step).map((each) => each.metric);
  const rules = comparison.findings.filter((each) => each.counted && each.first_step === comparison.parted_step).map((each) => each.rule);
  return t("They part at step {step} of {n} common steps: {what}.", { step: comparison.parted_step, n: steps.count, what: [...first, ...rules].join(", ") });
}

// NaN and infinities arrive as texts.
const short = (value) => (typeof value === "number" || value === null ? number(value) : String(value));

// The first line of each run's chart, where it has it, over the steps of all.
function overlaid(grid, title, charts, parted) {
  const area = el("div");
  grid.append(el("div", { class: "chart", role: "group", "aria-label": title }, el("h3", {}, t(title)), area));
  const x = [...new Set(charts.flatMap((chart) => (chart ? [...chart.x] : [])))].sort((one, other) => one - other);
  const line = (chart, place) => {
    const at = new Map(chart?.x.map((step, index) => [step, chart.lines[0].y[index]]));
    const name = `${SIDES[place]}: ${chart ? visible(chart.lines[0].name) : "–"}`;
    return { name, y: x.map((step) => at.get(step) ?? null), sparse: false, joined: true };
  };
  const all = { x, lines: charts.map(line) };
  const resumes = parted.map((at, place) => ({ at, label: `${SIDES[place + 1]} ${t("parted")}` })).filter(({ at }) => at !== null);
  return new uPlot(options(all, { key: "compare", bands: [], resumes, width: area.clientWidth || 320 }), columns(all, false), area);
}
