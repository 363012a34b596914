// Starts the page: routes, theme, keyboard, and what is received about the watcher itself.
import { comparePage } from "./compare.js";
import { el, part } from "./dom.js";
import { duration } from "./format.js";
import { keyboard } from "./keys.js";
import { live } from "./live.js";
import { overviewPage } from "./overview.js";
import { current } from "./router.js";
import { rulePage, rulesPage } from "./runbook.js";
import { ask } from "./api.js";
import { t, words } from "./plot.js";
import { runPage } from "./run.js";

const main = document.getElementById("main");
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const problems = part(document.getElementById("problems"), (lines) =>
  lines.map((line) => el("p", { class: "note" }, line)),
);

function tell(lines, late = null) {
  problems(
    late === null || late === undefined
      ? lines
      : [t("The engine is {time} behind: data is stale.", { time: duration(late) }), ...lines],
  );
}

let page = null;
let shown = "";

function route() {
  const to = current();
  const name = `${to.page}/${to.name}`;
  if (page && name === shown) {
    page.rerouted(to);
    return;
  }
  page?.stop();
  shown = name;
  const open = { run: runPage, rule: rulePage, rules: rulesPage, compare: comparePage }[to.page] || overviewPage;
  page = open(main, to, tell);
  scrollTo(0, 0);
}

function theme() {
  const now = root.dataset.theme || (dark.matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("grpo-watch-theme", root.dataset.theme);
  } catch {
    // storage is switched off: the choice lasts as long as the page
  }
  dispatchEvent(new Event("themechange"));
}

// The words come first: nothing is drawn twice.
const { language, words: known } = await ask("words").catch(() => ({ language: "en", words: {} }));
Object.assign(words, known);
root.lang = language;
for (const each of document.querySelectorAll("[data-words]")) each.textContent = t(each.textContent);
document.getElementById("theme").addEventListener("click", theme);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
dark.addEventListener("change", () => dispatchEvent(new Event("themechange")));
keyboard(theme);
route();
const beat = live(
  () => page.now(),
  (words, well) => {
    const link = document.getElementById("link");
    link.textContent = words;
    link.className = well ? "dim" : "note";
  },
);
const rerouted = () => (route(), beat());
addEventListener("hashchange", rerouted);
addEventListener("reopen", () => ((shown = ""), rerouted()));
