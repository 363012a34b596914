"""Mistakes that a new detector may hold: shared state, a window kept across attempts, late dates, wrong needs,
parameters that are not read or break it, rows that lack its metrics, NaN.

Each is tried on all examples of runbooks and rule tests, so that a detector is held against them by being there.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise, zip_longest
from math import nan
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.engine.detector import Detector
from grpo_watch.engine.engine import Engine
from grpo_watch.engine.metric_names import METRICS, split_label
from grpo_watch.engine.records import (
    AlertState,
    MetricRow,
    Reading,
    Record,
    RunConfig,
    Severity,
    Stream,
    Transition,
    Verdict,
)
from grpo_watch.engine.run_view import RunView
from grpo_watch.rules.example_blocks import Example
from grpo_watch.rules.rule_tests import read_tests, transitions_of
from grpo_watch.rules.runbook import runbook_of
from tests.support.detecting import DETECTORS, SHIPPED
from tests.support.runbooks import examples_of

EACH = pytest.mark.parametrize("rule", sorted(SHIPPED))
Change = tuple[str, int, Severity, str]


@cache
def examples() -> dict[str, list[Example]]:
    """Of each rule, from its runbook and its tests."""
    found = {name: list(examples_of(runbook_of(DETECTORS[name]))) for name in SHIPPED}
    for file in sorted(Path("rules/tests").glob("*.yaml")):
        for test in read_tests(file, SHIPPED):
            found[test.rule].append(test.example)
    return found


def changes(transitions: list[Transition]) -> list[Change]:
    return [(t.to_state.value, t.step, t.severity, t.key) for t in transitions]


def first_firing(transitions: list[Transition]) -> Change | None:
    return next((change for change in changes(transitions) if change[0] == AlertState.FIRING.value), None)


def said_of(rule: str, example: Example) -> list[Transition]:
    return transitions_of(example, SHIPPED[rule], DETECTORS)[0]


def engine_for(rule: str, example: Example) -> Engine:
    engine = Engine("run", [SHIPPED[rule]], DETECTORS)
    engine.state.shows_end, engine.state.in_folder = example.shows_end, example.in_folder
    return engine


@EACH
def test_two_runs_at_once_are_judged_as_apart(rule: str) -> None:
    """Record by record in turns: what a window of the class, not of the instance, would mix up."""
    for pair in pairwise(examples()[rule]):
        engines = [engine_for(rule, example) for example in pair]
        said: list[list[Transition]] = [[], []]
        for records in zip_longest(*(example.records for example in pair)):
            for engine, record, heard in zip(engines, records, said, strict=True):
                heard.extend(engine.feed(record) if record is not None else ())
        assert [changes(each) for each in said] == [changes(said_of(rule, example)) for example in pair]


@EACH
def test_nothing_is_dated_after_the_record_that_shows_it(rule: str) -> None:
    """A reading with a later step than its record delays the alert."""
    for example in examples()[rule]:
        engine, reached = engine_for(rule, example), 0
        for record in example.records:
            reached = max(reached, getattr(record, "step", None) or 0)
            assert all(change.step <= reached for change in engine.feed(record)), example.place


def restarted(records: tuple[Record, ...], cut: int) -> Iterator[Record]:
    """The records before ``cut``, and then all of them as the rows of a second attempt."""
    yield from records[:cut]
    for record in records:
        yield record._replace(attempt=2) if isinstance(record, MetricRow) else record


def loud(rule: str) -> list[tuple[Example, Change]]:
    """Examples of metric rows of one attempt that end with more than an info (all where there are none), and how."""
    plain = [each for each in examples()[rule] if all(map(_of_one_attempt, each.records))]
    firing = [(each, fired) for each in plain if (fired := first_firing(said_of(rule, each))) is not None]
    more = [(each, fired) for each, fired in firing if fired[2] is not Severity.INFO]
    return more or firing


@EACH
def test_a_run_that_begins_again_is_judged_as_a_new_one(rule: str) -> None:
    """Restarted just before it would fire, the rule fires where it does without that: not of the old window's rows."""
    for example, fired in loud(rule):
        engine = engine_for(rule, example)
        cut = next(at for at, record in enumerate(example.records) if first_firing(engine.feed(record)))
        again = engine_for(rule, example)
        said = [t for record in restarted(example.records, cut) for t in again.feed(record)]
        assert first_firing(said) == fired, example.place


def _of_one_attempt(record: Record) -> bool:
    return record.attempt == 1 if isinstance(record, MetricRow) else isinstance(record, RunConfig)


def only_needed(rule: str, example: Example) -> Example:
    """The example with the metrics alone that the detector declares as needs."""
    needs = {metric for alternative in DETECTORS[SHIPPED[rule].detector or ""].needs for metric in alternative}
    return with_metrics(example, needs.__contains__)


def with_metrics(example: Example, keep: Callable[[str], bool]) -> Example:
    """The example with the metrics alone that ``keep`` wants."""
    kept = [
        record._replace(values={name: value for name, value in record.values.items() if keep(split_label(name)[0])})
        if isinstance(record, MetricRow)
        else record
        for record in example.records
    ]
    return replace(example, records=tuple(kept))


