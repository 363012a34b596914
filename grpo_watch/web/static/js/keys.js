// Keyboard shortcuts; the dialog lists them.
import { button, el, renew } from "./dom.js";
import { t } from "./plot.js";
import { go } from "./router.js";

const KEYS = [
  ["/", "search"],
  ["j, k", "next or previous run"],
  ["Enter", "open the run"],
  ["u", "back to all runs"],
  ["l", "toggle logarithmic scale"],
  ["← →", "move the cursor of a chart"],
  ["t", "toggle light or dark theme"],
  ["?", "show these shortcuts"],
];

function step(by) {
  const links = [...document.querySelectorAll("a.name")];
  const at = links.indexOf(document.activeElement);
  links[Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
}

const press = (key) => document.querySelector(`.tools [data-key=${key}]:not([disabled])`)?.click();

export function keyboard(theme) {
  const dialog = document.getElementById("keys");
  const rows = KEYS.map(([keys, does]) =>
    el("tr", {}, el("th", { scope: "row" }, el("kbd", {}, keys)), el("td", {}, t(does))),
  );
  renew(dialog, [
    el("h2", { id: "keys-title" }, t("Keyboard shortcuts")),
    el("table", {}, el("tbody", {}, rows)),
    button(t("Close"), () => dialog.close()),
  ]);
  const help = () => (dialog.open ? dialog.close() : dialog.showModal());
  document.getElementById("help").addEventListener("click", help);
  const does = {
    "/": () => document.getElementById("search")?.focus(),
    j: () => step(1),
    k: () => step(-1),
    u: () => go("/"),
    l: () => press("log"),
    t: theme,
    "?": help,
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const run = does[event.key];
    if (!run) return;
    event.preventDefault();
    run();
  });
}
