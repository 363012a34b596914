"""A change of rules at any record: history is never paged twice, and no page is swallowed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.alerts import Alert
from grpo_watch.engine.records import AlertState, ChannelKind, ChannelOpened, Item, RawRow, Severity, Transition
from grpo_watch.engine.rule import Rule
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.rules.rule_changes import Key, RuleSet, fingerprint, reconcile, rule_set

HIGH, LOW = 0.9, 0.1
OPENED = ChannelOpened("log", ChannelKind.JSONL)


def rules(threshold: float, for_steps: int) -> RuleSet:
    rule = Rule("high", when=f"loss > {threshold}", for_steps=for_steps, min_observations=1, severity=Severity.CRITICAL)
    return rule_set([rule], {})


def items(values: Sequence[float]) -> list[Item]:
    return [OPENED, *(RawRow("log", ChannelKind.JSONL, step, {"loss": v}) for step, v in enumerate(values, 1))]


def alerts(pipeline: Pipeline) -> dict[Key, Alert]:
    return {(m.rule.name, key): a for m in pipeline.state.monitors for key, a in m.alerts.items()}


def restored(fed: Sequence[Item], loaded: dict[Key, Alert], chosen: RuleSet) -> tuple[Pipeline, list[Transition]]:
    """What a restart or a reload does."""
    pipeline = Pipeline("r", chosen.rules, chosen.detectors)
    for item in fed:
        pipeline.feed(item)
    settled = reconcile("r", loaded, alerts(pipeline), chosen, pipeline.state.step)
    for (rule, key), alert in settled.alerts.items():
        for monitor in pipeline.state.monitors:
            if monitor.rule.name == rule:
                monitor.alerts[key] = alert
                monitor.active |= alert.state in {AlertState.PENDING, AlertState.FIRING}
    return pipeline, list(settled.transitions)


values = st.lists(st.sampled_from([HIGH, LOW, 0.5]), min_size=1, max_size=25)
rule_sets = st.sampled_from([rules(0.8, 0), rules(0.8, 3), rules(0.4, 0), rules(2.0, 0)])


@pytest.mark.slow
@settings(derandomize=True, max_examples=200, deadline=None)
@given(values, st.lists(rule_sets, min_size=1, max_size=6), st.data())
def test_reloads_anywhere(series: list[float], chosen: list[RuleSet], data: st.DataObject) -> None:
    """Reported transitions alternate, none has the id of another, and the last one says what is true."""
    stream = items(series)
    cuts = sorted(data.draw(st.integers(1, len(stream))) for _ in chosen[1:])
    reported: list[Transition] = []
    fed: list[Item] = []
    pipeline, _ = restored([], {}, chosen[0])
    for number, part in enumerate(zip([0, *cuts], [*cuts, len(stream)], strict=True)):
        if number:
            pipeline, new = restored(fed, alerts(pipeline), chosen[number])
            assert len(new) <= 1
            reported += new
        for item in stream[slice(*part)]:
            reported += pipeline.feed(item)
            fed.append(item)
    pages = [t for t in reported if t.to_state in {AlertState.FIRING, AlertState.RESOLVED}]
    pages = [t for t in pages if t.to_state is AlertState.FIRING or t.from_state is AlertState.FIRING]
    assert len({t.id for t in reported}) == len(reported)
    states = [t.to_state for t in pages]
    assert all(before is not after for before, after in pairwise(states))
    now = alerts(pipeline).get(("high", ""))
    firing = now is not None and now.state is AlertState.FIRING
    assert (bool(states) and states[-1] is AlertState.FIRING) == firing
    assert (now.fired_total if now else 0) == states.count(AlertState.FIRING)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(values, rule_sets, st.data())
def test_restarts_anywhere_report_the_same(series: list[float], chosen: RuleSet, data: st.DataObject) -> None:
    stream = items(series)
    steady, _ = restored([], {}, chosen)
    wanted = [t for item in stream for t in steady.feed(item)]
    cut = data.draw(st.integers(0, len(stream)))
    pipeline, _ = restored([], {}, chosen)
    reported = [t for item in stream[:cut] for t in pipeline.feed(item)]
    pipeline, new = restored(stream[:cut], alerts(pipeline), chosen)
    assert new == []
    assert reported + [t for item in stream[cut:] for t in pipeline.feed(item)] == wanted


def test_a_rule_that_was_removed_resolves_its_alert() -> None:
    loaded = {("gone", ""): Alert(AlertState.FIRING, 2, first_step=3, fired_step=5, severity=Severity.WARNING)}
    settled = reconcile("r", loaded, {}, RuleSet((), {}), 9)
    (reported,) = settled.transitions
    assert (reported.from_state, reported.to_state, reported.step, reported.first_step) == (
        AlertState.FIRING,
        AlertState.RESOLVED,
        9,
        3,
    )
    assert reconcile("r", settled.alerts, {}, RuleSet((), {}), 9).transitions == ()


def test_fingerprints_follow_what_decides() -> None:
    rule = Rule("high", when="loss > 1")
    same = Rule("high", when="loss > 1", hint="other words", where="b.yaml:9")
    other = Rule("high", when="loss > 1", for_steps=5)
    assert fingerprint(rule, {}) == fingerprint(same, {})
    assert fingerprint(rule, {}) != fingerprint(other, {})
