"""Which kind of equal rewards it is, at the bounds."""

from __future__ import annotations

import pytest

from grpo_watch.detectors.reward.zero_std import (
    CONSTANT,
    CUT,
    HIGHEST,
    LOWEST,
    NEVER_SCORED,
    UNKNOWN,
    ZeroStdCause,
    why,
)
from tests.support.records import row


@pytest.mark.parametrize(
    ("reward", "cause"),
    [
        (0.96, HIGHEST),
        (0.94, UNKNOWN),
        (0.06, UNKNOWN),
        (0.04, LOWEST),
    ],
)
def test_a_twentieth_of_the_runs_range_is_its_top_or_bottom(reward: float, cause: ZeroStdCause) -> None:
    """Rewards from 0 to 1 so far: the top begins at 0.95, the bottom ends at 0.05."""
    assert why(row(1), [reward] * 5, 0.0, 1.0, dead=True) is cause


@pytest.mark.parametrize(
    ("spreads", "dead", "cause"),
    [
        ((0.0, 0.0), True, CONSTANT),
        ((0.0, 0.0), False, UNKNOWN),
        ((0.0, 0.2), True, UNKNOWN),
        ((), True, UNKNOWN),
    ],
)
def test_without_mean_rewards_only_functions_without_a_spread_tell(
    spreads: tuple[float, ...], *, dead: bool, cause: ZeroStdCause
) -> None:
    """A function that scores everything alike; one that differs somewhere, or none that is known, says nothing."""
    values = {f"reward_function_std[{number}]": spread for number, spread in enumerate(spreads)}
    assert why(row(1, **values), [], 0.0, 0.0, dead=dead) is cause


def test_parts_that_cancel_are_not_solved() -> None:
    """+1 and -0.5 leave 0.5, the highest total so far."""
    parts = {"reward_function_mean[format]": 1.0, "reward_function_mean[answer]": -0.5}
    assert why(row(1, **parts), [0.5] * 5, -1.0, 0.5, dead=True) is UNKNOWN
    assert why(row(1), [0.5] * 5, -1.0, 0.5, dead=True) is HIGHEST


@pytest.mark.parametrize(
    ("rewards", "lowest", "highest", "cause"),
    [
        ([0.0] * 5, -0.006, 0.0, NEVER_SCORED),  # a penalty now and then, no reward ever
        ([-0.006] * 5, -0.006, 0.0, LOWEST),
        ([0.2, 0.25, 0.3, 0.35, 0.4], 0.0, 0.4, UNKNOWN),  # it still rises
        ([0.4] * 5, 0.0, 0.4, HIGHEST),
        ([0.4] * 5, 0.0, 0.8, UNKNOWN),  # a higher one refutes it
        ([1.0, 0.75, 1.0, 1.0, 1.0], 0.1, 1.0, HIGHEST),  # of 0 to 1, one prompt was missed
    ],
)
def test_solved_is_a_known_or_lasting_maximum_above_zero(
    rewards: list[float], lowest: float, highest: float, cause: ZeroStdCause
) -> None:
    """Being the highest so far is not being solved."""
    assert why(row(1), rewards, lowest, highest, dead=True) is cause


def test_a_maximum_outweighs_the_length_limit() -> None:
    """Cut completions that all earn the maximum have nothing to learn; without it the limit is the reason."""
    cut = row(1, completion_truncated_ratio=1.0)
    assert why(cut, [1.0] * 5, 0.2, 1.0, dead=True) is HIGHEST
    assert why(cut, [0.2] * 5, 0.2, 1.0, dead=True) is CUT
