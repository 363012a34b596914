"""Reads a detector's runbook (Markdown next to its module): its text, its elements, and its parameters."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_watch import lazy_re as re
from grpo_watch.engine.detector import Detector, Param
from grpo_watch.engine.rule import Rule
from grpo_watch.errors import FilePlace, RuleError

Node = str | list[Any]
"""A text, or the name of an element followed by its nodes."""
FENCE = "`" * 3
ITEM = re.compile(r"(?:[-*]|\d{1,3}\.) +")
HEADING = re.compile(r"#{1,6} ")
BLOCK = re.compile(r"[-*] |\d{1,3}\. |```|#{1,6} |\|")
CELLS = re.compile(r"(?<!\\)\|")
INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*(?=\S)([^*]+)\*|\[([^\]\[]+)\]\([^\s()]+\)|\\([!-/:-@\[-`{-~])")
"""Code, strong, emphasis, a link, an escaped character."""


@dataclass(frozen=True, slots=True)
class Runbook:
    """The text of one runbook; ``summary`` is the sentence under the title."""

    path: Path
    text: str

    @property
    def summary(self) -> str:
        """The paragraph between the title and the first section."""
        head = self.text.partition("\n## ")[0]
        return " ".join(head.partition("\n")[2].split())


def page_of(detector: type[Detector]) -> Path:
    """A detector's runbook: the Markdown file next to its module, named after its class."""
    return Path(inspect.getfile(detector)).with_name(f"{detector.stem()}.md")


def runbook_of(detector: type[Detector]) -> Runbook:
    """The runbook next to the detector's module.

    Raises:
        RuleError: there is none.
    """
    path = page_of(detector)
    try:
        return Runbook(path, path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise RuleError(f"the runbook can't be read: {problem.strerror}", FilePlace(str(path))) from None


def runbook_for(rule: Rule, detectors: Mapping[str, type[Detector]]) -> Runbook:
    """The runbook of a rule; a condition's is made from its definition."""
    if rule.when is None:
        return runbook_of(detectors[rule.detector or rule.name])
    says = f"`{rule.when}` (defined in {rule.where})"
    return Runbook(Path(rule.where), f"# {rule.name}\n\n{rule.summary}\n\n## How it is computed\n\n{says}\n")


def parameters_of(rule: Rule, detectors: Mapping[str, type[Detector]]) -> list[dict[str, Any]]:
    """Each parameter of a rule with its value in force; empty for a condition."""
    detector = None if rule.when is not None else detectors.get(rule.detector or rule.name)
    return [
        {
            "name": name,
            "value": rule.params.get(name, param.default),
            "default": param.default,
            "allowed": bounds(param),
            "help": param.help,
        }
        for name, param in (detector.params if detector else {}).items()
    ]


def parameter_table(params: Mapping[str, Param]) -> str:
    """The Markdown table of a detector's parameters, one line each; ends with a newline."""
    if not params:
        return "None.\n"
    rows = [
        f"| `{name}` | {_number(param.default)} | {bounds(param)} | {param.help} |" for name, param in params.items()
    ]
    return "\n".join(["| parameter | default | allowed | meaning |", "|---|---|---|---|", *rows]) + "\n"


def bounds(param: Param) -> str:
    """The allowed values in words: ``0 … 1``, ``≥ 2``, ``any number``."""
    if isinstance(param.default, bool):
        return "true, false"
    if isinstance(param.default, str):
        return "text"
    low, high = (None if bound is None else _number(bound) for bound in (param.minimum, param.maximum))
    if low is not None and high is not None:
        return f"{low} … {high}"
    if low is None and high is None:
        return "any number"
    return f"≥ {low}" if high is None else f"≤ {high}"


def _number(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else f"{value:g}"


def nodes(text: str) -> list[list[Any]]:
    """The elements of a page: headings, paragraphs, lists, tables and fenced code, in the Markdown of our pages."""
    found: list[list[Any]] = []
    lines = deque(text.splitlines())
    while lines:
        line = lines.popleft()
        item = ITEM.match(line)
        if line.startswith(FENCE):
            found.append(["pre", "\n".join(_while(lines, lambda each: not each.startswith(FENCE)))])
            if lines:
                lines.popleft()
        elif HEADING.match(line):
            marks, _, title = line.partition(" ")
            found.append([f"h{len(marks)}", *inline(title)])
        elif line.startswith("|") and lines and lines[0].startswith("|"):
            found.append(_table([line, *_while(lines, lambda each: each.startswith("|"))]))
        elif item:
            inner = [line[item.end() :], *(each.strip() for each in _while(lines, lambda each: each[:1] == " "))]
            kind = "ul" if line[0] in "-*" else "ol"
            if not found or found[-1][0] != kind:
                found.append([kind])
            found[-1].append(["li", *inline(" ".join(inner))])
        elif line.strip():
            running = _while(lines, lambda each: bool(each.strip()) and not BLOCK.match(each))
            found.append(["p", *inline(" ".join(map(str.strip, (line, *running))))])
    return found


def _while(lines: deque[str], holds: Callable[[str], bool]) -> list[str]:
    """Take lines off the front while ``holds`` is true of them."""
    taken = []
    while lines and holds(lines[0]):
        taken.append(lines.popleft())
    return taken


def _table(lines: Sequence[str]) -> list[Any]:
    head, _, *body = ([cell.strip() for cell in CELLS.split(line.strip())[1:-1]] for line in lines)
    rows = [["tr", *(["td", *inline(cell)] for cell in row)] for row in body]
    return ["table", ["thead", ["tr", *(["th", *inline(cell)] for cell in head)]], ["tbody", *rows]]


def inline(text: str) -> list[Node]:
    """Code, emphasis and the words of links in running text; the rest stays text."""
    found: list[Node] = []
    at = 0
    for mark in INLINE.finditer(text):
        found += [text[at : mark.start()]] if mark.start() > at else []
        code, strong, emphasis, link, escaped = mark.groups()
        if code:
            found.append(["code", code])
        elif strong or emphasis:
            found.append(["strong" if strong else "em", *inline(strong or emphasis)])
        else:
            found += inline(link) if link else [escaped]
        at = mark.end()
    return found + ([text[at:]] if text[at:] else [])
