// The runbook of a rule: what the daemon sends is a tree of names and texts, of which elements are made here.
import { ask } from "./api.js";
import { el, mark, prose, renew, table } from "./dom.js";
import { count, shown } from "./format.js";
import { t } from "./plot.js";

const ALLOWED = new Set(
  "p ul ol li strong em code pre table thead tbody tr th td h1 h2 h3 h4 br hr blockquote".split(" "),
);
const FIRST = ["What it detects", "What to do", "When it is wrong"];

function build(node) {
  if (typeof node === "string") return node;
  const [name, ...inner] = node;
  const made = el(ALLOWED.has(name) ? name : "span");
  if (name === "pre") {
    made.textContent = inner.join("");
    made.tabIndex = 0;
  } else made.append(...inner.map(build));
  return name === "table" ? el("div", { class: "wide", tabindex: 0, role: "group" }, made) : made;
}

function section(received, open) {
  return el("details", { open, "data-key": received.title }, el("summary", {}, received.title), received.blocks.map(build));
}

function received(book) {
  const order = (each) => (FIRST.includes(each.title) ? FIRST.indexOf(each.title) : FIRST.length);
  const sections = [...book.sections].sort((one, other) => order(one) - order(other));
  return sections.map((each) => section(each, order(each) < 2));
}

// Folded; fetched when it is opened for the first time.
export function runbookFold(rule, key) {
  const inside = el("div", { class: "runbook" });
  const fetched = async (event) => {
    if (!event.target.open || inside.childElementCount || event.target !== fold) return;
    renew(inside, el("p", { class: "dim" }, "…"));
    try {
      renew(inside, received(await ask(`runbooks/${encodeURIComponent(rule)}`)));
    } catch (problem) {
      renew(inside, el("p", { class: "note" }, problem.message));
    }
  };
  const fold = el("details", { "data-key": key, on: { toggle: fetched } }, el("summary", {}, t("Runbook")), inside);
  return fold;
}

// Rules are not asked for again, only whether the daemon is there.
const still = { now: () => fetch("healthz").then(() => true, () => false), stop: () => {}, rerouted: () => {} };

// All rules in force, each with its runbook.
export function rulesPage(main, route, tell) {
  document.title = "Rules · grpo-watch";
  const row = (rule) => [el("a", { href: `#/rule/${encodeURIComponent(rule.rule)}` }, rule.rule), mark(rule.severity), prose(rule.summary)];
  ask("runbooks").then(
    ({ rules }) => renew(main, [el("h1", { class: "title" }, t("Rules and runbooks")), table(["rule", "severity", "what it means"], rules.map(row))]),
    (problem) => tell([problem.message]),
  );
  return still;
}

export function rulePage(main, route, tell) {
  document.title = `${route.name} · grpo-watch`;
  ask(`runbooks/${encodeURIComponent(route.name)}`).then(
    (book) =>
      renew(main, [
        el("h1", { class: "title" }, book.rule),
        el("p", { class: "dim" }, mark(book.severity), " ", distances(book)),
        el(
          "p",
          {},
          book.summary.split("`").map((text, place) => (place % 2 ? el("code", {}, text) : text)),
        ),
        parameters(book),
        received(book),
      ]),
    (problem) => (tell([problem.message]), renew(main, el("p", {}, el("a", { href: "#/" }, t("All runs"))))),
  );
  return still;
}

export function distances(rule) {
  return t("fires after {steps} and {rows}, resolves {after} after the last", {
    steps: count(rule.for_steps, "step"),
    rows: count(rule.min_observations, "breaching row"),
    after: count(rule.keep_firing_steps, "step"),
  });
}

export function parameters(rule) {
  if (rule.when) return el("p", {}, el("code", {}, rule.when));
  return el(
    "ul",
    { class: "params" },
    rule.params.map((each) =>
      el(
        "li",
        { title: each.help },
        el("code", {}, each.name),
        ` ${shown(each.value)}`,
        each.value !== each.default && t(" (default {value})", { value: shown(each.default) }),
      ),
    ),
  );
}
