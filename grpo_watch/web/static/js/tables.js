// Sources and when they were read, settings of the run, and the rules in effect.
import { el, mark, table } from "./dom.js";
import { ago, count, shown } from "./format.js";
import { t } from "./plot.js";
import { distances, parameters } from "./runbook.js";

export function sources({ sources: given }) {
  const rows = given.map((each) => [
    each.source,
    each.up ? t("readable") : el("b", { class: "critical" }, t("not readable")),
    each.read_at === null ? t("stopped reading") : ago(each.read_at),
    each.problem,
  ]);
  return [
    el("h2", {}, t("Sources")),
    given.length
      ? table(["source", "state", "last read", "problem"], rows)
      : el("p", { class: "dim" }, t("The run has ended; its files are no longer read.")),
  ];
}

export function settings({ settings: given }) {
  if (!given.length) return [];
  const rows = given.map((each) => [el("code", {}, each.name), shown(each.value), each.origin]);
  return el(
    "details",
    { "data-key": "settings" },
    el("summary", {}, t("{n} settings of the run", { n: given.length })),
    table(["setting", "value", "from"], rows),
  );
}

const KINDS = {
  missing: ["rule lacks data", "rules lack data"],
  "not-yet": ["rule needs more steps", "rules need more steps"],
  "not-applicable": ["rule doesn't apply to this run", "rules don't apply to this run"],
  broken: ["rule is broken", "rules are broken"],
};

// One fold for each kind of rules that can't judge; broken ones are open.
function unable(given) {
  return Object.entries(KINDS).map(([kind, words]) => {
    const those = given.filter((each) => (each.status === "broken" ? "broken" : each.blindness) === kind);
    if (!those.length) return null;
    const rows = [...byReason(those)].map(([reason, named]) => [reason, named.map((each, at) => [at ? ", " : "", link(each)])]);
    return el(
      "details",
      { "data-key": `unable-${kind}`, open: kind === "broken" },
      el("summary", {}, count(those.length, ...words)),
      table(["reason", "rules"], rows),
    );
  });
}

export function rules({ rules: given, coverage }) {
  return [
    el("h2", {}, t("Rules")),
    el("p", {}, coverage.text),
    unable(given),
    el(
      "details",
      { "data-key": "rules" },
      el("summary", {}, t("All rules in effect")),
      table(["rule", "severity", "state", "configuration"], given.map(effective)),
    ),
  ];
}

function byReason(blind) {
  const found = new Map();
  for (const rule of blind) {
    const reason = rule.status === "broken" ? `${t("broken")}: ${rule.text}` : rule.text;
    found.set(reason, [...(found.get(reason) || []), rule]);
  }
  return found;
}

function link(rule) {
  return el("a", { href: `#/rule/${encodeURIComponent(rule.rule)}` }, rule.rule);
}

function effective(rule) {
  const set = rule.params ? [distances(rule), parameters(rule)] : t("no longer in effect");
  return [link(rule), mark(rule.severity), t(rule.status), set];
}
