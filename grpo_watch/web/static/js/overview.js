// The overview: one line per run, worst first; the daemon filters, sorts and pages.
import { asking } from "./api.js";
import { button, el, mark, part, renew } from "./dom.js";
import { ago, count, footer, outlook, progress, software } from "./format.js";
import { t } from "./plot.js";
import { go, query } from "./router.js";
import { changedSince, remember, seen } from "./seen.js";
import { sparkline } from "./sparkline.js";

const SPARKS = [
  ["reward", "reward", "Mean reward"],
  ["kl", "KL", "KL to the reference"],
  ["spread", "spread", "Reward spread inside the groups", ["batch std", "Reward spread over the whole batch"]],
  ["unique", "unique", "Share of completions that are unique in their group"],
  ["entropy", "entropy", "Entropy"],
  ["truncated", "truncated", "Share of completions truncated at the length limit"],
];
const VERDICTS = ["critical", "warning", "lost", "not-evaluable", "too-short", "healthy"];
const ORDERS = { verdict: "worst first", name: "by name", newest: "newest step first", progress: "furthest first" };

export function overviewPage(main, route, tell) {
  const bar = el("div", { class: "tools" });
  const list = el("ol", { class: "runs" });
  const foot = el("nav", { class: "foot", "aria-label": t("Pages") });
  const about = el("p", { class: "dim" });
  const news = el("div", { class: "dim news" });
  renew(main, [el("h1", { class: "title" }, t("Runs")), news, bar, list, foot, about]);
  document.title = "grpo-watch";

  const wish = () => new URLSearchParams(route.query).toString();
  const change = (changes) =>
    go("/", query({ ...Object.fromEntries(route.query), offset: "", ...changes }), { quiet: true });
  const drawBar = part(bar, (received) => tools(received, route, change));
  let latest = null;
  const drawList = part(list, ({ runs, empty }) =>
    runs.length ? [legend(), runs.map(line)] : [el("li", { class: "dim empty" }, empty)],
  );
  const compact = (matching) => list.classList.toggle("compact", compactly(route, matching));
  const drawAbout = part(about, ({ version }) => footer(version));
  const before = seen(); // as it was when this page was opened
  const drawNews = part(news, ({ since }) => since && (since.changes.length ? changes(since) : [t("No change since you last looked, "), ago(since.at)]));
  const drawFoot = part(foot, (received) => pages(received, change));

  const asked = asking(
    () => `overview?${wish()}`,
    (received) => {
      tell(received.problems, received.late);
      const { verdicts, total, running, matching, offset, limit, runs, ready } = received;
      drawBar({ verdicts, total, running, matching, chosen: wish() });
      compact(matching);
      const nothing = ready
        ? t("No runs found yet. Runs appear here as soon as they write something.")
        : t("Reading the runs …");
      latest = { runs, empty: total ? t("No run matches the filter.") : nothing };
      drawList({ ...latest, chosen: chosenRun });
      drawFoot({ matching, offset, limit });
      drawAbout({ version: received.version });
      drawNews({ since: changedSince(runs, before) });
      remember(runs);
      document.title = title(verdicts, total);
    },
    (problem) => tell([t("The daemon does not respond: {problem}", { problem: problem.message })]),
  );
  const chosen = () => latest && drawList({ ...latest, chosen: chosenRun });
  addEventListener("comparechange", chosen);
  return { now: asked.now, stop: () => (asked.stop(), removeEventListener("comparechange", chosen)), rerouted: (next) => (route = next) };
}

function changes({ at, changes: those }) {
  const rows = those.map(({ run, words }) => el("li", {}, el("a", { href: `#/run/${encodeURIComponent(run.slug)}` }, run.run), `: ${words}`));
  const title = [t("{runs} changed since you last looked, ", { runs: count(rows.length, "run") }), ago(at)];
  return el("details", { "data-key": "news", open: rows.length <= 5 }, el("summary", {}, title), el("ul", {}, rows));
}

function title(verdicts, total) {
  const bad = verdicts.critical || 0;
  return bad ? `${bad} ${t("critical")} · grpo-watch` : `${count(total, "run")} · grpo-watch`;
}

// One line for each run where there are many, unless the address asks for the other view.
const MANY = 12;
const compactly = (route, matching) => (route.query.get("view") || (matching >= MANY ? "lines" : "cards")) === "lines";

function tools({ verdicts, total, running, matching }, route, change) {
  const chosen = new Set((route.query.get("verdict") || "").split(",").filter(Boolean));
  const toggle = (verdict) => {
    const next = new Set(chosen);
    if (!next.delete(verdict)) next.add(verdict);
    change({ verdict: [...next].join(",") });
  };
  const state = route.query.get("state") || "";
  return [
    el("label", { class: "search" }, el("span", { class: "sr" }, t("Search runs, rules, labels")), search(route, change)),
    el(
      "span",
      { class: "chips", role: "group", "aria-label": t("Verdicts") },
      VERDICTS.filter((verdict) => verdicts[verdict] || chosen.has(verdict)).map((verdict) =>
        button(`${verdicts[verdict] || 0} ${t(verdict.replace("-", " "))}`, () => toggle(verdict), {
          class: verdict,
          "data-key": `chip-${verdict}`,
          "aria-pressed": String(chosen.has(verdict)),
        }),
      ),
    ),
    select(
      "State",
      { "": `${t("all")} ${total}`, running: `${t("running")} ${running}`, ended: `${t("ended")} ${total - running}` },
      state,
      (value) => change({ state: value }),
    ),
    select("Order", ORDERS, route.query.get("sort") || "verdict", (value) => change({ sort: value })),
    button(t("compact"), () => change({ view: compactly(route, matching) ? "cards" : "lines" }), {
      "aria-pressed": String(compactly(route, matching)),
      "data-key": "compact",
    }),
  ];
}

