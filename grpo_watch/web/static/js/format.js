// Formats numbers and times for people; ages update by themselves.
import { number, t } from "./plot.js";
import { el } from "./dom.js";

let ahead = 0; // seconds by which the server's clock is ahead of the browser's

export function setClock(now) {
  if (Number.isFinite(now)) ahead = now - Date.now() / 1000;
}

// Unix seconds by the server's clock.
export const clock = () => Date.now() / 1000 + ahead;

export function duration(seconds) {
  if (seconds >= 2 * 86400) return t("{n} days", { n: Math.round(seconds / 86400) });
  if (seconds >= 2 * 3600) return t("{n} hours", { n: Math.round(seconds / 3600) });
  if (seconds >= 2 * 60) return t("{n} min", { n: Math.round(seconds / 60) });
  return t("{n} s", { n: Math.max(0, Math.round(seconds)) });
}

function age(at) {
  const seconds = clock() - at;
  return seconds < 2 ? t("just now") : t("{time} ago", { time: duration(seconds) });
}

// An element that shows how long ago something was (Unix seconds), and the moment itself when pointed at.
export function ago(at) {
  if (at === null || at === undefined) return el("span", {}, t("unknown"));
  const moment = new Date(at * 1000);
  return el("time", { datetime: moment.toISOString(), title: moment.toLocaleString(), "data-at": at }, age(at));
}

setInterval(() => {
  for (const each of document.querySelectorAll("time[data-at]")) each.textContent = age(Number(each.dataset.at));
}, 1000);

// A value of the evidence.
export function shown(value) {
  if (value === null) return t("none");
  if (value === true || value === false) return value ? t("yes") : t("no");
  return typeof value === "number" ? number(value) : String(value);
}

export function count(many, one, several = `${one}s`) {
  return t(many === 1 ? `1 ${one}` : `{n} ${several}`, { n: many });
}

export function progress(run) {
  return run.max_steps ? t("step {step} of {max}", { step: run.step, max: run.max_steps }) : t("step {step}", { step: run.step });
}

// What is expected of a run's end.
export function outlook(run) {
  const received = [];
  if (run.eta_seconds !== null && run.active)
    received.push(run.step >= run.max_steps ? t("last step") : t("{time} left", { time: duration(run.eta_seconds) }));
  const differs = run.predicted_max_steps !== null && run.predicted_max_steps !== run.max_steps;
  if (differs) received.push(t("settings predict {n} steps", { n: run.predicted_max_steps }));
  return received.join(" · ");
}

export function software(run) {
  return [run.framework, run.framework_version].filter(Boolean).join(" ") || t("unknown framework");
}

// The last line of every page: which version this is, and where else to look.
const LINKS = [
  ["#/rules", "rules and runbooks"],
  ["metrics", "metrics"],
  ["api/v1/runs", "API"],
];

export function footer(version) {
  return [`grpo-watch ${version}`, LINKS.map(([place, words]) => [" · ", el("a", { href: place }, t(words))])];
}
