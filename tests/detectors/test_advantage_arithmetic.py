"""Recomputed advantages: estimators that are right, masked samples that vote, groups that are mixed up."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean, pstdev, stdev

import pytest

from grpo_watch.detectors.reward.advantages import Arithmetic, arithmetic
from grpo_watch.engine.records import CompletionSummary
from tests.support.detecting import Watched
from tests.support.records import a_batch, a_group

RULE = "advantage-arithmetic"
REWARDS = (1.0, 0.35, 0.0, 0.8)
MEAN = fmean(REWARDS)


def of(rewards: tuple[float, ...], advantage: tuple[float | None, ...]) -> Arithmetic:
    pattern = tuple(range(len(rewards)))
    return arithmetic(a_group(pattern, "a", rewards={"r": rewards, "advantage": advantage}))


def batch(step: int, advantage: tuple[float | None, ...], groups: int = 2, **changes: object) -> CompletionSummary:
    scores = {"r": REWARDS, "advantage": advantage}
    made = tuple(a_group((0, 1, 2, 3), f"{step}-{at}", rewards=scores) for at in range(groups))
    return replace(a_batch(step), groups=made, **changes)


@pytest.mark.parametrize(
    "advantage",
    [
        tuple(reward - MEAN for reward in REWARDS),  # Dr. GRPO
        tuple((reward - MEAN) / (pstdev(REWARDS) + 1e-6) for reward in REWARDS),
        tuple((reward - MEAN) / (stdev(REWARDS) + 1e-4) for reward in REWARDS),
        tuple((reward - MEAN) / 3.7 for reward in REWARDS),  # the batch's deviation
        tuple(reward - (4 * MEAN - reward) / 3 for reward in REWARDS),  # leave-one-out
        (1.101, -0.442, -1.263, 0.617),  # of a printed table: three decimals
    ],
)
def test_every_estimator_that_centres_the_group_is_right(advantage: tuple[float, ...]) -> None:
    assert of(REWARDS, advantage) is Arithmetic.RIGHT


@pytest.mark.parametrize(
    ("rewards", "advantage"),
    [
        ((1.0, 1.0, 0.0, 0.0), (0.5, None, -0.5, -0.5)),  # NeMo-RL #4061, by PR 3467
        ((1.0, 1.0, 0.0, 0.0), (0.866, None, -0.866, -0.866)),
        ((100.0, 1.0), (None, -49.5)),  # OpenRLHF PR 1239, verl PR 6375
    ],
)
def test_masked_samples_that_vote(rewards: tuple[float, ...], advantage: tuple[float | None, ...]) -> None:
    assert of(rewards, advantage) is Arithmetic.MASKED_VOTE


@pytest.mark.parametrize(
    ("rewards", "advantage"),
    [
        ((1.0, 1.0, 0.0, 0.0), (0.667, None, -0.333, -0.333)),
        ((1.0, 1.0, 0.0, 0.0), (1.155, None, -0.577, -0.577)),
    ],
)
def test_masked_samples_that_do_not(rewards: tuple[float, ...], advantage: tuple[float | None, ...]) -> None:
    assert of(rewards, advantage) is Arithmetic.RIGHT


@pytest.mark.parametrize(
    ("rewards", "advantage"),
    [
        ((100.0, 1.0), (None, 0.0)),  # alone, and without a signal
        ((1.0, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 0.0)),
        ((1.0, 0.0, 0.5, 0.2), (0.7, -0.9, 0.4, -0.2)),  # more than rewards, and yet centred
        ((0.8, 0.1, 0.1, 0.2), (1.2, -0.7, -0.7, -0.35)),  # clipped at 1.2
        ((0.8, 0.1, 0.1, 0.2), (1.7, 0.0, 0.0, 0.0)),  # positive ones only
        ((1.0, 1.0, 0.0, 0.0), (0.5, 1.5, -2.0, -1.0)),  # weighted by length
        ((1.0, 0.0, 0.5, 0.2), (float("nan"), 0.0, 0.0, 0.0)),
        ((float("inf"), 0.0, 0.5, 0.2), (1.0, -0.3, -0.3, -0.4)),
    ],
)
def test_what_can_not_tell(rewards: tuple[float, ...], advantage: tuple[float | None, ...]) -> None:
    assert of(rewards, advantage) is Arithmetic.UNCLEAR


def test_mixed_groups_only_where_the_settings_say_that_groups_are_centred() -> None:
    """REINFORCE++ is right not to sum to 0 inside a group."""
    shuffled = (1.2, 0.9, 0.1, 0.4)
    assert Watched(RULE).feed_all(batch(step, shuffled) for step in range(1, 9)).changes == []
    run = Watched(RULE, scale_rewards="batch").feed_all(batch(step, shuffled) for step in range(1, 9))
    assert run.changes == []
    run = Watched(RULE, scale_rewards="group").feed_all(batch(step, shuffled) for step in range(1, 9))
    assert run.changes == [("firing", 3, "warning")]


def test_groups_by_prompt_count_at_their_full_size_only() -> None:
    """A prompt that is drawn twice makes one group of two."""
    votes = (0.4625, -0.1875, -0.5375, None)
    batches = [batch(step, votes, by_prompt=True) for step in range(1, 9)]
    assert Watched(RULE, num_generations=2).feed_all(batches).changes == []
    assert Watched(RULE, num_generations=4).feed_all(batches).changes == [("firing", 3, "warning")]


def test_random_groups_of_any_size_are_right() -> None:
    rng = random.Random(7)
    for _ in range(500):
        size = rng.choice([2, 4, 8, 16, 64])
        rewards = tuple(rng.choice([0.0, 1.0, rng.random()]) for _ in range(size))
        spread = pstdev(rewards) + 1e-4
        assert of(rewards, tuple((reward - fmean(rewards)) / spread for reward in rewards)) in {
            Arithmetic.RIGHT,
            Arithmetic.UNCLEAR,
        }


def test_gdpo_is_centred() -> None:
    """Each function's scores are standardised before they are added: another order than that of totals, but sum 0."""
    parts = [
        [(score - fmean(scores)) / (stdev(scores) + 1e-4) for score in scores]
        for scores in ((1.0, 0.0, 0.0, 0.0), (3.0, 9.0, 1.0, 4.0))
    ]
    advantage = tuple(sum(pair) / 1.3 for pair in zip(*parts, strict=True))
    scores = {"right": (1.0, 0.0, 0.0, 0.0), "style": (3.0, 9.0, 1.0, 4.0), "advantage": advantage}
    batches = [replace(a_batch(step), groups=(a_group((0, 1, 2, 3), rewards=scores),)) for step in range(1, 9)]
    assert Watched(RULE, scale_rewards="group").feed_all(batches).changes == []
