"""The pipeline: items of any number of runs in, transitions out."""

from __future__ import annotations

from grpo_watch.engine.records import (
    AlertState,
    ChannelElected,
    ChannelKind,
    ChannelOpened,
    EventKind,
    Item,
    RawRow,
    RunConfig,
    RunEvent,
    Setting,
    Stream,
    Tick,
    Transition,
)
from grpo_watch.pipeline.pipeline import Pipeline
from tests.support.feeding import DETECTORS, RUN, a_pipeline
from tests.support.records import Scripted, a_rule, raw

OPENED = ChannelOpened("log", ChannelKind.CONSOLE, shows_end=True)


def collapsed(step: int, reward: float = 0.0) -> RawRow:
    """A row of a run under the rule below."""
    return raw(step, "log", ChannelKind.CONSOLE, values={"reward": reward})


def watching() -> Pipeline:
    """A pipeline with one condition that fires at its second breach."""
    return Pipeline(RUN, [a_rule("low", when="reward_mean < 0.1", min_observations=2)], {})


def feed(pipeline: Pipeline, *items: Item) -> list[Transition]:
    """All transitions of these items."""
    return [transition for item in items for transition in pipeline.feed(item)]


def test_raw_rows_become_transitions() -> None:
    said = feed(watching(), OPENED, collapsed(1), collapsed(2), collapsed(3, 0.9))
    assert [(t.run, t.rule, t.to_state, t.step) for t in said] == [
        ("run", "low", AlertState.PENDING, 1),
        ("run", "low", AlertState.FIRING, 2),
        ("run", "low", AlertState.RESOLVED, 3),
    ]


def test_what_channels_show_reaches_the_run() -> None:
    pipeline = watching()
    assert pipeline.state.shows_end is False
    feed(pipeline, OPENED)
    assert pipeline.state.shows_end is True


def test_held_rows_say_nothing_until_they_are_settled() -> None:
    """The first row that goes back is held; the second confirms both, in order."""
    pipeline = watching()
    feed(pipeline, OPENED, collapsed(5, 0.9), collapsed(6, 0.9))
    assert feed(pipeline, collapsed(3)) == []
    said = feed(pipeline, collapsed(4))
    assert [(t.attempt, t.to_state, t.step) for t in said] == [(2, AlertState.PENDING, 3), (2, AlertState.FIRING, 4)]


def test_due_elections_only_take_effect_when_fed() -> None:
    pipeline = a_pipeline()
    feed(pipeline, ChannelOpened("jsonl", ChannelKind.JSONL), OPENED, raw(1, "jsonl", seen=0.0))
    assert list(pipeline.elections(60.0)) == []
    feed(pipeline, raw(2, "log", ChannelKind.CONSOLE, seen=1.0))
    assert list(pipeline.elections(59.0)) == []
    due = list(pipeline.elections(60.0))
    assert due == [ChannelElected(Stream.TRAIN, "log", "jsonl silent")]
    assert list(pipeline.elections(60.0)) == due
    assert pipeline.snapshot().step == 1
    feed(pipeline, *due)
    assert pipeline.snapshot().step == 2
    assert list(pipeline.elections(60.0)) == []


def test_a_broken_rule_stops_neither_the_others_nor_the_run() -> None:
    rules = [a_rule("scripted"), a_rule("low", when="reward_mean < 0.1")]
    pipeline = Pipeline(RUN, rules, {**DETECTORS, "scripted": Scripted})
    said = feed(pipeline, OPENED, collapsed(1), collapsed(2))
    assert [(t.rule, t.step) for t in said] == [("low", 1)]
    assert pipeline.snapshot().step == 2
    assert [view.status.value for view in pipeline.snapshot().rules] == ["broken", "firing"]


def test_a_run_that_was_refused_at_its_start_is_judged_without_a_row() -> None:
    text = "The number of generations per prompt (1) must be at least 2 generations per prompt"
    refused = [RunEvent("log", kind, None, text) for kind in (EventKind.CONFIG_ERROR, EventKind.TRACEBACK)]
    pipeline = a_pipeline()
    said = feed(pipeline, OPENED, RunConfig("trl", None, {"seed": Setting(1, "log")}), *refused, Tick(9.0, live=False))
    assert {(t.rule, t.to_state, t.step) for t in said} == {
        ("group-size-one", AlertState.FIRING, 0),
        ("run-crashed", AlertState.FIRING, 0),
    }
    assert [(f.rule, f.caused_by) for f in pipeline.snapshot().findings] == [
        ("group-size-one", None),
        ("run-crashed", "group-size-one"),
    ]
