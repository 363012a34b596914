// Builds elements. Whatever comes from a run becomes text, never markup, and what can't be seen in it is shown.

import { t } from "./plot.js";

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu;

// Controls, and marks that turn the direction of text, as escapes; line breaks become spaces.
export function visible(text) {
  return String(text).replace(HIDDEN, (char) => {
    if (char === "\n" || char === "\t") return " ";
    const code = char.codePointAt(0).toString(16);
    return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
  });
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [kind, run] of Object.entries(value)) made.addEventListener(kind, run);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    made.append(child instanceof Node ? child : visible(child));
  }
  return made;
}

// el("p", { class: "dim" }, "text", el("b", {}, "bold"))
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

// A sentence in which `code` stands between backticks.
export function prose(text) {
  const parts = String(text).split("`");
  if (parts.length % 2 === 0) return [text];
  return parts.map((part, place) => (place % 2 ? el("code", {}, part) : part));
}

export function mark(severity, words = t(severity.replace("-", " "))) {
  return el("span", { class: `mark ${severity}` }, words);
}

export function table(names, rows, attributes = {}) {
  const head = el(
    "tr",
    {},
    names.map((name) => el("th", { scope: "col" }, name && t(name))),
  );
  const body = rows.map((row) =>
    el(
      "tr",
      {},
      row.map((cell) => el("td", {}, cell)),
    ),
  );
  return el(
    "div",
    { class: "wide", tabindex: 0, role: "group", ...attributes },
    el("table", {}, el("thead", {}, head), el("tbody", {}, body)),
  );
}

export function button(label, run, attributes = {}) {
  return el("button", { type: "button", ...attributes, on: { click: run } }, label);
}

// Replaces the content of `holder`; the focus and the folds that were open stay, and what was typed where the address
// does not hold it (`data-typed`).
export function renew(holder, nodes) {
  const focused = holder.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const typed = new Map([...holder.querySelectorAll("input[data-typed]")].map((each) => [each.dataset.key, each]));
  const opened = new Set([...holder.querySelectorAll("details[open][data-key]")].map((each) => each.dataset.key));
  holder.replaceChildren(...[nodes].flat(Infinity).filter(Boolean));
  for (const each of holder.querySelectorAll("details[data-key]")) if (opened.has(each.dataset.key)) each.open = true;
  for (const each of holder.querySelectorAll("input[data-typed]")) retype(each, typed.get(each.dataset.key));
  if (focused) [...holder.querySelectorAll("[data-key]")].find((each) => each.dataset.key === focused)?.focus();
}

function retype(input, before) {
  if (!before?.value || before === input) return;
  input.value = before.value;
  input.setSelectionRange(before.selectionStart, before.selectionEnd);
  input.dispatchEvent(new Event("input"));
}

// A part of the page that is redrawn only when what it shows has changed.
export function part(holder, draw) {
  let before;
  return (received) => {
    const now = JSON.stringify(received);
    if (now === before) return;
    before = now;
    renew(holder, draw(received));
  };
}
