"""Turns rule files into the list of everything that is wrong with them, not only the first mistake."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from grpo_watch.catalogue import catalogue
from grpo_watch.config.document import nearest, read_document
from grpo_watch.engine.detector import Detector
from grpo_watch.engine.expression import compile_expression
from grpo_watch.engine.metric_names import split_label
from grpo_watch.engine.rule import Rule
from grpo_watch.errors import RuleError
from grpo_watch.rules.packs import WrittenRule, apply_entry, load_rules, read_entry, rules_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

MADE = frozenset({"completion_duplicate_ratio", "parameters_changed_ratio"})
"""Metrics that are made from dumps and checkpoints."""

ANYWHERE = MADE | {"step", "max_steps", "completions", "checkpoints", "probe", "rollout engine", "run end"}
"""Needs that every framework's runs can have."""


def lint(
    files: Sequence[Path], produced: frozenset[str] | None = None, frameworks: Sequence[str] = ()
) -> list[RuleError]:
    """Every problem in the files, in order; each file lies over the shipped rules and the files before it.

    Args:
        files: rule files.
        produced: the metrics that the framework can give; None: any.
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
            lacking = [] if produced is None else _lacking(rule, detectors, produced)
            if lacking:
                place, what = written.place("name"), f"not logged: {', '.join(lacking)}"
                problems.append(RuleError(f"{rule.name} can never be evaluated there", place, what))
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


def _lacking(rule: Rule, detectors: Mapping[str, type[Detector]], produced: frozenset[str]) -> list[str]:
    """The metrics of the nearest alternative that the framework does not give; none where one can be had."""
    needs = detectors[rule.detector].needs if rule.detector else (compile_expression(rule.when or "").names,)
    had = ANYWHERE | produced
    lacking = [
        [need for need in alternative if not need.startswith("raw:") and {need, split_label(need)[0]}.isdisjoint(had)]
        for alternative in needs
    ]
    return min(lacking, key=len, default=[])
