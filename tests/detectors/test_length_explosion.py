"""Growing completions, with a lost reward or cut off."""

from __future__ import annotations

import pytest

from tests.support.detecting import Watched
from tests.support.records import row

RULE = "length-explosion"


def fed(length: float, reward: float = 0.9, truncated: float = 0.0, *, before: float = 200.0) -> Watched:
    """Twenty usual rows (length 200, reward 0.9, nothing cut off), then twenty with these values."""
    early = {"completion_length_mean": before, "reward_mean": 0.9, "completion_truncated_ratio": 0.0}
    late = {"completion_length_mean": length, "reward_mean": reward, "completion_truncated_ratio": truncated}
    return Watched(RULE).feed_all(row(n, **(early if n <= 20 else late)) for n in range(1, 41))


def test_growth_alone_is_reasoning() -> None:
    assert fed(900.0).changes == []


def test_with_a_lost_reward() -> None:
    """Length 300 is reached as a mean at row 25; three breaches."""
    assert fed(300.0, reward=0.0).changes == [("firing", 27, "warning")]
    assert fed(299.0, reward=0.0).changes == []


def test_cut_off_without_a_gain() -> None:
    """The share's mean is 0.8 at row 24."""
    assert fed(500.0, truncated=1.0).changes == [("firing", 26, "warning")]
    assert fed(500.0, truncated=0.7).changes == []


def test_cut_off_with_a_gain_is_the_limits_fault() -> None:
    assert fed(500.0, reward=1.5, truncated=1.0).changes == []


def test_always_cut_off_is_not_judged_here() -> None:
    rows = (row(n, completion_length_mean=100.0 + 10 * n, completion_truncated_ratio=1.0) for n in range(1, 50))
    assert Watched(RULE).feed_all(rows).changes == []


@pytest.mark.parametrize("back_to", [150.0, 199.0])
def test_growing_back_is_no_explosion(back_to: float) -> None:
    run = Watched(RULE)
    run.feed_all(row(n, completion_length_mean=200.0, reward_mean=0.9) for n in range(1, 21))
    run.feed_all(row(n, completion_length_mean=5.0, reward_mean=0.0) for n in range(21, 41))
    run.feed_all(row(n, completion_length_mean=back_to, reward_mean=0.0) for n in range(41, 61))
    assert run.changes == []


def test_reuse_rows_without_a_length_say_nothing() -> None:
    """Odd steps generate; at step 47 four of five lengths and rewards are new (360 tokens, reward 0.18)."""
    run = Watched(RULE)
    for n in range(1, 61):
        generated = {"completion_length_mean": 200.0 if n <= 40 else 400.0, "reward_mean": 0.9 if n <= 40 else 0.0}
        run.feed(row(n, **generated) if n % 2 else row(n, kl_reference=0.1))
    assert run.changes == [("firing", 51, "warning")]


def test_an_extreme_growth_asks_for_less_certainty_of_the_reward() -> None:
    """Rewards of 0.3 and 0.7 by turns, then 0 from row 41 on: 0.54 is lost at most (the best of five is 0.54).

    The squared steps add up to 39 x 0.16 + 0.49 = 6.73. At row 75 (74 steps) a row's noise is 0.2133: four standard
    errors of two means of five are 0.5395, six would be 0.81. Rows 75, 76 and 77. Twice the length is not extreme.
    """

    def fed_with(length: float) -> Watched:
        rewards = [0.3, 0.7] * 20 + [0.0] * 40
        lengths = [200.0] * 40 + [length] * 40
        pairs = enumerate(zip(lengths, rewards, strict=True), 1)
        return Watched(RULE).feed_all(row(n, completion_length_mean=long, reward_mean=r) for n, (long, r) in pairs)

    assert fed_with(700.0).changes == [("firing", 77, "warning")]
    assert fed_with(400.0).changes == []


def test_far_growth_asks_for_fewer_cut_off() -> None:
    """Length 60, then 400; a third cut off from row 21 on, which is 0.2 as a mean of five at row 23. Three breaches."""

    def fed_with(length: float, cut: float, reward: float = 0.5) -> Watched:
        lengths, cuts, rewards = [60.0] * 20 + [length] * 20, [0.0] * 20 + [cut] * 20, [0.5] * 20 + [reward] * 20
        rows = enumerate(zip(lengths, cuts, rewards, strict=True), 1)
        return Watched(RULE).feed_all(
            row(n, completion_length_mean=long, completion_truncated_ratio=c, reward_mean=r) for n, (long, c, r) in rows
        )

    assert fed_with(400.0, 0.34).changes == [("firing", 25, "warning")]
    assert fed_with(170.0, 0.34).changes == []
    assert fed_with(400.0, 0.15).changes == []
    assert fed_with(400.0, 0.34, reward=0.9).changes == []


RIGHT = [1, 3, 1, 6, 6, 7, 3, 8, 2, 12, 5, 12, 10, 7, 8, 13, 16, 12, 14, 11, 14, 13, 13, 13, 14, 15, 8, 14]
LENGTHS = [10, 9, 9, 7, 9, 10, 14, 17, 17, 18, 18, 20, 20, 20, 19, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24]
CUT = [0, 0, 0, 0, 0, 0, 0, 4, 4, 6, 7, 6, 5, 9, 7, 15, 15, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16]
"""Right and cut completions of 16, and the mean length: a real run that learns to list numbers up to the limit."""


@pytest.mark.parametrize("rule", ["length-explosion", "slow-degradation"])
def test_a_noisy_reward_that_rises_is_a_gain_early(rule: str) -> None:
    """From 21 % to 80 % right with a noise of 0.2: no growth without a gain, and nothing degrades."""
    rows = (
        row(n, reward_mean=right / 16, completion_length_mean=float(length), completion_truncated_ratio=cut / 16)
        for n, (right, length, cut) in enumerate(zip(RIGHT, LENGTHS, CUT, strict=True), start=1)
    )
    assert Watched(rule).feed_all(rows).changes == []
