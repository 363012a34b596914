"""Turns a runbook (Markdown of the package) into a tree that the page builds elements of: no markup travels as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from grpo_watch.engine.rule import Rule
from grpo_watch.rules.rule_changes import RuleSet
from grpo_watch.rules.runbook import parameters_of, runbook_for

if TYPE_CHECKING:
    from markdown_it.token import Token

Node = str | list[Any]
"""A text, or the name of an element followed by its nodes."""


def runbook_document(name: str, rules: RuleSet) -> dict[str, Any] | None:
    """The runbook of a rule in force: title, summary, sections of ``["p", "text", ["code", "x"]]``; None: no such."""
    rule = next((rule for rule in rules.rules if rule.name == name), None)
    if rule is None:
        return None
    runbook = runbook_for(rule, rules.detectors)
    text = "\n".join(line for line in runbook.text.splitlines() if not line.startswith("<!--"))
    return {
        "rule": rule.name,
        "severity": rule.severity.value,
        "summary": runbook.summary,
        "sections": list(_sections(nodes(text))),
        **effective(rule, rules),
    }


def effective(rule: Rule, rules: RuleSet) -> dict[str, Any]:
    """A rule as it is in force: distances, and each parameter with its value."""
    return {
        "enabled": rule.enabled,
        "when": rule.when,
        "for_steps": rule.for_steps,
        "keep_firing_steps": rule.keep_firing_steps,
        "min_observations": rule.min_observations,
        "params": parameters_of(rule, rules.detectors),
    }


def nodes(text: str) -> list[Node]:
    """The elements of a Markdown text; raw HTML in it stays text."""
    from markdown_it import MarkdownIt  # noqa: PLC0415  only where a runbook is read

    tokens = MarkdownIt("commonmark", {"html": False}).enable("table").parse(text)
    return _nested(iter(tokens))


def _nested(tokens: Iterator[Token]) -> list[Node]:
    """The nodes up to the end of the element that is open."""
    found: list[Node] = []
    for token in tokens:
        if token.nesting < 0:
            break
        if token.nesting > 0:
            inner = _nested(tokens)
            found += inner if token.hidden or token.tag == "a" else [[token.tag, *inner]]
        elif token.type == "inline":
            found += _nested(iter(token.children or ()))
        else:
            found += _leaf(token)
    return found


def _leaf(token: Token) -> list[Node]:
    if token.type in {"fence", "code_block"}:
        return [["pre", token.content.rstrip("\n")]]
    if token.type == "code_inline":
        return [["code", token.content]]
    if token.tag in {"br", "hr"} and token.type != "softbreak":
        return [[token.tag]]
    text = " " if token.type == "softbreak" else token.content
    return [text] if text else []


def _sections(blocks: Sequence[Node]) -> Iterator[dict[str, Any]]:
    """What stands under each second-level heading; the title and the summary precede the first one."""
    number, titles = -1, []
    counted = []
    for block in blocks:
        if block[0] == "h2":
            number += 1
            titles.append("".join(str(part) for part in block[1:]))
        elif number >= 0:
            counted.append((number, block))
    for at, group in groupby(counted, key=lambda pair: pair[0]):
        yield {"title": titles[at], "blocks": [block for _, block in group]}
