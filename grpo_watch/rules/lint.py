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
    known = catalogue()
    rules = {rule.name: rule for rule in load_rules(detectors=known)}
    problems: list[RuleError] = []
    for file in files:
        linter = _Linter(rules, known, produced, frameworks)
        problems += linter.problems_in(file)
        rules = rules | linter.rules
    return problems


class _Linter:
    """Reads one file, entry by entry."""

    def __init__(
        self,
        rules: Mapping[str, Rule],
        known: Mapping[str, type[Detector]],
        produced: frozenset[str] | None,
        frameworks: Sequence[str],
    ) -> None:
        self.rules, self.known, self.produced, self.frameworks = dict(rules), known, produced, frameworks

    def problems_in(self, file: Path) -> Iterator[RuleError]:
        try:
            document = read_document(file, RuleError)
            values = rules_in(document)
        except RuleError as problem:
            yield problem
            return
        names: dict[object, int | None] = {}
        for index, value in enumerate(values):
            try:
                written = read_entry(value, document, ("rules", index), names)
                rule = apply_entry(written, self.rules, self.known)
            except RuleError as problem:
                yield problem
                continue
            self.rules[rule.name] = rule
            yield from self._sense(rule, written)

    def _sense(self, rule: Rule, written: WrittenRule) -> Iterator[RuleError]:
        """Problems of a rule that loads: it matches no framework, or can never be evaluated under the given one."""
        pattern = written.entry.match.framework if written.entry.match else None
        if pattern is not None and self.frameworks and not fnmatch.filter(self.frameworks, pattern):
            fix = nearest(pattern, self.frameworks) or f"known frameworks: {', '.join(self.frameworks)}"
            yield RuleError(f"no framework matches {pattern!r}", written.place("match", "framework"), fix)
        for name in written.entry.hints:
            if self.frameworks and name not in self.frameworks:
                fix = nearest(name, self.frameworks) or f"known frameworks: {', '.join(self.frameworks)}"
                yield RuleError(f"unknown framework {name!r}", written.place("hints", name), fix)
        lacking = self._lacking(rule)
        if lacking:
            yield RuleError(
                f"{rule.name} can never be evaluated there", written.place("name"), f"not logged: {', '.join(lacking)}"
            )

    def _lacking(self, rule: Rule) -> list[str]:
        """The metrics of the nearest alternative that the framework does not give; none where one can be had."""
        if self.produced is None:
            return []
        needs = self.known[rule.detector].needs if rule.detector else (compile_expression(rule.when or "").names,)
        lacking = [[need for need in alternative if not self._has(need)] for alternative in needs]
        return min(lacking, key=len, default=[])

    def _has(self, need: str) -> bool:
        return need in ANYWHERE or need.startswith("raw:") or split_label(need)[0] in (self.produced or ())
