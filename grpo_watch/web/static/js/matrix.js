// The completions of a batch: which of a group are equal, as a matrix, and the first groups as a table. A letter and a
// colour stand for each text that occurs more than once; ranks or engines with one seed show one pattern in all rows.
import { button, el, renew, table } from "./dom.js";
import { count } from "./format.js";
import { number, t } from "./plot.js";

const COLOURS = 8;
const OPEN_GROUPS = 2;
const MOST_HITS = 100;
const letter = (number) => (number < 26 ? String.fromCharCode(65 + number) : String(number));

export function matrix({ batches }) {
  if (!batches.length) return [];
  const body = el("div");
  const choices = el("div", { class: "chips", role: "group", "aria-label": "Batches" });
  const typed = ({ target }) => renew(body, target.value.trim() ? hits(batches, target.value.trim()) : drawn(batches[shown]));
  const label = t("Search texts, or a step");
  const search = el("input", { type: "search", "data-key": "search-texts", "data-typed": "", placeholder: label, "aria-label": label, on: { input: typed } });
  let shown = batches.length - 1;
  function show(place) {
    shown = place;
    search.value = "";
    renew(
      choices,
      batches.map((batch, at) =>
        button(t("step {step}", { step: batch.step }), () => show(at), {
          "aria-pressed": String(at === place),
          "data-key": `batch-${at}`,
        }),
      ),
    );
    renew(body, drawn(batches[place]));
  }
  show(shown);
  const kept = batches.some((batch) => batch.listed.some((group) => group.texts));
  return [el("h2", {}, t("Completions")), el("div", { class: "tools" }, choices, kept && search), body];
}

function drawn(batch) {
  const share = batch.repeated
    ? t("{n} of {all} completions repeat another one in their group.", { n: batch.repeated, all: batch.completions })
    : t("All {n} completions differ within their groups.", { n: batch.completions });
  const more = batch.groups - batch.patterns.length;
  if (!batch.patterns.length)
    return el("p", { class: "note" }, batch.reason || t("The groups of this batch are unknown."));
  const places = Math.max(...batch.patterns.map((pattern) => pattern.length));
  const head = el(
    "tr",
    {},
    el("th", { scope: "col" }, t("group")),
    Array.from({ length: places }, (_, at) => el("th", { scope: "col" }, String(at + 1))),
  );
  return [
    el("p", {}, share, more > 0 && t(" The first {n} of {all} groups are shown.", { n: batch.patterns.length, all: batch.groups })),
    batch.repeated > 0 &&
      el(
        "p",
        { class: "dim" },
        t("Within a row, the same letter is the same text; a dot is a text that occurs once. The same pattern in every row means that workers share a seed; one letter everywhere means that sampling is greedy."),
      ),
    el(
      "div",
      { class: "wide", tabindex: 0, role: "group", "aria-label": "Matrix of equal completions" },
      el("table", { class: "matrix" }, el("thead", {}, head), el("tbody", {}, batch.patterns.map(row))),
    ),
    listed(batch),
  ];
}

// What was typed: the batch of that step, else the completions and prompts that hold it, of every batch that is kept.
function hits(batches, wanted) {
  const batch = batches.find((each) => String(each.step) === wanted);
  if (batch) return drawn(batch);
  const holds = (text) => String(text ?? "").toLowerCase().includes(wanted.toLowerCase());
  const rows = batches.flatMap(({ step, listed }) =>
    listed.flatMap((group, at) =>
      (group.texts || []).flatMap((text, place) => (holds(text) || holds(group.prompt) ? [[String(step), String(at + 1), String(place + 1), text]] : [])),
    ),
  );
  return [el("p", { class: "dim" }, count(rows.length, "completion")), rows.length > 0 && table(["step", "group", "#", "completion"], rows.slice(0, MOST_HITS))];
}

// Which letter stands for each number of a pattern that occurs more than once.
function letters(pattern) {
  const found = new Map();
  for (const number of pattern)
    if (!found.has(number) && pattern.indexOf(number) !== pattern.lastIndexOf(number)) found.set(number, found.size);
  return found;
}

function row(pattern, group) {
  const known = letters(pattern);
  const cell = (number) => {
    const place = known.get(number);
    return place === undefined
      ? el("td", { class: "once" }, "·")
      : el("td", { class: `same${place % COLOURS}` }, letter(place));
  };
  return el("tr", {}, el("th", { scope: "row" }, String(group + 1)), pattern.map(cell));
}

// The table of completions: the first groups open, the others on demand.
function listed(batch) {
  if (!batch.listed?.length) return null;
  const groups = batch.listed.map((group, at) => ({ ...group, at, pattern: batch.patterns[at] }));
  const scores = [...new Set(groups.flatMap((group) => Object.keys(group.scores)))];
  const texts = groups.some((group) => group.texts);
  const rest = groups.slice(OPEN_GROUPS);
  return [
    !texts &&
      el(
        "p",
        { class: "dim" },
        t("Prompts and texts are not kept. To see how they begin, set this in grpo-watch.yaml: "),
        el("code", {}, "privacy: {completions: true}"),
      ),
    completions(groups.slice(0, OPEN_GROUPS), scores, texts),
    rest.length > 0 &&
      el(
        "details",
        { "data-key": "more-groups" },
        el("summary", {}, count(rest.length, "more group")),
        completions(rest, scores, texts),
      ),
  ];
}

function completions(groups, scores, texts) {
  const names = [t("group"), "#", ...(texts ? [t("completion")] : []), t("equal to"), ...scores, t("length")];
  const head = el("tr", {}, names.map((name) => el("th", { scope: "col" }, name)));
  return el(
    "div",
    { class: "wide", tabindex: 0, role: "group", "aria-label": "Table of completions" },
    el(
      "table",
      { class: "completions" },
      el("thead", {}, head),
      groups.map((group) => el("tbody", {}, prompt(group, names.length), group.lengths.map((_, at) => completion(group, at, scores, texts)))),
    ),
  );
}

function prompt(group, columns) {
  if (!group.prompt) return null;
  return el("tr", { class: "prompt" }, el("td", { colspan: columns }, el("span", { class: "dim" }, t("prompt ")), group.prompt));
}

function completion(group, at, scores, texts) {
  const own = group.pattern[at];
  const known = letters(group.pattern).get(own);
  const first = group.pattern.indexOf(own);
  const mark = known !== undefined && el("span", { class: `letter same${known % COLOURS}` }, letter(known));
  const equal = first < at ? [mark, ` = ${first + 1}`] : mark;
  return el(
    "tr",
    { class: first < at ? "again" : null },
    el("td", {}, at ? "" : String(group.at + 1)),
    el("td", {}, String(at + 1)),
    texts && el("td", { class: "text" }, group.texts?.[at] ?? el("span", { class: "dim" }, t("not kept"))),
    el("td", {}, equal),
    scores.map((name) => el("td", { class: "number" }, short(group.scores[name]?.[at]))),
    el("td", { class: "number" }, String(group.lengths[at])),
  );
}

// NaN and infinities arrive as texts.
function short(value) {
  if (value === undefined || value === null) return "–";
  return typeof value === "number" ? number(Number(value.toPrecision(4))) : String(value);
}
