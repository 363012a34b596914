// Sources and how long ago they were read, settings of the run, and the rules as they are in force.
import { el, mark, table } from "./dom.js";
import { ago, count, shown } from "./format.js";
import { distances, parameters } from "./runbook.js";

const UNSEEING = ["broken", "blind"];

export function sources({ sources: given }) {
  const rows = given.map((each) => [
    each.source,
    each.up ? "readable" : el("b", { class: "critical" }, "not readable"),
    each.read_at === null ? "not any more" : ago(each.read_at),
    each.problem,
  ]);
  return [
    el("h2", {}, "Sources"),
    given.length
      ? table(["source", "state", "read to its end", "trouble"], rows)
      : el("p", { class: "dim" }, "Its files are not read any more: the run is over."),
  ];
}

export function settings({ settings: given }) {
  if (!given.length) return [];
  const rows = given.map((each) => [el("code", {}, each.name), shown(each.value), each.origin]);
  return el(
    "details",
    { "data-key": "settings" },
    el("summary", {}, `${count(given.length, "setting")} of the run, and where each was read`),
    table(["setting", "value", "from"], rows),
  );
}

export function rules({ rules: given }) {
  const blind = given.filter((each) => UNSEEING.includes(each.status));
  const seeing = given.length - blind.length;
  return [
    el("h2", {}, "Rules"),
    el(
      "p",
      {},
      `${seeing} of ${count(given.length, "rule")} watch this run${blind.length ? `; ${blind.length} can't, and why:` : "."}`,
    ),
    blind.length > 0 &&
      table(
        ["why", "rules"],
        [...byReason(blind)].map(([reason, those]) => [reason, those.map((each, at) => [at ? ", " : "", link(each)])]),
      ),
    el(
      "details",
      { "data-key": "rules" },
      el("summary", {}, "All rules as they are in force"),
      table(["rule", "severity", "state", "how it is set"], given.map(effective)),
    ),
  ];
}

function byReason(blind) {
  const found = new Map();
  for (const rule of [...blind].sort((one, other) => UNSEEING.indexOf(one.status) - UNSEEING.indexOf(other.status))) {
    const reason = rule.status === "broken" ? `broken: ${rule.reason}` : rule.reason;
    found.set(reason, [...(found.get(reason) || []), rule]);
  }
  return found;
}

function link(rule) {
  return el("a", { href: `#/rule/${encodeURIComponent(rule.rule)}` }, rule.rule);
}

function effective(rule) {
  const set = rule.params ? [distances(rule), parameters(rule)] : "not in force any more";
  return [link(rule), mark(rule.severity), rule.status, set];
}
