"""Which kind of equal rewards it is, at the bounds."""

from __future__ import annotations

import pytest

from grpo_watch.detectors.reward.zero_std import ZeroStdKind, why
from tests.support.records import row


@pytest.mark.parametrize(
    ("reward", "kind"),
    [
        (0.96, ZeroStdKind.HIGHEST),
        (0.94, ZeroStdKind.UNKNOWN),
        (0.06, ZeroStdKind.UNKNOWN),
        (0.04, ZeroStdKind.LOWEST),
    ],
)
def test_a_twentieth_of_the_runs_range_is_its_top_or_bottom(reward: float, kind: ZeroStdKind) -> None:
    """Rewards from 0 to 1 so far: the top begins at 0.95, the bottom ends at 0.05."""
    assert why(row(1), [reward] * 5, 0.0, 1.0, dead=True).kind is kind


@pytest.mark.parametrize(
    ("spreads", "dead", "kind"),
    [
        ((0.0, 0.0), True, ZeroStdKind.CONSTANT),
        ((0.0, 0.0), False, ZeroStdKind.UNKNOWN),
        ((0.0, 0.2), True, ZeroStdKind.UNKNOWN),
        ((), True, ZeroStdKind.UNKNOWN),
    ],
)
def test_without_mean_rewards_only_functions_without_a_spread_tell(
    spreads: tuple[float, ...], *, dead: bool, kind: ZeroStdKind
) -> None:
    """A function that scores everything alike; one that differs somewhere, or none that is known, says nothing."""
    values = {f"reward_function_std[{number}]": spread for number, spread in enumerate(spreads)}
    assert why(row(1, **values), [], 0.0, 0.0, dead=dead).kind is kind


def test_parts_that_cancel_are_not_solved() -> None:
    """+1 and -0.5 leave 0.5, the highest total so far."""
    parts = {"reward_function_mean[format]": 1.0, "reward_function_mean[answer]": -0.5}
    assert why(row(1, **parts), [0.5] * 5, -1.0, 0.5, dead=True).kind is ZeroStdKind.UNKNOWN
    assert why(row(1), [0.5] * 5, -1.0, 0.5, dead=True).kind is ZeroStdKind.HIGHEST


@pytest.mark.parametrize(
    ("rewards", "lowest", "highest", "kind"),
    [
        ([0.0] * 5, -0.006, 0.0, ZeroStdKind.NEVER_SCORED),  # a penalty now and then, no reward ever
        ([-0.006] * 5, -0.006, 0.0, ZeroStdKind.LOWEST),
        ([0.2, 0.25, 0.3, 0.35, 0.4], 0.0, 0.4, ZeroStdKind.UNKNOWN),  # it still rises
        ([0.4] * 5, 0.0, 0.4, ZeroStdKind.HIGHEST),
        ([0.4] * 5, 0.0, 0.8, ZeroStdKind.UNKNOWN),  # a higher one refutes it
        ([1.0, 0.75, 1.0, 1.0, 1.0], 0.1, 1.0, ZeroStdKind.HIGHEST),  # of 0 to 1, one prompt was missed
    ],
)
def test_solved_is_a_known_or_lasting_maximum_above_zero(
    rewards: list[float], lowest: float, highest: float, kind: ZeroStdKind
) -> None:
    """Being the highest so far is not being solved."""
    assert why(row(1), rewards, lowest, highest, dead=True).kind is kind


def test_a_maximum_outweighs_the_length_limit() -> None:
    """Cut completions that all earn the maximum have nothing to learn; without it the limit is the reason."""
    cut = row(1, completion_truncated_ratio=1.0)
    assert why(cut, [1.0] * 5, 0.2, 1.0, dead=True).kind is ZeroStdKind.HIGHEST
    assert why(cut, [0.2] * 5, 0.2, 1.0, dead=True).kind is ZeroStdKind.CUT