function search(route, change) {
  let waiting;
  const typed = (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => change({ q: event.target.value.trim() }), 150);
  };
  const value = route.query.get("q") || "";
  const made = el("input", {
    type: "search",
    id: "search",
    placeholder: t("Search runs, rules, labels"),
    "aria-keyshortcuts": "/",
    on: { input: typed },
  });
  const before = document.getElementById("search");
  made.value = before === document.activeElement && before ? before.value : value;
  made.dataset.key = "search";
  return made;
}

function select(label, choices, chosen, run) {
  const options = Object.entries(choices).map(([value, words]) => el("option", { value, selected: value === chosen }, t(words)));
  return el("select", { "data-key": label, "aria-label": t(label), on: { change: (event) => run(event.target.value) } }, options);
}

// What the sparklines of a compact list are.
const legend = () => el("li", { class: "legend dim", "aria-hidden": "true" }, SPARKS.map(([, name]) => el("span", {}, t(name))));

function line(run) {
  const verdict = run.verdict;
  return el(
    "li",
    { class: `run ${verdict}` },
    el(
      "div",
      { class: "who" },
      mark(verdict),
      " ",
      el("a", { href: `#/run/${encodeURIComponent(run.slug)}`, "data-key": run.slug, class: "name", title: run.run }, run.run),
      el("div", { class: "dim" }, software(run), labels(run.labels)),
      compareButton(run),
    ),
    el(
      "div",
      { class: "how" },
      bar(run),
      el(
        "div",
        { class: "dim" },
        [progress(run), outlook(run), run.attempt > 1 && t("attempt {n}", { n: run.attempt })].filter(Boolean).join(" · "),
      ),
      el("div", { class: "dim" }, lastStep(run)),
    ),
    el("div", { class: "why" }, finding(run)),
    el(
      "div",
      { class: "sparks" },
      SPARKS.map((each) => spark(each, run.sparks[each[0]])),
    ),
  );
}

// What is drawn instead of the usual metric has another meaning, and says so.
function spark([, name, words, instead], drawn) {
  const other = instead && drawn?.metric === "reward_batch_std";
  const [short, long] = other ? instead : [name, words];
  return sparkline(t(short), t(long), drawn);
}

function lastStep(run) {
  const going = run.active ? "" : t("ended, ");
  return run.last_step_time === null
    ? `${going}${run.step ? t("time unknown") : t("no step yet")}`
    : [going, t("last step"), " ", ago(run.last_step_time)];
}

function labels(given) {
  return Object.entries(given).map(([name, value]) => ` · ${name}: ${value}`);
}

function bar(run) {
  if (!run.max_steps) return null;
  return el("progress", { max: run.max_steps, value: Math.min(run.step, run.max_steps), "aria-label": progress(run) });
}

function finding(run) {
  const received = [];
  if (run.top) {
    const more = run.open - 1;
    received.push(
      el(
        "div",
        {},
        el("b", { class: run.top.severity, title: `${run.top.rule}: ${run.top.headline}` }, run.top.headline),
        " ",
        el("span", { class: "dim" }, run.top.since, more > 0 && ` · ${t("{n} more", { n: more })}`),
      ),
      el("div", { class: "says" }, run.top.summary),
    );
  } else received.push(el("span", { class: "dim" }, run.headline));
  for (const sign of run.early_signs) received.push(el("div", { class: "note" }, el("b", {}, t("early sign")), `: ${sign.rule}: ${sign.text}`));
  if (run.unseen) received.push(el("div", { class: "note" }, run.unseen));
  if (run.sources_down.length) received.push(el("div", { class: "note" }, t("can't read: {sources}", { sources: run.sources_down.join(", ") })));
  const broken = run.broken ? ` · ${t("{n} rules broken", { n: run.broken })}` : "";
  received.push(el("div", { class: "dim" }, `${run.coverage.text}${broken}`));
  return received;
}

function pages({ matching, offset, limit }, change) {
  if (matching <= limit && !offset) return [];
  const last = Math.min(offset + limit, matching);
  const to = (words, key, place, disabled) => button(words, () => change({ offset: String(place || "") }), { disabled, "data-key": key });
  return [
    to(t("Previous"), "previous", Math.max(0, offset - limit), offset === 0),
    el("span", { class: "dim" }, t("{first} to {last} of {all}", { first: offset + 1, last, all: matching })),
    to(t("Next"), "next", offset + limit, last >= matching),
  ];
}

// The first click chooses a run, the second one on another run opens the comparison.
let chosenRun = "";

function compareButton(run) {
  const label = chosenRun === run.slug ? t("Compare with …") : chosenRun ? t("Compare with this") : t("Compare");
  const clicked = () => {
    const first = chosenRun;
    chosenRun = first ? "" : run.slug;
    if (first && first !== run.slug) go(`/compare/${encodeURIComponent(first)}`, query({ with: run.slug }));
    else dispatchEvent(new Event("comparechange"));
  };
  return button(label, clicked, { class: "compare", "aria-pressed": String(chosenRun === run.slug), "data-key": `compare-${run.slug}` });
}
