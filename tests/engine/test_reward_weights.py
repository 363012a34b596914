"""Weights of reward functions: how they are written, what they do to scores, and when they can't be right."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.engine.records import GroupSummary
from grpo_watch.engine.reward_functions import RewardFunctions, spelled, weighed, weights_in
from tests.support.records import a_group, row

A, B = "reward_function_mean[a]", "reward_function_mean[b]"


def scored(**rewards: tuple[float | None, ...]) -> GroupSummary:
    size = len(next(iter(rewards.values())))
    return a_group(tuple(range(size)), rewards=rewards)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ([1.0, -0.5, 0], (1.0, -0.5, 0.0)),
        ("[1.0, -0.5, 0.0]", (1.0, -0.5, 0.0)),
        ("1 -0.5 0", (1.0, -0.5, 0.0)),
        ("1,-0.5", (1.0, -0.5)),
        (0.5, (0.5,)),
        ("2", (2.0,)),
    ],
)
def test_weights_are_read_as_they_are_written(written: object, read: tuple[float, ...]) -> None:
    assert weights_in(written) == read


@pytest.mark.parametrize(
    "written",
    [None, "None", "", [], True, [True, 1.0], [1.0, None], "a b", [[2.0]], {"a": 1}, [math.nan], "1 inf"],
)
def test_what_is_no_list_of_numbers_says_nothing(written: Any) -> None:
    assert weights_in(written) == ()
    assert spelled(written) is None


@given(st.lists(st.floats(-100, 100).map(lambda weight: round(weight, 6)), min_size=1, max_size=8))
def test_a_setting_holds_them_without_loss(weights: list[float]) -> None:
    assert weights_in(spelled(weights)) == tuple(weights)


def test_scores_as_they_count_in_the_total() -> None:
    """Twice the first, the second taken off, the third not at all; a missing score stays missing."""
    group = scored(a=(1.0, None), b=(3.0, 4.0), c=(5.0, 6.0), advantage=(-1.0, 1.0))
    (counted,) = weighed((group,), (2.0, -0.5, 0.0))
    assert counted.rewards == {"a": (2.0, None), "b": (-1.5, -2.0), "advantage": (-1.0, 1.0)}


@pytest.mark.parametrize("weights", [(), (1.0, 1.0), (1.0,), (1.0, 2.0, 3.0), (0.0, 0.0)])
def test_weights_that_are_all_one_or_another_number_change_nothing(weights: tuple[float, ...]) -> None:
    groups = (scored(a=(1.0, 0.0), b=(0.0, 2.0)),)
    assert weighed(groups, weights) is groups


def test_functions_have_weights_in_their_order() -> None:
    functions = RewardFunctions()
    scores = row(1, **{A: 0.1, B: 0.2})
    assert [key.weight for key in functions.of(scores)] == [1.0, 1.0]
    functions.weigh((1.0, -0.5))
    assert [key.weight for key in functions.of(scores)] == [1.0, -0.5]
    functions.weigh((1.0, -0.5, 0.0))
    assert [key.weight for key in functions.of(scores)] == [1.0, 1.0]
