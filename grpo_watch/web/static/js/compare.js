// Two runs side by side: where they part, in what, and how else they differ.
import { ask, asking } from "./api.js";
import { el, mark, part, renew, table, visible } from "./dom.js";
import { count, shown } from "./format.js";
import { columns, number, options, t } from "./plot.js";
import { go, query } from "./router.js";

const SIDES = ["a", "b"];

export function comparePage(main, route, tell) {
  const [first, second] = [route.name, route.query.get("with") || ""];
  const choices = el("div", { class: "tools" });
  const body = el("div");
  const grid = el("div", { class: "charts" });
  renew(main, [el("h1", { class: "title" }, t("Compare two runs")), choices, body, grid]);
  document.title = "Compare · grpo-watch";
  let plots = [];

  const to = (a, b) => go(`/compare/${encodeURIComponent(a)}`, query({ with: b }));
  const drawChoices = part(choices, ({ runs }) =>
    SIDES.map((side) =>
      el("label", {}, el("span", { class: "dim" }, `${side} `), choice(side, runs, side === "a" ? first : second, (value) => (side === "a" ? to(value, second) : to(first, value)))),
    ),
  );
  const drawBody = part(body, (received) => differences(received));
  const asked = asking(
    () => `compare?${query({ a: first, b: second })}`,
    (received) => {
      tell([]);
      drawChoices({ runs: received.runs.map(({ slug, run }) => ({ slug, run })) });
      if (!received.comparison) return renew(body, el("p", { class: "dim" }, t("Choose two runs.")));
      drawBody(received);
      charts(received.comparison);
    },
    (problem) => tell([problem.message]),
  );

  async function charts(comparison) {
    const both = await Promise.all([first, second].map((slug) => ask(`runs/${encodeURIComponent(slug)}/charts`))).catch(() => []);
    plots.forEach((plot) => plot.destroy());
    plots = [];
    grid.replaceChildren();
    if (both.length < 2 || !grid.isConnected) return;
    for (const chart of both[0].charts) {
      const other = both[1].charts.find((each) => each.title === chart.title);
      if (other) plots.push(overlaid(grid, chart, other, comparison.parted_step));
    }
  }

  const fit = () => plots.forEach((plot) => plot.setSize({ width: plot.root.parentElement.clientWidth, height: plot.height }));
  addEventListener("resize", fit);
  return {
    now: asked.now,
    stop: () => (asked.stop(), removeEventListener("resize", fit), plots.forEach((plot) => plot.destroy())),
    rerouted: (next) => (next.query.get("with") || "") !== second && dispatchEvent(new Event("reopen")),
  };
}

function choice(side, runs, chosen, run) {
  const blank = runs.some((each) => each.slug === chosen) ? [] : [el("option", { value: "" }, t("choose a run"))];
  const listed = runs.map((each) => el("option", { value: each.slug, selected: each.slug === chosen }, each.run));
  return el("select", { "aria-label": t("Run {side}", { side }), "data-key": side, on: { change: (event) => run(event.target.value) } }, blank, listed);
}

function differences({ comparison, whole }) {
  const { runs, settings, findings, metrics } = comparison;
  const parted = metrics.filter((each) => each.status === "parted").sort((one, other) => other.counted - one.counted || one.parted_step - other.parted_step);
  const listed = (status, words) => {
    const names = metrics.filter((each) => each.status === status).map((each) => each.metric);
    return whole && names.length > 0 && el("p", { class: "dim" }, `${t(words)}: ${names.join(", ")}`);
  };
  return [
    el("ul", {}, SIDES.map((side) => el("li", {}, `${side}: `, mark(runs[side].verdict), " ", runs[side].run, el("span", { class: "dim" }, ` · ${t("step {step}", { step: runs[side].steps })}`)))),
    el("p", { class: "seen" }, verdict(comparison, parted, whole)),
    parted.length > 0 &&
      table(
        ["metric", "parted at", "a", "b", "noise"],
        parted.map((each) => [[el("code", {}, each.metric), !each.counted && t(" (not counted)")], t("step {step}", { step: each.parted_step }), short(each.a), short(each.b), short(each.noise)]),
      ),
    settings.length > 0 && [
      el("h2", {}, count(settings.length, "setting that differs", "settings that differ")),
      table(
        ["setting", "a", "b"],
        settings.map((each) => [el("code", {}, each.setting), ...SIDES.map((side) => (each[side] ? shown(each[side].value) : el("span", { class: "dim" }, t("unknown"))))]),
      ),
    ],
    findings.length > 0 && [
      el("h2", {}, t("Findings of one run only")),
      table(
        ["run", "finding", "since", ""],
        findings.map((each) => [each.only_in, [mark(each.severity), " ", each.rule], t("step {step}", { step: each.first_step }), each.summary]),
      ),
    ],
    listed("differs", "Different within noise"),
    listed("same", "The same"),
    listed("only-a", "Only in a"),
    listed("only-b", "Only in b"),
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

// The first line of both charts over the steps of either.
function overlaid(grid, a, b, parted) {
  const area = el("div");
  grid.append(el("div", { class: "chart", role: "group", "aria-label": a.title }, el("h3", {}, t(a.title)), area));
  const x = [...new Set([...a.x, ...b.x])].sort((one, other) => one - other);
  const line = (chart, name) => {
    const at = new Map(chart.x.map((step, place) => [step, chart.lines[0].y[place]]));
    return { name: `${name}: ${visible(chart.lines[0].name)}`, y: x.map((step) => at.get(step) ?? null), faint: false, sparse: false, joined: true };
  };
  const both = { x, lines: [line(a, "a"), line(b, "b")] };
  const resumes = parted === null ? [] : [{ at: parted, label: t("parted") }];
  return new uPlot(options(both, { key: "compare", bands: [], resumes, width: area.clientWidth || 320 }), columns(both, false), area);
}
