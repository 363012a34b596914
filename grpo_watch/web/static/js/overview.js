// The overview: one line per run, worst first; the daemon filters, sorts and pages.
import { asking } from "./api.js";
import { button, el, mark, part, renew } from "./dom.js";
import { ago, count, footer, outlook, progress, software } from "./format.js";
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
  const foot = el("nav", { class: "foot", "aria-label": "Pages" });
  const about = el("p", { class: "dim" });
  const news = el("div", { class: "dim news" });
  renew(main, [el("h1", { class: "title" }, "Runs"), news, bar, list, foot, about]);
  document.title = "grpo-watch";

  const wish = () => new URLSearchParams(route.query).toString();
  const change = (changes) =>
    go("/", query({ ...Object.fromEntries(route.query), offset: "", ...changes }), { quiet: true });
  const drawBar = part(bar, (received) => tools(received, route, change));
  let latest = null;
  const drawList = part(list, ({ runs, empty }) =>
    runs.length ? runs.map(line) : [el("li", { class: "dim empty" }, empty)],
  );
  const drawAbout = part(about, ({ version }) => footer(version));
  const before = seen(); // as it was when this page was opened
  const drawNews = part(news, ({ since }) => since && (since.changes.length ? changes(since) : ["No change since you last looked, ", ago(since.at)]));
  const drawFoot = part(foot, (received) => pages(received, change));

  const asked = asking(
    () => `overview?${wish()}`,
    (received) => {
      tell(received.problems, received.late);
      const { verdicts, total, running, matching, offset, limit, runs, ready } = received;
      drawBar({ verdicts, total, running, chosen: wish() });
      const nothing = ready
        ? "No runs found yet. Runs appear here as soon as they write something."
        : "Reading the runs …";
      latest = { runs, empty: total ? "No run matches the filter." : nothing };
      drawList({ ...latest, chosen: chosenRun });
      drawFoot({ matching, offset, limit });
      drawAbout({ version: received.version });
      drawNews({ since: changedSince(runs, before) });
      remember(runs);
      document.title = title(verdicts, total);
    },
    (problem) => tell([`The daemon does not respond: ${problem.message}`]),
  );
  const chosen = () => latest && drawList({ ...latest, chosen: chosenRun });
  addEventListener("comparechange", chosen);
  const stop = () => (asked.stop(), removeEventListener("comparechange", chosen));
  return { now: asked.now, stop, rerouted: (next) => (route = next) };
}

function changes({ at, changes: those }) {
  const rows = those.map(({ run, words }) => el("li", {}, el("a", { href: `#/run/${encodeURIComponent(run.slug)}` }, run.run), `: ${words}`));
  const title = [`${count(rows.length, "run")} changed since you last looked, `, ago(at)];
  return el("details", { "data-key": "news", open: rows.length <= 5 }, el("summary", {}, title), el("ul", {}, rows));
}

function title(verdicts, total) {
  const bad = verdicts.critical || 0;
  return bad ? `${bad} critical · grpo-watch` : `${count(total, "run")} · grpo-watch`;
}

function tools({ verdicts, total, running }, route, change) {
  const chosen = new Set((route.query.get("verdict") || "").split(",").filter(Boolean));
  const toggle = (verdict) => {
    const next = new Set(chosen);
    if (!next.delete(verdict)) next.add(verdict);
    change({ verdict: [...next].join(",") });
  };
  const state = route.query.get("state") || "";
  return [
    el("label", { class: "search" }, el("span", { class: "sr" }, "Search runs, rules, labels"), search(route, change)),
    el(
      "span",
      { class: "chips", role: "group", "aria-label": "Verdicts" },
      VERDICTS.filter((verdict) => verdicts[verdict] || chosen.has(verdict)).map((verdict) =>
        button(`${verdicts[verdict] || 0} ${verdict.replace("-", " ")}`, () => toggle(verdict), {
          class: verdict,
          "data-key": `chip-${verdict}`,
          "aria-pressed": String(chosen.has(verdict)),
        }),
      ),
    ),
    select(
      "State",
      { "": `all ${total}`, running: `running ${running}`, ended: `ended ${total - running}` },
      state,
      (value) => change({ state: value }),
    ),
    select("Order", ORDERS, route.query.get("sort") || "verdict", (value) => change({ sort: value })),
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
    placeholder: "Search runs, rules, labels",
    "aria-keyshortcuts": "/",
    on: { input: typed },
  });
  const before = document.getElementById("search");
  made.value = before === document.activeElement && before ? before.value : value;
  made.dataset.key = "search";
  return made;
}

function select(label, choices, chosen, run) {
  const made = el(
    "select",
    { "data-key": label, "aria-label": label, on: { change: (event) => run(event.target.value) } },
    Object.entries(choices).map(([value, words]) => el("option", { value, selected: value === chosen }, words)),
  );
  return made;
}

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
      el("a", { href: `#/run/${encodeURIComponent(run.slug)}`, "data-key": run.slug, class: "name" }, run.run),
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
        [progress(run), outlook(run), run.attempt > 1 && `attempt ${run.attempt}`].filter(Boolean).join(" · "),
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
  return other ? sparkline(...instead, drawn) : sparkline(name, words, drawn);
}

function lastStep(run) {
  const going = run.active ? "" : "ended, ";
  return run.last_step_time === null
    ? `${going}${run.step ? "time unknown" : "no step yet"}`
    : [going, "last step ", ago(run.last_step_time)];
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
        el("b", { class: run.top.severity }, run.top.rule),
        " ",
        el("span", { class: "dim" }, run.top.since, more > 0 && ` · ${more}\u00a0more`),
      ),
      el("div", { class: "says" }, run.top.summary),
    );
  } else received.push(el("span", { class: "dim" }, run.headline));
  for (const sign of run.early_signs) received.push(el("div", { class: "note" }, el("b", {}, "early sign"), `: ${sign.rule}: ${sign.text}`));
  if (run.unseen) received.push(el("div", { class: "note" }, run.unseen));
  if (run.sources_down.length) received.push(el("div", { class: "note" }, `can't read: ${run.sources_down.join(", ")}`));
  const broken = run.broken ? ` · ${count(run.broken, "rule")} broken` : "";
  received.push(el("div", { class: "dim" }, `${run.coverage.text}${broken}`));
  return received;
}

function pages({ matching, offset, limit }, change) {
  if (matching <= limit && !offset) return [];
  const last = Math.min(offset + limit, matching);
  return [
    button("Previous", () => change({ offset: String(Math.max(0, offset - limit) || "") }), {
      disabled: offset === 0,
      "data-key": "previous",
    }),
    el("span", { class: "dim" }, `${offset + 1} to ${last} of ${matching}`),
    button("Next", () => change({ offset: String(offset + limit) }), {
      disabled: last >= matching,
      "data-key": "next",
    }),
  ];
}

// The first click chooses a run, the second one on another run opens the comparison.
let chosenRun = "";

function compareButton(run) {
  const label = chosenRun === run.slug ? "Compare with …" : chosenRun ? "Compare with this" : "Compare";
  const clicked = () => {
    const first = chosenRun;
    chosenRun = first ? "" : run.slug;
    if (first && first !== run.slug) go(`/compare/${encodeURIComponent(first)}`, query({ with: run.slug }));
    else dispatchEvent(new Event("comparechange"));
  };
  return button(label, clicked, { class: "compare", "aria-pressed": String(chosenRun === run.slug), "data-key": `compare-${run.slug}` });
}
