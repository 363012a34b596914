// When alerts began, fired and ended: one lane for each rule, steps from left to right.
import { el, svg } from "./dom.js";
import { t } from "./plot.js";

export function timeline({ findings, step }) {
  if (!findings.length) return [];
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
      [...lanes].map(([name, found]) => lane(name, found, across)),
      el("div", { class: "axis" }, el("span", {}, t("step {step}", { step: 0 })), el("span", {}, t("step {step}", { step: last }))),
    ),
  ];
}

function lane(name, episodes, across) {
  return el(
    "div",
    { class: "lane" },
    el("div", { class: "name" }, name),
    svg(
      "svg",
      { width: "100%", height: 20, "aria-hidden": "true" },
      svg("line", { x1: 0, x2: "100%", y1: 10, y2: 10, class: "ground" }),
      episodes.map((found) => episode(found, across)),
    ),
    el("div", { class: "dim when" }, episodes.map((found) => found.course).join("; ")),
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
