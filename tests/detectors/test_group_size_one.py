"""Groups of one: refused, or let through."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import EventKind, MetricRow, RunConfig, RunEvent, Setting, Tick
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "group-size-one"


def refused(text: str, kind: EventKind = EventKind.CONFIG_ERROR) -> Watched:
    return Watched(RULE).feed(RunEvent("log", kind, text=text))


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: num_generations must be greater than 1 for GRPO",
        "ValueError: GRPO requires at least 2 generations per prompt to calculate the advantages. You provided 1",
        (
            "ValueError: The global train batch size (1 x 1) must be evenly divisible by the number of generations per "
            "prompt (1). Given the current train batch size, the valid values for the number of generations are: []."
        ),
    ],
    ids=["ms-swift 4.6", "TRL 1.16, ms-swift 3.12", "ms-swift 3.4"],
)
def test_the_refusals_of_every_era(text: str) -> None:
    """Before the first step."""
    run = refused(text)
    assert run.changes == [("firing", 0, "critical")]
    assert text[:60] in run.said[-1].reading.message


def test_other_refusals_and_other_events_are_not_its_matter() -> None:
    """Twelve generations that don't divide; the same words in a traceback that was only logged."""
    twelve = "must be evenly divisible by the number of generations per prompt (12)"
    assert refused(twelve).changes == []
    assert refused("num_generations must be greater than 1 for GRPO", EventKind.TRACEBACK).changes == []


@pytest.mark.parametrize(("size", "changes"), [(1, [("firing", 1, "critical")]), (2, []), (None, [])])
def test_a_framework_that_lets_it_pass(size: int | None, changes: list[tuple[str, int, str]]) -> None:
    """The configuration and the first rows say so."""
    settings = {} if size is None else {"num_generations": size}
    run = Watched(RULE, **settings).feed(row(1), row(2), row(3), Tick(100.0))
    assert run.changes == changes
    assert run.monitor.evaluated == (size is not None)


def test_nothing_is_reported_before_the_first_row() -> None:
    """A configuration that is about to be refused speaks for itself."""
    assert Watched(RULE, num_generations=1).feed(Tick(100.0)).said == []


def test_a_second_launch_that_runs_ends_it() -> None:
    """The log is appended to; the new configuration has eight."""
    run = Watched(RULE, num_generations=8)
    run.feed(RunEvent("log", EventKind.CONFIG_ERROR, text="num_generations must be greater than 1"))
    run.feed(row(1), Tick(100.0))
    assert run.changes == [("firing", 0, "critical"), ("resolved", 1, "critical")]


def test_a_configuration_is_judged_at_the_first_row() -> None:
    """verl trains with it; what the run is missing is known before anything else of it."""
    run = Watched("group-size-one", num_generations=1).feed_all(row(s, loss=0.0) for s in range(1, 55))
    assert (run.said[0].step, run.said[0].first_step) == (1, 1)


def test_a_configuration_holds_since_the_first_step() -> None:
    """However late it becomes known: all steps were wasted."""
    run = Watched("group-size-one").feed_all(row(s, loss=0.0) for s in range(1, 55))
    run.feed(RunConfig("verl", None, {"num_generations": Setting(1, "config.yaml")}))
    assert (run.said[0].step, run.said[0].first_step) == (54, 1)


def test_advantages_of_both_signs_show_that_completions_are_compared() -> None:
    """Whatever a setting says that another one may override: a lone completion has an advantage of 0 or its reward."""
    rows = [row(s, reward_mean=0.3, advantage_max=1.5, advantage_min=-0.5) for s in (1, 2)]
    run = Watched(RULE, num_generations=1).feed(*rows, row(3, reward_mean=0.0, advantage_max=0.0, advantage_min=0.0))
    assert run.changes == []


def test_advantages_of_both_signs_that_are_the_rewards_are_those_of_lone_completions() -> None:
    """As verl logs them for rewards of both signs; with a group they are other numbers."""

    def logged(high: float, low: float) -> MetricRow:
        raw = {"critic/score/max": 0.26934757, "critic/score/min": -0.42921429, "critic/score/mean": -0.08}
        return row(1, reward_mean=-0.08, advantage_max=high, advantage_min=low)._replace(raw=raw)

    assert Watched(RULE, num_generations=1).feed(logged(0.26934731, -0.42921388)).changes == [("firing", 1, "critical")]
    assert Watched(RULE, num_generations=1).feed(logged(1.5, -0.42921388)).changes == []


def test_advantages_of_both_signs_end_it() -> None:
    """The first batch had groups without spread only."""
    none, both = row(1, advantage_max=0.0, advantage_min=0.0), row(2, advantage_max=1.5, advantage_min=-0.5)
    run = Watched(RULE, num_generations=1).feed(none, both)
    assert run.changes == [("firing", 1, "critical"), ("resolved", 2, "critical")]


@pytest.mark.parametrize(("high", "low"), [(0.0, 0.0), (1.0, 0.0), (0.0, -1.0)])
def test_advantages_of_one_sign_may_be_those_of_lone_completions(high: float, low: float) -> None:
    first = row(1, reward_mean=high or low, advantage_max=high, advantage_min=low)
    run = Watched(RULE, num_generations=1).feed(first)
    assert run.changes == [("firing", 1, "critical")]
