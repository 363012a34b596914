"""Spikes of the gradient norm: one, several, and before a fall."""

from __future__ import annotations

import pytest

from tests.support.detecting import Watched
from tests.support.records import row

RULE = "grad-norm-spike"
USUAL = [0.2, 0.25] * 15


def fed(norms: list[float], reward: list[float] | None = None) -> Watched:
    more = [{} if reward is None else {"reward_mean": value} for value in reward or norms]
    return Watched(RULE).feed_all(row(n, grad_norm=v, **m) for n, (v, m) in enumerate(zip(norms, more, strict=True), 1))


def test_a_lone_spike_is_an_info_that_ends() -> None:
    assert fed([*USUAL, 9.0, *USUAL]).changes == [("firing", 31, "info"), ("resolved", 51, "info")]


def test_the_third_within_twenty_rows_is_a_warning() -> None:
    run = fed([*USUAL, 9.0, *[0.2] * 8, 9.0, *[0.2] * 8, 9.0])
    assert run.changes == [("firing", 31, "info"), ("firing", 49, "warning")]


def test_three_in_more_than_twenty_rows_stay_infos() -> None:
    changes = fed([*USUAL, 9.0, *[0.2] * 10, 9.0, *[0.2] * 10, 9.0]).changes
    assert {severity for _, _, severity in changes} == {"info"}


def test_a_fallen_reward_right_after_makes_it_a_warning() -> None:
    """The reward goes at row 34; the fall shows at row 37 (two thirds of mean and median)."""
    norms = [*USUAL, 9.0, *[0.2] * 20]
    assert fed(norms, [0.9] * 33 + [0.0] * 18).changes[:2] == [("firing", 31, "info"), ("firing", 37, "warning")]
    assert "info" in {severity for _, _, severity in fed(norms, [0.9] * 45 + [0.0] * 6).changes}


def test_a_reward_that_had_fallen_before_is_not_the_spikes_doing() -> None:
    changes = fed([*USUAL, 9.0, *[0.2] * 20], [0.9] * 20 + [0.0] * 31).changes
    assert {severity for _, _, severity in changes} == {"info"}


@pytest.mark.parametrize("factor", [4.9, 1.0])
def test_five_times_the_median_is_needed(factor: float) -> None:
    """The median of the calm rows is 0.225."""
    assert fed([*USUAL, 0.225 * factor, *USUAL]).changes == []


def test_a_wide_range_has_no_spikes() -> None:
    """Factors of 100 are usual here: 30 times the median lies within them."""
    assert fed([0.1, 1.0, 10.0] * 12 + [30.0] + [0.1, 1.0, 10.0]).changes == []


def test_rows_without_a_gradient_do_not_narrow_the_range() -> None:
    """Zeros and what a masked loss leaves (1e-8) are left out: 0.8 is no spike over 0.3."""
    norms = [value for usual in (0.3, 0.5, 0.2, 0.6) * 10 for value in (usual, 0.0, 1e-8)]
    assert fed([*norms, 0.8]).changes == []


def test_nothing_is_judged_before_twenty_rows() -> None:
    assert fed([0.2] * 19 + [50.0]).changes == []
    assert fed([0.2] * 20 + [50.0]).changes == [("firing", 21, "info")]


def test_a_lasting_level_goes_on_firing() -> None:
    run = fed(USUAL + [9.0] * 500)
    assert run.changes == [("firing", 31, "info"), ("firing", 33, "warning")]


def test_rows_whose_groups_all_lack_spread_do_not_narrow_the_range() -> None:
    """Four of five steps show the KL's gradient only (sparse rewards, beta > 0): the fifth is no spike over them."""
    cycle = [(0.001, 1.0)] * 4 + [(0.5, 0.25)]
    run = Watched(RULE).feed_all(
        row(n, grad_norm=norm, reward_zero_std_ratio=silent) for n, (norm, silent) in enumerate(cycle * 40, 1)
    )
    assert run.changes == []


@pytest.mark.parametrize(("norm", "changes"), [(0.9, []), (1.1, [("firing", 141, "info")])])
def test_a_norm_that_was_usual_before_most_groups_were_solved_is_no_spike(
    norm: float, changes: list[tuple[str, int, str]]
) -> None:
    """The first rows have a median of 0.5, the later ones 0.001 with one group in ten that differs: 2 x 0.5 is new."""
    norms = [0.4, 0.6] * 20 + [0.001, 0.0012] * 50
    run = Watched(RULE).feed_all(
        row(n, grad_norm=value, reward_zero_std_ratio=0.9) for n, value in enumerate([*norms, norm], 1)
    )
    assert run.changes == changes


def grown(times: float, rewards: tuple[float, float]) -> Watched:
    """Norms that grow evenly to so many times the first one over 400 rows, beside a reward from one to another."""
    share = [n / 400 for n in range(401)]
    return fed(
        [0.2 * times**part * (1.0 + 0.1 * (n % 2)) for n, part in enumerate(share)],
        [rewards[0] + part * (rewards[1] - rewards[0]) for part in share],
    )


@pytest.mark.parametrize(
    ("times", "rewards", "severities"),
    [(5.0, (0.3, 0.3), set()), (40.0, (0.3, 0.3), {"warning"}), (40.0, (0.3, 0.9), {"info"})],
    ids=["less than ten times", "without a gain", "while the reward rises"],
)
def test_a_norm_that_grows_slowly(times: float, rewards: tuple[float, float], severities: set[str]) -> None:
    """Each row lies within a percent of the one before: no spike shows it."""
    assert {severity for _, _, severity in grown(times, rewards).changes} == severities


def test_a_norm_that_shrank_again_ends_the_alert() -> None:
    """26 of the fifty rows before row 177 are 2.4, and 25 of those before row 226 are 0.2.

    Three breaches fire, and an alert ends 20 steps behind its last one.
    """
    run = fed([0.2] * 50 + [0.5] * 50 + [1.2] * 50 + [2.4] * 50 + [0.2] * 200)
    changes = [(state, step) for state, step, severity in run.changes if severity == "warning"]
    assert changes == [("firing", 179), ("resolved", 245)]


def test_a_resume_with_small_norms_ends_the_alert() -> None:
    run = fed([0.2] * 50 + [0.5] * 50 + [1.2] * 50 + [2.4] * 50)
    run.state.begin_attempt(2, 200)
    run.feed_all(row(n, grad_norm=0.2) for n in range(200, 260))
    assert [state for state, _, severity in run.changes if severity == "warning"] == ["firing", "resolved"]


@pytest.mark.parametrize("solved", [False, True])
def test_norms_of_the_first_rows_are_spikes_unless_the_prompts_are_solved(solved: bool) -> None:  # noqa: FBT001
    """Norms of 8, then of 0.3, and three of 10 within twenty rows."""
    norms = [8.0] * 60 + [0.3] * 60 + [10.0, *[0.3] * 6] * 3
    share = 0.9 if solved else 0.1
    run = Watched(RULE).feed_all(row(n, grad_norm=norm, reward_zero_std_ratio=share) for n, norm in enumerate(norms, 1))
    assert ("warning" in {severity for _, _, severity in run.changes}) is not solved
