"""Dead groups over time, and what kind of dead they are."""

from __future__ import annotations

import pytest

from tests.support.detecting import Watched
from tests.support.records import row

RULE = "reward-variance-collapse"


def fed(*ratios: float, **more: float) -> Watched:
    return Watched(RULE).feed_all(row(s, reward_zero_std_ratio=r, **more) for s, r in enumerate(ratios, 1))


def test_five_dead_rows_or_ten_nearly_dead_ones() -> None:
    """0.9 on average is a breach, 0.89 is not."""
    assert fed(*[1.0] * 8).changes == [("firing", 5, "warning")]
    assert fed(*[0.9] * 12).changes == [("firing", 10, "warning")]
    assert fed(*[0.89] * 50).changes == []
    assert fed(*[1.0] * 4, 0.0, *[1.0] * 4).changes == []


def test_rows_without_a_generation_neither_count_nor_clear() -> None:
    """Generation rows are 1, 3, 5, 7, 9."""
    run = Watched(RULE)
    for step in range(1, 11):
        run.feed(row(step, reward_zero_std_ratio=1.0) if step % 2 else row(step, kl_reference=0.1))
    assert run.changes == [("firing", 9, "warning")]


def test_a_short_recovery_does_not_end_it() -> None:
    """Rows 6 to 9 have a spread, 10 to 14 have none: one episode, which ends ten steps after row 14 at the earliest."""
    run = fed(*[1.0] * 5, *[0.5] * 4, *[1.0] * 5, *[0.5] * 20)
    assert run.changes == [("firing", 5, "warning"), ("resolved", 24, "warning")]


def test_rows_of_a_single_group_are_judged_by_their_mean_once_one_was_alive() -> None:
    """Shares of 0 and 1 only: five dead rows in a row are luck at 60 %, so the episode ends ten steps after row 5."""
    run = fed(*[1.0] * 5, *[0.0] * 4, *[1.0] * 5, *[0.0] * 20)
    assert run.changes == [("firing", 5, "warning"), ("resolved", 15, "warning")]


def test_it_begins_with_the_first_dead_row() -> None:
    """Row 2 is the first without any spread; the fifth of them, row 6, fires."""
    assert [(t.first_step, t.step) for t in fed(0.5, *[1.0] * 8).said] == [(2, 6)]


@pytest.mark.parametrize(
    "values",
    [{"reward_group_std": 0.0}, {"advantage_max": 0.0, "advantage_min": 0.0}, {"reward_batch_std": 0.0}],
    ids=" and ".join,
)
def test_other_signs_of_dead_groups(values: dict[str, float]) -> None:
    """The mean spread inside groups, all advantages, or the batch's spread: zero implies every group's."""
    assert Watched(RULE).feed_all(row(s, **values) for s in range(1, 9)).changes == [("firing", 5, "warning")]


def test_the_batchs_spread_above_zero_is_no_data() -> None:
    """TRL >= 0.27 without a share: never evaluated, never healthy."""
    run = Watched(RULE).feed_all(row(s, reward_batch_std=0.4) for s in range(1, 50))
    assert run.changes == []
    assert not run.monitor.evaluated


def said(mean: list[float], **more: float) -> str:
    rows = (row(s, reward_zero_std_ratio=1.0, reward_mean=m, **more) for s, m in enumerate(mean, 1))
    return Watched(RULE).feed_all(rows).said[-1].reading.message


def test_says_which_kind() -> None:
    """Ceiling, floor, cut off, constant, or equal inside groups only."""
    assert "highest" in said([0.0, 0.5, 1.0, 1.0, 1.0])
    assert "lowest" in said([1.0, 0.5, 0.0, 0.0, 0.0])
    assert "length limit" in said([0.0] * 5, completion_truncated_ratio=1.0)
    constant = {"reward_function_mean[f]": 0.5, "reward_function_std[f]": 0.0}
    assert "same reward" in said([0.5] * 5, **constant)
    assert "same reward" in said([0.5] * 5)
    assert "never scores" in said([0.0] * 5)
    assert "members of a group" in said([0.5] * 5, **{**constant, "reward_function_std[f]": 0.4})


def test_only_a_window_without_any_spread_is_a_constant_function() -> None:
    """Groups of the last five rows are dead, those of the rows before lived: 5.5 of 10 at the row that fires."""
    ratios = [0.1] * 5 + [1.0] * 5
    rows = (row(s, reward_zero_std_ratio=r, reward_mean=0.5) for s, r in enumerate(ratios, 1))
    reading = Watched(RULE).feed_all(rows).said[-1].reading
    assert reading.message == "55% of the groups have no reward spread: members of a group get equal rewards"
    assert reading.evidence["kind"] == "unknown"


def test_a_row_at_the_edge_says_nothing_of_the_others() -> None:
    """The newest reward is the run's highest, the median (0.2) is not."""
    assert "members of a group" in said([0.1, 0.1, 0.2, 0.3, 0.9])


def test_single_groups_die_by_luck() -> None:
    """All-or-nothing rows: eight after a live one are luck, nine of ten are not; with fractions five suffice."""
    assert fed(0.0, *[1.0] * 8, 0.0, 0.0, *[1.0] * 8).changes == []
    assert fed(0.0, *[1.0] * 9).changes == [("firing", 10, "warning")]
    assert fed(0.5, *[1.0] * 8).changes == [("firing", 6, "warning")]


def test_a_second_signal_makes_it_critical() -> None:
    """Entropy fell to a tenth; the same with a reward that rose is a solved task."""

    def run(reward: float) -> Watched:
        watched = Watched(RULE)
        for step in range(1, 41):
            late = step > 20
            watched.feed(
                row(
                    step,
                    reward_zero_std_ratio=1.0 if late else 0.1,
                    entropy=0.05 if late else 0.5,
                    reward_mean=reward if late else 0.3 + step % 2 / 100,
                )
            )
        return watched

    assert run(0.3).changes[-1][2] == "critical"
    assert run(1.0).changes[-1][2] == "warning"
