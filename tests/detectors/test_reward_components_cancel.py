"""Components that take from each other."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.support.detecting import Watched
from tests.support.records import a_batch, a_group, row

RULE = "reward-components-cancel"
ONE, TWO = "reward_function_mean[one]", "reward_function_mean[two]"


def fed(opposed: float, rows: int = 60, spread: float = 0.2) -> Watched:
    """``two`` is so much of the opposite of ``one``, plus a hundredth of noise."""
    chance = random.Random(1)
    run = Watched(RULE)
    for step in range(1, rows + 1):
        one = chance.gauss(0.5, spread)
        two = -opposed * one + chance.gauss(0.0, 0.01)
        run.feed(row(step, reward_mean=one + two, **{ONE: one, TWO: two}))
    return run


def test_two_that_cancel() -> None:
    """Judged at rows 30 and 45; the second fires."""
    run = fed(1.0)
    assert run.changes == [("firing", 45, "warning")]
    assert "one and two" in run.said[-1].reading.message


def test_what_remains_of_the_total_counts() -> None:
    """Half of it is left."""
    assert fed(0.5).changes == []


def test_the_same_direction_and_tiny_spreads_are_quiet() -> None:
    assert fed(-1.0).changes == []
    assert fed(1.0, spread=0.001).changes == []


def test_it_needs_thirty_rows_and_two_functions() -> None:
    assert not fed(1.0, rows=29).monitor.evaluated
    run = Watched(RULE).feed(row(1, reward_mean=0.0, **{ONE: 0.0}))
    assert run.blind_reason == "there is only one reward function"


def test_what_cancels_inside_groups_does_not_show_in_the_means() -> None:
    """Three dumped batches in whose groups one gives what the other takes; two are not enough."""
    scores = {"bonus": (0.0, 1.0, 2.0), "penalty": (0.0, -1.0, -2.0)}
    batches = [replace(a_batch(step), groups=(a_group((0, 1, 2), f"{step}", rewards=scores),)) for step in range(1, 6)]
    run = Watched(RULE).feed_all(batches[:2])
    assert run.said == []
    run.feed_all(batches[2:])
    assert [state for state, _, _ in run.changes] == ["firing"]
    assert run.said[-1].reading.key == "completions"
    assert "bonus and penalty cancel inside groups" in run.said[-1].reading.message
    learnt = {"bonus": (0.0, 1.0, 2.0), "penalty": (0.0, -0.5, -1.0)}
    half = [replace(one, groups=(replace(one.groups[0], rewards=learnt),)) for one in batches]
    assert Watched(RULE).feed_all(half).said == []
