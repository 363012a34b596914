"""Turns a file of rule tests (``rules/tests/*.yaml``) into tests, and runs them.

A test is the block of a runbook example (see ``example_blocks.py``) with the rule it is for::

    tests:
      - rule: kl-stuck-at-zero
        name: frozen, then it trains          # optional
        config: {beta: 0.04}
        series: {kl_reference: "0x30 0.01x9", learning_rate: "1e-6x39"}
        expect: {fires: 10, severity: critical, resolves: 32}
        at: {9: quiet, 20: critical}          # optional: the alert after the row of a step
    never_resolve:                            # rules whose alert lasts as long as the run, and why
      group-size-one: the configuration of a run does not change
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from msgspec import field

from grpo_watch.config.document import Document, Path_, nearest, read_document
from grpo_watch.engine.detector import Detector
from grpo_watch.engine.engine import Engine, Monitor
from grpo_watch.engine.records import AlertState, Transition
from grpo_watch.engine.rule import Rule
from grpo_watch.errors import RuleError
from grpo_watch.rules.example_blocks import RUN, Example, ExampleBlock, Expectation, block_in, example_of


def failure(
    example: Example, rule: Rule, detectors: Mapping[str, type[Detector]], at: Mapping[int, str] = MappingProxyType({})
) -> str | None:
    """Run one example under one rule; None if it passes, else one line with the difference.

    ``at`` is the expected level of the alert after the records of some steps.
    """
    transitions, monitor = transitions_of(example, rule, detectors)
    if monitor is None:
        return f"{example.place}: the rule is switched off"
    if monitor.broken:
        return f"{example.place}: the detector broke: {monitor.broken}"
    if wrong := _difference(example.expect, transitions):
        said = "; ".join(f"{each.to_state.value} at step {each.step} ({each.severity.value})" for each in transitions)
        return f"{example.place}: {wrong} (output: {said or monitor.reason or 'nothing'})"
    for step, wanted in sorted(at.items()):
        if (got := level_at(step, transitions)) != wanted:
            return f"{example.place}: expected {wanted} at step {step}, got {got}"
    return None


def transitions_of(
    example: Example, rule: Rule, detectors: Mapping[str, type[Detector]]
) -> tuple[list[Transition], Monitor | None]:
    """The transitions of one rule over an example's records, and its monitor at the end (None: switched off here)."""
    engine = Engine(RUN, [rule], detectors)
    state = engine.state
    state.shows_end, state.in_folder = example.shows_end, example.in_folder
    transitions = [transition for record in example.records for transition in engine.feed(record)]
    return transitions, next(iter(state.monitors), None)


def _difference(expect: Expectation, transitions: list[Transition]) -> str | None:
    fired = next((t for t in transitions if t.to_state is AlertState.FIRING), None)
    resolved = next((t for t in transitions if t.to_state is AlertState.RESOLVED), None)
    if expect.quiet and fired is not None:
        return "expected to stay quiet"
    checks = (
        ("fire at step", expect.fires, fired.step if fired else None),
        ("fire with first_step", expect.first_step, fired.first_step if fired else None),
        ("fire with severity", expect.severity, fired.severity if fired else None),
        ("resolve at step", expect.resolves, resolved.step if resolved else None),
    )
    for what, wanted, got in checks:
        if wanted is not None and wanted != got:
            return f"expected to {what} {getattr(wanted, 'value', wanted)}, got {getattr(got, 'value', got)}"
    return None


QUIET = "quiet"


class RuleTestBlock(ExampleBlock, frozen=True, kw_only=True):
    """A test as it is written; ``at`` holds ``step: level`` pairs."""

    rule: str
    name: str = ""
    at: Mapping[int, Literal["quiet", "info", "warning", "critical"]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuleTest:
    """One test of one rule; ``at`` is the alert's expected level after the records of a step."""

    rule: str
    name: str
    example: Example
    at: Mapping[int, str]


def read_tests(file: Path, rules: Mapping[str, Rule]) -> tuple[RuleTest, ...]:
    """Read a file of tests.

    Args:
        file: the YAML file.
        rules: the rules in force, by name.

    Raises:
        RuleError: naming file, line and column of the first mistake.
    """
    document = read_document(file, RuleError)
    value = document.value
    if not isinstance(value, dict) or not isinstance(value.get("tests"), list):
        raise RuleError("a test file holds a list under the key `tests:`", document.place_of(()))
    for key in value:
        if key not in {"tests", "never_resolve"}:
            fix = nearest(key, ("tests", "never_resolve"))
            raise RuleError(f"unknown key {key!r}", document.place_of((key,), key=True), fix)
    for name in value.get("never_resolve") or {}:
        _check_rule(name, rules, document, ("never_resolve", name))
    return tuple(_test(document, ("tests", index), rules) for index in range(len(value["tests"])))


def problem(test: RuleTest, rules: Mapping[str, Rule], detectors: Mapping[str, type[Detector]]) -> str | None:
    """Run a test; None if it passes, else one line with its place."""
    return failure(test.example, rules[test.rule], detectors, test.at)


def level_at(step: int, transitions: Sequence[Transition]) -> str:
    """``quiet``, or the worst severity that fires after the records of a step."""
    newest = {transition.key: transition for transition in transitions if transition.step <= step}
    firing = [t.severity for t in newest.values() if t.to_state is AlertState.FIRING]
    return max(firing, key=lambda severity: severity.rank).value if firing else QUIET


def _test(document: Document, path: Path_, rules: Mapping[str, Rule]) -> RuleTest:
    part = document.below(path)
    if not isinstance(part.value, dict) or not isinstance(part.value.get("rule"), str):
        raise RuleError("a test is a mapping that names its `rule:`", part.place_of(()))
    block = block_in(part, RuleTestBlock)
    _check_rule(block.rule, rules, part, ("rule",))
    return RuleTest(block.rule, block.name, example_of(block, part, part.place_of(())), block.at)


def _check_rule(name: str, rules: Mapping[str, Rule], document: Document, path: Path_) -> None:
    if name not in rules:
        raise RuleError(f"there is no rule {name!r}", document.place_of(path), nearest(name, rules))
