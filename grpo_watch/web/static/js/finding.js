// One finding: steps, summary, causes, what to do, cost, evidence, and the runbook on demand.
import { el, mark, prose } from "./dom.js";
import { shown } from "./format.js";
import { runbookFold } from "./runbook.js";

export function when(found) {
  const milder = found.told_severity !== found.severity;
  const received = `since step ${found.first_step}, fired at step ${found.fired_step}${milder ? ` as ${found.told_severity}` : ""}`;
  if (found.resolved_step === null) return received;
  return `${received}, resolved at step ${found.resolved_step}${found.resolved_step < found.fired_step ? " of a later attempt" : ""}`;
}

// What the daemon says in words, else each value as it was recorded.
function evidence(found) {
  if (found.evidence_words) return found.evidence_words.length > 0 && found.evidence_words.join(" · ");
  const values = Object.entries(found.evidence).filter(([, value]) => value !== null);
  return (
    values.length > 0 &&
    el(
      "div",
      { class: "evidence" },
      values.map(([name, value]) => el("span", {}, el("i", {}, name), " ", shown(value))),
    )
  );
}

function head(found) {
  return [
    el("h3", {}, found.rule, found.key && (found.keys?.length ?? 1) < 2 && ` ${found.key}`),
    el(
      "p",
      { class: "dim" },
      mark(found.severity),
      " ",
      found.since || when(found),
      found.attempt > 1 && ` · attempt ${found.attempt}`,
    ),
    el("p", { class: "seen" }, prose(found.summary)),
  ];
}

export function finding(found, key) {
  const rows = [
    !found.since && found.first_sign < found.first_step
      ? ["First sign", `step ${found.first_sign} (${found.first_sign_rule}), which this explains`]
      : null,
    ...found.causes.map((text) => ["Likely cause", prose(text)]),
    found.hint && found.severity !== "info" ? ["What to do", prose(found.hint)] : null,
    found.wasted_text ? ["Wasted so far", found.wasted_text] : null,
    ["Evidence", evidence(found)],
  ].filter((row) => row && row[1]);
  return el(
    "article",
    { class: `finding ${found.severity}` },
    head(found),
    el(
      "dl",
      {},
      rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
    ),
    runbookFold(found.rule, `${key}-runbook`),
  );
}

export function consequence(found, key) {
  return el(
    "article",
    { class: `finding ${found.severity}` },
    head(found),
    el("p", { class: "dim" }, `Explained by ${found.caused_by}: fix that first.`),
    evidence(found),
    runbookFold(found.rule, `${key}-runbook`),
  );
}
