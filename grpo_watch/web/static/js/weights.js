// Which tensors changed between checkpoints: a row for each layer, a column for each kind of tensor.
import { button, el, renew } from "./dom.js";
import { t } from "./plot.js";

const OUTSIDE = -1;

export function weights({ checkpoints }) {
  if (!checkpoints.length) return [];
  const body = el("div");
  const choices = el("div", { class: "chips", role: "group", "aria-label": "Checkpoints" });
  function show(place) {
    renew(
      choices,
      checkpoints.map((each, at) =>
        button(label(each), () => show(at), { "aria-pressed": String(at === place), "data-key": `checkpoint-${at}` }),
      ),
    );
    renew(body, drawn(checkpoints[place]));
  }
  show(checkpoints.length - 1);
  return [el("h2", {}, t("Tensors that changed between checkpoints")), choices, body];
}

function label(each) {
  const kind = each.kind === "full" ? "" : ` ${each.kind}`;
  const rank = each.rank === null ? "" : ` rank ${each.rank}`;
  return each.before === null ? `${each.step}${kind}${rank}` : `${each.before} → ${each.step}${kind}${rank}`;
}

function drawn(each) {
  const problems = each.problems.map((text) => el("p", { class: "note" }, text));
  if (each.before === null)
    return [
      problems,
      el(
        "p",
        { class: "dim" },
        t("Checkpoint {step} holds {n} tensors; there is no earlier one of its kind to compare with.", { step: each.step, n: each.tensors }),
      ),
    ];
  const received = t("{n} of {all} tensors changed from checkpoint {before} to {step}.", { n: each.changed, all: each.tensors, ...each });
  const head = el(
    "tr",
    {},
    el("th", { scope: "col" }, t("layer")),
    each.kinds.map((kind) => el("th", { scope: "col", class: "up" }, el("span", {}, kind))),
  );
  const width = each.kinds.length;
  const rows = each.layers.map((layer, at) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, layer === OUTSIDE ? t("other") : String(layer)),
      each.cells.slice(at * width, (at + 1) * width).map((share, kind) => cell(share, each.kinds[kind], layer)),
    ),
  );
  return [
    problems,
    el("p", { class: each.changed ? "" : "critical strong" }, received),
    el(
      "p",
      { class: "dim" },
      t("● changed, ○ byte-identical, ◐ partly changed; empty: no such tensor."),
    ),
    el(
      "div",
      { class: "wide", tabindex: 0, role: "group", "aria-label": "Map of tensors" },
      el("table", { class: "heat" }, el("thead", {}, head), el("tbody", {}, rows)),
    ),
  ];
}

function cell(share, kind, layer) {
  if (share === null) return el("td", {});
  const [sign, name] = share === 1 ? ["●", "changed"] : share === 0 ? ["○", "identical"] : ["◐", "partly"];
  const words = name === "partly" ? `${Math.round(share * 100)} % changed` : name;
  return el("td", { class: name, title: `${layer === OUTSIDE ? "" : `layer ${layer} `}${kind}: ${words}` }, sign);
}
