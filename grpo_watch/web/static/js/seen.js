// What changed since this browser last looked at the overview: verdict and top finding of each run, kept by the browser.
import { clock } from "./format.js";

import { t } from "./plot.js";

const said = (verdict) => t(String(verdict).replace("-", " "));
const KEY = "grpo-watch-seen";
const MOST = 300; // runs remembered

const state = (run) => [run.verdict, run.top ? `${run.top.rule} ${run.top.status}` : ""];

function read() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) || "null");
    return kept && typeof kept.at === "number" && kept.runs && typeof kept.runs === "object" ? kept : null;
  } catch {
    return null; // storage is switched off, or holds something else
  }
}

// Remembers the runs as they are now, beside those that this page of the overview does not show.
export function remember(runs) {
  const before = read()?.runs || {};
  const fresh = Object.fromEntries(runs.map((run) => [run.slug, state(run)]));
  const all = Object.entries({ ...before, ...fresh }).slice(-MOST);
  try {
    localStorage.setItem(KEY, JSON.stringify({ at: clock(), runs: Object.fromEntries(all) }));
  } catch {
    // storage is switched off or full: nothing is remembered
  }
}

// When the browser last looked, and the runs that are not as they were then; null at the first time.
export function changedSince(runs, kept = read()) {
  if (!kept) return null;
  const changes = runs.flatMap((run) => {
    const [verdict, top] = state(run);
    const before = kept.runs[run.slug];
    if (!Array.isArray(before)) return [{ run, words: t("new, {verdict}", { verdict: said(verdict) }) }];
    if (before[0] !== verdict) return [{ run, words: `${said(before[0])} → ${said(verdict)}` }];
    return before[1] === top ? [] : [{ run, words: run.top ? `${run.top.rule} ${t(run.top.status)}` : t("no finding any more") }];
  });
  return { at: kept.at, changes };
}

export const seen = read;
