"""Turns rule files into the list of everything that is wrong with them, not only the first mistake."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from grpo_watch.catalogue import catalogue
from grpo_watch.config.document import nearest, read_document
from grpo_watch.errors import RuleError
from grpo_watch.rules.packs import WrittenRule, apply_entry, load_rules, read_entry, rules_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def lint(files: Sequence[Path], frameworks: Sequence[str] = ()) -> list[RuleError]:
    """Every problem in the files, in order; each file lies over the shipped rules and the files before it.

    Args:
        files: rule files.
        frameworks: the names that a ``match`` on the framework can fit; none: any.

    Raises:
        RuleError: a shipped rule can't be used.
    """
    detectors = catalogue()
    rules = {rule.name: rule for rule in load_rules(detectors=detectors)}
    problems: list[RuleError] = []
    for file in files:
        try:
            document = read_document(file, RuleError)
            values = rules_in(document)
        except RuleError as problem:
            problems.append(problem)
            continue
        names: dict[object, int | None] = {}
        for index, value in enumerate(values):
            try:
                written = read_entry(value, document, ("rules", index), names)
                rule = apply_entry(written, rules, detectors)
            except RuleError as problem:
                problems.append(problem)
                continue
            rules[rule.name] = rule
            problems += _unknown_frameworks(written, frameworks)
    return problems


def _unknown_frameworks(written: WrittenRule, frameworks: Sequence[str]) -> Iterator[RuleError]:
    """Problems of a rule that loads and is for no framework that is known."""
    known = f"known frameworks: {', '.join(frameworks)}"
    pattern = written.entry.match.framework if written.entry.match else None
    if pattern is not None and frameworks and not fnmatch.filter(frameworks, pattern):
        fix = nearest(pattern, frameworks) or known
        yield RuleError(f"no framework matches {pattern!r}", written.place("match", "framework"), fix)
    for name in written.entry.hints:
        if frameworks and name not in frameworks:
            yield RuleError(
                f"unknown framework {name!r}", written.place("hints", name), nearest(name, frameworks) or known
            )
