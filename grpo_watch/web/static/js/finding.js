// One finding: steps, summary, causes, what to do, cost, evidence, and the runbook on demand.
import { el, mark, prose } from "./dom.js";
import { t } from "./plot.js";
import { runbookFold } from "./runbook.js";

function evidence(found) {
  return found.evidence_words.length > 0 && found.evidence_words.join(" · ");
}

function head(found) {
  return [
    el("h3", {}, found.rule, found.key && found.keys.length < 2 && ` ${found.key}`),
    el(
      "p",
      { class: "dim" },
      mark(found.severity),
      " ",
      found.since,
      found.attempt > 1 && ` · ${t("attempt {n}", { n: found.attempt })}`,
    ),
    el("p", { class: "seen" }, prose(found.summary)),
  ];
}

export function finding(found, key) {
  const rows = [
    ...found.causes.map((text) => [t("Likely cause"), prose(text)]),
    found.hint && found.severity !== "info" ? [t("What to do"), prose(found.hint)] : null,
    found.wasted_text ? [t("Wasted"), found.wasted_text] : null,
    [t("Evidence"), evidence(found)],
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
    el("p", { class: "dim" }, t("Explained by {rule}: fix that first.", { rule: found.caused_by })),
    evidence(found),
    runbookFold(found.rule, `${key}-runbook`),
  );
}