@EACH
def test_what_a_rule_needs_is_declared(rule: str) -> None:
    """With its declared needs alone it fires in one of its examples, or says what else it lacks."""
    firing = [each for each in examples()[rule] if first_firing(said_of(rule, each)) is not None]
    answers = [transitions_of(only_needed(rule, each), SHIPPED[rule], DETECTORS) for each in firing]
    assert any(first_firing(said) or (monitor is not None and monitor.reason) for said, monitor in answers)


@EACH
def test_parameters_are_read(rule: str) -> None:
    detector = DETECTORS[SHIPPED[rule].detector or ""]
    modules = [
        inspect.getmodule(base) for base in detector.__mro__ if base.__module__.startswith("grpo_watch.detectors")
    ]
    trees = [ast.parse(inspect.getsource(module)) for module in modules if module is not None]
    read = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert set(detector.params) <= read


@EACH
def test_each_parameter_may_be_set_to_its_bounds(rule: str) -> None:
    for name, param in DETECTORS[SHIPPED[rule].detector or ""].params.items():
        for bound in (param.minimum, param.maximum):
            if bound is None or isinstance(param.default, (str, bool)):
                continue
            bounded = replace(SHIPPED[rule], params={**SHIPPED[rule].params, name: type(param.default)(bound)})
            for example in examples()[rule]:
                engine = Engine("run", [bounded], DETECTORS)
                for record in example.records:
                    engine.feed(record)
                assert engine.state.monitors[0].broken is None, f"{name} = {bound}, {example.place}"


def listening(base: type[Detector], heard: list[tuple[Record, list[Reading]]]) -> type[Detector]:
    """The detector, which also appends each record that it gets, with its answer, to ``heard``."""

    def observe(self: Any, record: Record, run: RunView) -> Iterable[Reading]:
        answer = list(base.observe(self, record, run))
        heard.append((record, answer))
        return answer

    return type(base.__name__, (base,), {"observe": observe})


@EACH
def test_rows_of_other_metrics_are_no_data(rule: str) -> None:
    """An absent metric is no zero: rows of another metric alone are neither OK nor a breach."""
    name = SHIPPED[rule].detector or ""
    needs = {need for alternative in DETECTORS[name].needs for need in alternative}
    if DETECTORS[name].stream is Stream.EVAL or needs.isdisjoint(METRICS):
        return
    heard: list[tuple[Record, list[Reading]]] = []
    for example in examples()[rule]:
        first = next((each for each in example.records if isinstance(each, MetricRow)), None)
        if first is None:
            continue
        engine = Engine("run", [SHIPPED[rule]], {**DETECTORS, name: listening(DETECTORS[name], heard)})
        engine.state.shows_end, engine.state.in_folder = example.shows_end, example.in_folder
        for record in example.records[: example.records.index(first) + 1]:
            engine.feed(record)
        heard.clear()
        for more in range(1, 60):
            engine.feed(first._replace(step=first.step + more, values={"tokens_seen": float(more)}, raw={}))
        judged = [answer for record, answer in heard if isinstance(record, MetricRow)]
        assert all(each.verdict is Verdict.NO_DATA for answer in judged for each in answer), example.place


NAN_IS_THE_SYMPTOM = frozenset({"non-finite-metric", "reward-not-finite", "advantage-out-of-bounds"})


@EACH
def test_one_nan_does_not_silence_a_rule(rule: str) -> None:
    """With NaN for each of its metrics on the first row that has it, an example of each still fires, with a number."""
    needs = {need for alternative in DETECTORS[SHIPPED[rule].detector or ""].needs for need in alternative}
    for metric in sorted(needs & set(METRICS)) if rule not in NAN_IS_THE_SYMPTOM else ():
        spoiled = [with_nan(metric, example) for example, _ in loud(rule)]
        said = [said_of(rule, example) for example in spoiled if example is not None]
        firing = [[t for t in each if t.to_state is AlertState.FIRING] for each in said]
        finite = [all(t.reading is None or t.reading.value == t.reading.value for t in each) for each in firing if each]
        assert (any(firing) and all(finite)) or not said, metric


def with_nan(metric: str, example: Example) -> Example | None:
    """The example with NaN where the metric comes first; None where fewer than two rows have it."""
    having = [
        at
        for at, record in enumerate(example.records)
        if isinstance(record, MetricRow) and any(split_label(name)[0] == metric for name in record.values)
    ]
    if len(having) < 2:
        return None
    records = list(example.records)
    row = records[having[0]]
    assert isinstance(row, MetricRow)
    values = {name: nan if split_label(name)[0] == metric else value for name, value in row.values.items()}
    records[having[0]] = row._replace(values=values)
    return replace(example, records=tuple(records))


@EACH
def test_what_a_rule_needs_is_used(rule: str) -> None:
    """Of each metric in its needs an example shows what it is for: without it, the rule answers otherwise.

    One that the detector doesn't read would keep the rule blind where it could judge.
    """
    name = SHIPPED[rule].detector or ""
    for metric in sorted({need for alternative in DETECTORS[name].needs for need in alternative} & set(METRICS)):
        needs = tuple(tuple(need for need in each if need != metric) for each in DETECTORS[name].needs)
        never_blind = {**DETECTORS, name: type(DETECTORS[name].__name__, (DETECTORS[name],), {"needs": needs})}
        assert any(
            changes(transitions_of(with_metrics(example, metric.__ne__), SHIPPED[rule], never_blind)[0])
            != changes(said_of(rule, example))
            for example in examples()[rule]
        ), metric
