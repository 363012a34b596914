// When alerts began, fired and ended: one lane for each rule, steps from left to right.
import { el, svg } from "./dom.js";
import { t } from "./plot.js";

export function timeline({ findings, noted, step }) {
  if (!findings.length && !noted.length) return [];
  const last = Math.max(step, 1, ...findings.map((found) => found.fired_step));
  const across = (at) => Math.round((10000 * Math.min(Math.max(at, 0), last)) / last) / 100;
  const lanes = new Map();
  for (const found of [...findings].sort((a, b) => a.first_step - b.first_step || a.fired_step - b.fired_step)) {
    const name = `${found.rule} ${found.key}`;
    lanes.set(name, [...(lanes.get(name) || []), found]);
  }
  return [
    el("h2", {}, t("Timeline")),
    el("p", { class: "dim" }, t("Pale: from the first sign; full colour: from firing; ring: resolved.")),
    el(
      "div",
      { class: "tl" },
      [...lanes].map(([name, found]) => lane(name, found.map((one) => episode(one, across)), found.map((one) => one.course))),
      noted.length > 0 && ownLane(noted, across),
      el("div", { class: "axis" }, el("span", {}, t("step {step}", { step: 0 })), el("span", {}, t("step {step}", { step: last }))),
    ),
  ];
}

// What the run itself noted: a stroke each.
function ownLane(noted, across) {
  const stroke = (at) => svg("line", { x1: `${at}%`, x2: `${at}%`, y1: 1, y2: 19, class: "info fired" });
  return lane(
    t("noted by the run"),
    noted.map((one) => stroke(across(one.step))),
    noted.map((one) => `${t("step {step}", { step: one.step })}: ${one.text}`),
  );
}

function lane(name, drawn, texts) {
  return el(
    "div",
    { class: "lane" },
    el("div", { class: "name" }, name),
    svg(
      "svg",
      { width: "100%", height: 20, "aria-hidden": "true" },
      svg("line", { x1: 0, x2: "100%", y1: 10, y2: 10, class: "ground" }),
      drawn,
    ),
    el("div", { class: "dim when" }, texts.join("; ")),
  );
}

function episode(found, across) {
  const first = Math.min(across(found.first_step), across(found.fired_step));
  const fired = across(found.fired_step);
  const end = found.resolved_step === null ? 100 : across(found.resolved_step);
  const bar = (from, to, kind) =>
    svg("rect", { x: `${from}%`, width: `${Math.max(0, to - from)}%`, y: 4, height: 12, class: kind });
  return [
    bar(first, fired, `${found.severity} pending`),
    bar(fired, end, found.severity),
    svg("line", { x1: `${fired}%`, x2: `${fired}%`, y1: 1, y2: 19, class: `${found.told_severity} fired` }),
    found.resolved_step !== null && end >= fired && svg("circle", { cx: `${end}%`, cy: 10, r: 5, class: "resolved" }),
  ];
}
