"""Advantages that contradict the sums of the scores."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.engine.records import GroupSummary
from grpo_watch.engine.reward_functions import contradicted
from tests.support.records import a_group


def scored(**rewards: tuple[float | None, ...]) -> GroupSummary:
    size = len(next(iter(rewards.values())))
    return a_group(tuple(range(size)), rewards=rewards)


def test_advantages_tell_that_the_total_is_no_plain_sum() -> None:
    """Sums 1.0 and 2.0; with weights 1 and -0.5 the first one's total is 1.0 and the second one's -1.0."""
    assert contradicted([scored(a=(1.0, 0.0), b=(0.0, 2.0), advantage=(0.7, -0.7))])
    assert not contradicted([scored(a=(1.0, 0.0), b=(0.0, 2.0), advantage=(-0.7, 0.7))])


def test_little_differences_one_function_and_missing_scores_contradict_nothing() -> None:
    assert not contradicted([scored(a=(1.0, 0.0), b=(0.0, 2.0), advantage=(0.004, -0.004))])
    assert not contradicted([scored(a=(0.0, 2.0), advantage=(0.7, -0.7))])
    assert not contradicted([scored(a=(1.0, None), b=(0.0, 2.0), advantage=(0.7, -0.7))])
    assert not contradicted([scored(a=(1.0, 0.0), b=(0.0, 2.0))])


@given(
    st.lists(
        st.tuples(st.floats(-5, 5).map(lambda x: round(x, 3)), st.floats(-5, 5).map(lambda x: round(x, 3))),
        min_size=2,
        max_size=8,
    )
)
def test_advantages_of_the_sums_never_contradict_them(scores: list[tuple[float, float]]) -> None:
    """As TRL makes them, with the standard deviation of the group."""
    totals = [a + b for a, b in scores]
    mean = sum(totals) / len(totals)
    spread = math.sqrt(sum((total - mean) ** 2 for total in totals) / (len(totals) - 1))
    advantage = tuple((total - mean) / (spread + 1e-4) for total in totals)
    group = scored(a=tuple(a for a, _ in scores), b=tuple(b for _, b in scores), advantage=advantage)
    assert not contradicted([group])
