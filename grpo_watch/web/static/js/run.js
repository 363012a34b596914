// The page of one run: what is wrong, since when, why, what to do; then everything that it is seen by.
import { asking } from "./api.js";
import { chartsPart } from "./charts.js";
import { button, el, mark, part, renew } from "./dom.js";
import { consequence, finding } from "./finding.js";
import { ago, count, footer, outlook, progress, software } from "./format.js";
import { matrix } from "./matrix.js";
import { t } from "./plot.js";
import { rules, settings, sources } from "./tables.js";
import { timeline } from "./timeline.js";

const PARTS = [
  ["cause", "Verdict"],
  ["charts", "Charts"],
  ["when", "Timeline"],
  ["others", "Findings"],
  ["copies", "Completions"],
  ["sources", "Sources"],
  ["rules", "Rules"],
];

const SHOWN = 4; // findings of one kind that are not folded

export function runPage(main, route, tell) {
  const slug = encodeURIComponent(route.name);
  const head = el("div", { class: "head" });
  const holders = Object.fromEntries(PARTS.map(([name]) => [name, el("section", { id: `part-${name}` })]));
  const jump = ([name, label]) =>
    button(t(label), () => holders[name].scrollIntoView({ behavior: "smooth" }), { "data-part": name });
  const nav = el("nav", { class: "jump", "aria-label": t("Parts of this page") }, PARTS.map(jump));
  renew(main, [head, nav, Object.values(holders)]);
  document.title = `${route.name} · grpo-watch`;

  const show = (name, there) => {
    holders[name].hidden = !there;
    nav.querySelector(`[data-part=${name}]`).hidden = !there;
  };
  const draw = {
    head: part(head, heading),
    cause: part(holders.cause, cause),
    when: part(holders.when, timeline),
    others: part(holders.others, others),
    copies: part(holders.copies, matrix),
    sources: part(holders.sources, (run) => [sources(run), settings(run)]),
    rules: part(holders.rules, rules),
  };
  const about = el("p", { class: "dim" });
  main.append(about);
  const drawAbout = part(about, ({ version }) => footer(version));
  for (const [name] of PARTS) show(name, name === "cause");
  const charts = chartsPart(holders.charts, slug, route, (there) => show("charts", there));

  const failed = (problem) => {
    if (problem.status === 404) renew(head, gone(route.name));
    else tell([t("The daemon does not respond: {problem}", { problem: problem.message })]);
  };
  const questions = [
    asking(() => `runs/${slug}`, take, failed),
    asking(
      () => `runs/${slug}/batches`,
      (received) => (show("copies", received.batches.length > 0), draw.copies(received)),
      () => {},
    ),
    charts,
  ];

  function take(run) {
    tell([]);
    drawAbout({ version: run.version });
    document.title = `${t(run.verdict.replace("-", " "))}: ${run.run} · grpo-watch`;
    draw.head(run);
    const { cards, verdict, notes, unseen, attempt } = run;
    evidenceFirst(topOf(run));
    draw.cause({ cards, verdict, notes, unseen });
    show("when", run.findings.length + run.noted.length > 0);
    draw.when({ findings: run.findings, noted: run.noted, step: run.step });
    show("others", rest(run).length > 0);
    draw.others({ cards, attempt, run: run.run });
    show("sources", true);
    draw.sources({ sources: run.sources.map((each) => ({ ...each })), settings: run.settings });
    show("rules", true);
    draw.rules({ rules: run.rules, coverage: run.coverage });
  }

  // What proves the top finding stands next to it: the texts, else the charts.
  function evidenceFirst(top) {
    const place = top?.evidence.pattern !== undefined ? "copies" : "charts";
    if (holders.cause.nextElementSibling !== holders[place]) holders.cause.after(holders[place]);
  }

  // One after the other: an open page takes one connection.
  async function now() {
    let answered = true;
    for (const each of questions) answered = (await each.now()) && answered;
    return answered;
  }
  return {
    now,
    stop: () => questions.forEach((each) => each.stop()),
    rerouted: (next) => charts.rerouted(next),
  };
}

