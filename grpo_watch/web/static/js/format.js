// Formats numbers and times for people; ages update by themselves.
import { number } from "./plot.js";
import { el } from "./dom.js";

let ahead = 0; // seconds by which the server's clock is ahead of the browser's

export function setClock(now) {
  if (Number.isFinite(now)) ahead = now - Date.now() / 1000;
}

// Unix seconds by the server's clock.
export const clock = () => Date.now() / 1000 + ahead;

export function duration(seconds) {
  for (const [unit, size] of [
    ["days", 86400],
    ["hours", 3600],
    ["min", 60],
  ]) {
    if (seconds >= 2 * size) return `${Math.round(seconds / size)} ${unit}`;
  }
  return `${Math.max(0, Math.round(seconds))} s`;
}

function age(at) {
  const seconds = clock() - at;
  return seconds < 2 ? "just now" : `${duration(seconds)} ago`;
}

// An element that shows how long ago something was (Unix seconds), and the moment itself when pointed at.
export function ago(at) {
  if (at === null || at === undefined) return el("span", {}, "unknown");
  const moment = new Date(at * 1000);
  return el("time", { datetime: moment.toISOString(), title: moment.toLocaleString(), "data-at": at }, age(at));
}

setInterval(() => {
  for (const each of document.querySelectorAll("time[data-at]")) each.textContent = age(Number(each.dataset.at));
}, 1000);

// A value of the evidence.
export function shown(value) {
  if (value === null) return "none";
  if (value === true || value === false) return value ? "yes" : "no";
  return typeof value === "number" ? number(value) : String(value);
}

export function count(many, one, several = `${one}s`) {
  return `${many} ${many === 1 ? one : several}`;
}

export function progress(run) {
  const goal = run.max_steps ? ` of ${run.max_steps}` : "";
  return `step ${run.step}${goal}`;
}

// What is expected of a run's end.
export function outlook(run) {
  const received = [];
  if (run.eta_seconds !== null && run.active)
    received.push(run.step >= run.max_steps ? "last step" : `${duration(run.eta_seconds)} left`);
  const differs = run.predicted_max_steps !== null && run.predicted_max_steps !== run.max_steps;
  if (differs) received.push(`settings predict ${run.predicted_max_steps} steps`);
  return received.join(" · ");
}

export function software(run) {
  return [run.framework, run.framework_version].filter(Boolean).join(" ") || "unknown framework";
}

// The last line of every page: which version this is, and where else to look.
const LINKS = [
  ["#/rules", "rules and runbooks"],
  ["metrics", "metrics"],
  ["api/v1/runs", "API"],
];

export function footer(version) {
  return [`grpo-watch ${version}`, LINKS.map(([place, words]) => [" · ", el("a", { href: place }, words)])];
}
