"""Components that take from each other."""

from __future__ import annotations

import random

from tests.support.detecting import Watched
from tests.support.records import row

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
