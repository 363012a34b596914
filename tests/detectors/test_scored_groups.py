"""Scores inside groups: their order, their sums, and what cancels what."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.detectors.reward.components import (
    AdvantageOrder,
    CancellingFunctions,
    cancelling,
    explained_by_signs,
    order_of,
)
from grpo_watch.engine.records import GroupSummary
from tests.support.records import a_group


def scored(**rewards: tuple[float | None, ...]) -> GroupSummary:
    size = len(next(iter(rewards.values())))
    return a_group(tuple(range(size)), rewards=rewards)


def test_advantages_that_follow_the_rewards() -> None:
    """Of six pairs five have a higher one; the equal ones say nothing."""
    group = scored(f=(0.0, 1.0, 1.0, 3.0), advantage=(-1.25, -0.25, -0.25, 1.75))
    assert order_of([group]) == AdvantageOrder(pairs=5, against=0, groups=1, off_centre=0)


def test_advantages_of_other_completions() -> None:
    """The same advantages, one place on: 1 follows 0 and 3 lies below all."""
    group = scored(f=(0.0, 1.0, 1.0, 3.0), advantage=(1.75, -1.25, -0.25, -0.25))
    # 0-1, 0-2, 0-3: the first has the highest advantage and the lowest reward; 1-3 rises, 2-3 is equal
    assert order_of([group]) == AdvantageOrder(pairs=5, against=3, groups=1, off_centre=0)


def test_several_functions_are_compared_where_they_agree() -> None:
    """Nobody knows the weights: only a pair in which no function disagrees is clear."""
    group = scored(f=(0.0, 1.0, 2.0), g=(1.0, 0.0, 1.0), advantage=(0.0, -1.0, 1.0))
    assert order_of([group]).pairs == 2  # 0-2 and 1-2; 0-1 disagree


def test_sums_that_are_no_zero() -> None:
    centred, off = scored(f=(0.0, 1.0), advantage=(-0.5, 0.5)), scored(f=(0.0, 1.0), advantage=(0.2, 1.2))
    noise = scored(f=(1.0, 1.0), advantage=(6e-4, 6e-4))  # 6e-8 over 1e-4
    assert order_of([centred, off, noise]) == AdvantageOrder(pairs=2, against=0, groups=3, off_centre=1)


@pytest.mark.parametrize("divisor", [1.0, 0.5])
def test_float32_leaves_more_of_large_rewards(divisor: float) -> None:
    """At 1e5 floats are 0.008 apart; a sum of 0.03 is theirs, whatever divides, and one of 1 is not."""
    rewards = tuple(1e5 + at for at in range(8))
    for shift, off in ((0.004, 0), (0.125, 1)):
        advantages = tuple((at - 3.5 + shift) / divisor for at in range(8))
        assert order_of([scored(f=rewards, advantage=advantages)]).off_centre == off


def test_of_a_group_of_thousands_256_are_compared() -> None:
    rewards = tuple(map(float, range(3000)))
    assert order_of([scored(f=rewards, advantage=rewards)]).pairs == 256 * 255 / 2


@pytest.mark.parametrize(
    "group",
    [
        scored(f=(0.0, 1.0)),
        scored(advantage=(-1.0, 1.0)),
        scored(f=(0.0, None), advantage=(-1.0, 1.0)),
        scored(f=(0.0, math.inf), advantage=(-1.0, 1.0)),
        a_group((0, 1), prompts=2, rewards={"f": (0.0, 1.0), "advantage": (-1.0, 1.0)}),
    ],
)
def test_groups_that_can_not_tell(group: GroupSummary) -> None:
    assert order_of([group]) == AdvantageOrder(0, 0, 0, 0)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.tuples(*[st.floats(-5, 5)] * 2), min_size=2, max_size=8), st.floats(0, 3), st.floats(0, 3))
def test_any_weighted_sum_less_its_mean_is_in_order(scores: list[tuple[float, float]], one: float, two: float) -> None:
    """Whatever the weights, as long as none is negative; sums that rounding made equal are not the other way round."""
    total = [one * f + two * g for f, g in scores]
    mean = math.fsum(total) / len(total)
    columns = {name: tuple(pair[at] for pair in scores) for at, name in enumerate("fg")}
    order = order_of([scored(**columns, advantage=tuple(value - mean for value in total))])
    assert order.against == 0


def test_functions_that_cancel_inside_groups() -> None:
    """Means differ from group to group by far more; inside, one gives what the other takes."""
    groups = [
        scored(bonus=(0.0, 1.0, 2.0), penalty=(0.0, -1.0, -2.0)),
        scored(bonus=(9.0, 7.0, 8.0), penalty=(1.0, 3.0, 2.0)),
    ]
    assert cancelling(groups, -0.9, 0.25, 0.02) == CancellingFunctions("bonus", "penalty", pytest.approx(-1.0), 0.0)
    reported = CancellingFunctions("a", "b", -0.98765, 0.12345).evidence()
    assert reported == {"components": "a, b", "correlation": -0.988, "total_spread_share": 0.123}


def test_half_a_penalty_leaves_half_a_signal() -> None:
    """Sum (0, 0.5, 1) against the smaller (0, -0.5, -1): 1 of 1."""
    assert cancelling([scored(bonus=(0.0, 1.0, 2.0), penalty=(0.0, -0.5, -1.0))], -0.9, 0.25, 0.02) is None


def test_still_functions_cancel_nothing() -> None:
    assert cancelling([scored(f=(1.0, 1.0), g=(-1.0, -1.0))], -0.9, 0.25, 0.02) is None
    assert cancelling([scored(f=(0.0, 0.01), g=(0.0, -0.01))], -0.9, 0.25, 0.02) is None  # below the floor
    assert cancelling([scored(f=(0.0, 1.0))], -0.9, 0.25, 0.02) is None
    assert cancelling([], -0.9, 0.25, 0.02) is None


@pytest.mark.parametrize("still", [(1.0,) * 4, (1.0, 1.0, 0.0, 1.0)])
def test_a_wrong_sign_is_not_explained_by_the_only_function_that_moves(still: tuple[float, ...]) -> None:
    """A second one that is constant, or differs in one group of a hundred, says nothing of its own sign."""
    right, other = (0.0, 1.0, 2.0, 3.0), (1.5, 0.5, -0.5, -1.5)
    groups = [scored(accuracy=right, form=(1.0,) * 4, advantage=other) for _ in range(99)]
    assert not explained_by_signs([*groups, scored(accuracy=right, form=still, advantage=other)], 20)


def test_a_negative_weight_is_explained_by_its_sign() -> None:
    """1 and -0.5: the pairs in which both move tell them apart."""
    group = scored(f=(0.0, 1.0, 1.0, 0.0), length=(0.0, 1.0, 0.0, 1.0), advantage=(0.0, 0.5, 1.0, -0.5))
    assert explained_by_signs([group] * 5, 20)