function gone(name) {
  return [
    el("h1", {}, name),
    el(
      "p",
      {},
      t("This run is not on the page. Ended runs are removed after a while; to see one, use "),
      el("code", {}, "grpo-watch check"),
    ),
    el("p", {}, el("a", { href: "#/" }, t("All runs"))),
  ];
}

function heading(run) {
  const going = run.active ? t("running") : t("ended");
  return [
    el("h1", { class: "title" }, mark(run.verdict, run.headline), " ", run.run),
    run.max_steps &&
      el("progress", { max: run.max_steps, value: Math.min(run.step, run.max_steps), "aria-label": progress(run) }),
    el(
      "p",
      { class: "dim" },
      [software(run), progress(run), run.attempt > 1 && t("attempt {n}", { n: run.attempt }), going, outlook(run)]
        .filter(Boolean)
        .join(" · "),
      run.last_step_time !== null && [" · ", t("last step"), " ", ago(run.last_step_time)],
      Object.entries(run.labels).map(([name, value]) => ` · ${name}: ${value}`),
    ),
    el("p", { class: "dim" }, run.coverage.text),
    el("p", { class: "tools" }, reportButtons(run.slug), el("a", { href: `#/compare/${encodeURIComponent(run.slug)}` }, t("Compare with another run"))),
  ];
}

const topOf = (run) => run.cards.find((found) => found.counted);

function rest(run) {
  const top = topOf(run);
  return run.cards.filter((found) => found !== top);
}

function cause(run) {
  const top = topOf(run);
  const received = run.unseen && el("p", { class: "note" }, t("Warning: {what}.", { what: run.unseen }));
  if (top) {
    const title = top.resolved_step === null ? t("What is wrong") : t("What was wrong");
    return [el("h2", {}, title), el("p", { class: "headline" }, top.headline), received, finding(top, "top"), notes(run)];
  }
  const words = run.verdict === "healthy" ? t("No findings.") : t("Nothing could be judged yet; see below what the rules need.");
  const sign = run.notes.some(([label]) => label === t("early sign"));
  return [received, notes(run), !sign && el("p", {}, words)];
}

// Early signs, keys that were not read, guessed names: as every report says them.
function notes(run) {
  return run.notes.map(([label, line]) => el("p", { class: label === t("early sign") ? "seen note" : "dim" }, el("b", {}, label), `: ${line}`));
}

// The first few; the others on demand.
function folded(nodes, noun, key) {
  const rest = nodes.slice(SHOWN);
  if (rest.length < 2) return nodes;
  return [nodes.slice(0, SHOWN), el("details", { "data-key": key }, el("summary", {}, count(rest.length, `more ${noun}`)), rest)];
}

function others(run) {
  const rows = rest(run);
  const own = rows.filter((found) => !found.caused_by);
  const follow = rows.filter((found) => found.caused_by);
  return [
    own.length > 0 && el("h2", {}, t("Further findings")),
    folded(own.map((found, place) => finding(found, `own-${place}`)), "finding", "more-own"),
    follow.length > 0 && el("h2", {}, t("Consequences")),
    folded(follow.map((found, place) => consequence(found, `follow-${place}`)), "consequence", "more-follow"),
  ];
}

// The report of `grpo-watch check`: Markdown to paste into an issue, HTML as a file.
function reportButtons(slug) {
  const place = `api/v1/runs/${encodeURIComponent(slug)}/report`;
  const copied = async (event) => {
    const { target } = event;
    try {
      const answer = await fetch(place);
      if (!answer.ok) throw new Error();
      await navigator.clipboard.writeText(await answer.text());
      target.textContent = t("Copied");
    } catch {
      target.textContent = t("Can't copy: download it");
    }
  };
  return [
    button(t("Copy as issue"), copied, { "data-key": "copy" }),
    el("a", { href: place, download: `${slug}.md` }, t("Report (Markdown)")),
    el("a", { href: `${place}?format=html` }, t("Report (HTML)")),
  ];
}
