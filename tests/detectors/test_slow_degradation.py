"""Several metrics that drift together, none of them far enough for a rule of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import pytest

from grpo_watch.engine.records import Activity, EndState, Record, Tick
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "slow-degradation"
Course = Callable[[int], Mapping[str, float]]


def watched(rows: int, course: Course) -> Watched:
    """So many rows, each with what ``course`` gives for its number."""
    return Watched(RULE).feed_all(row(n, **course(n)) for n in range(1, rows + 1))


def falling(n: int, first: float, last: float, *, begin: int = 20, over: int = 25) -> float:
    """``first`` up to row ``begin``, then a straight line to ``last``."""
    return first + (last - first) * min(1.0, max(0.0, (n - begin) / over))


def test_fewer_right_answers_and_more_cut_off() -> None:
    """It falls by 0.01 a row from 21 on: 0.204 (30 %) in a mean of five at row 43; the fourth such row is 46."""
    run = watched(
        70, lambda n: {"reward_mean": falling(n, 0.68, 0.43), "completion_truncated_ratio": falling(n, 0.09, 0.53)}
    )

    assert run.changes == [("firing", 46, "warning")]
    assert run.monitor.episodes[0].first_step == 43
    assert run.monitor.episodes[0].reading.message.endswith("reward fell, more completions are cut off")


def test_longer_and_cut_off_at_a_flat_reward() -> None:
    """Cut off 0.0203 more a row from 21 on: 0.2 (0.0203 x 10) as a mean of five at row 32; the length is above 120."""
    run = watched(
        60,
        lambda n: {
            "reward_mean": 0.5,
            "completion_length_mean": falling(n, 60.0, 3140.0, over=40),
            "completion_truncated_ratio": falling(n, 0.0, 0.61, over=30),
        },
    )

    assert run.changes == [("firing", 35, "warning")]


@pytest.mark.parametrize(("cut", "fires"), [(0.6, [("firing", 42, "warning")]), (0.45, [])])
def test_growth_that_the_limit_hides(cut: float, fires: list[tuple[str, int, str]]) -> None:
    """Length 100 to 170, no more fits. Cut off 0.03 more a row from 21 on: a mean of five of 0.51 at row 39."""
    run = watched(
        60,
        lambda n: {
            "reward_mean": 0.5,
            "completion_length_mean": falling(n, 100.0, 170.0, over=20),
            "completion_truncated_ratio": falling(n, 0.0, cut, over=20),
        },
    )

    assert run.changes == fires


def test_longer_and_cut_off_is_no_degradation_while_the_reward_rises_slowly() -> None:
    """Reward -0.58 to -0.44 within noise of 0.08 (no gain in five rows, but in many); flat, it fires."""

    def run(last: float) -> Watched:
        chance = Random(7)
        return watched(
            160,
            lambda n: {
                "reward_mean": falling(n, -0.58, last, begin=16, over=20) + chance.gauss(0.0, 0.08),
                "completion_length_mean": falling(n, 1000.0, 4600.0, begin=60, over=60),
                "completion_truncated_ratio": falling(n, 0.0, 0.31, begin=60, over=60),
            },
        )

    assert run(-0.44).changes == []
    assert [change[0] for change in run(-0.58).changes] == ["firing"]


def test_shorter_with_a_reward_below_its_start() -> None:
    """Length 346 to 63 and reward 0.5 to 0.4: 10 % lower at row 35 (a fifth), the length is 30 % of 346 later.

    The length falls by 11.32 a row: a mean of 103.8 at row 44 (21.4 rows and the two of the mean). Rows 44 to 47.
    """
    run = watched(
        80,
        lambda n: {"reward_mean": falling(n, 0.5, 0.4), "completion_length_mean": falling(n, 346.0, 63.0)},
    )

    assert run.changes == [("firing", 47, "warning")]


@pytest.mark.parametrize(
    "course",
    [
        pytest.param(lambda n: {"reward_mean": falling(n, 0.9, 0.4), "entropy": 0.5}, id="reward alone"),
        pytest.param(lambda n: {"reward_mean": 0.5, "entropy": falling(n, 0.5, 0.05)}, id="entropy alone"),
        pytest.param(
            lambda n: {"reward_mean": 0.5, "completion_length_mean": falling(n, 346.0, 63.0)}, id="shorter, as good"
        ),
        pytest.param(
            lambda n: {
                "reward_mean": 0.2 + 0.01 * n,
                "completion_length_mean": 200.0 + 20 * n,
                "completion_truncated_ratio": 0.01 * n,
            },
            id="longer reasoning that pays",
        ),
        pytest.param(
            lambda n: {
                "reward_mean": 0.0,
                "completion_length_mean": falling(n, 800.0, 4000.0),
                "entropy": falling(n, 4.0, 0.01),
            },
            id="a reward that is always 0",
        ),
    ],
)
def test_look_alikes(course: Course) -> None:
    assert watched(80, course).changes == []


def test_noise_of_single_groups_does_not_agree_for_long() -> None:
    """Rewards of 0 and 1, lengths between 20 and 900 and a cut-off share of single completions, without a trend."""

    def course(_: int) -> Mapping[str, float]:
        return {
            "reward_mean": float(chance.random() < 0.3),
            "completion_length_mean": chance.uniform(20.0, 900.0),
            "completion_truncated_ratio": float(chance.random() < 0.15),
            "entropy": chance.uniform(0.2, 1.5),
        }

    for seed in range(5):
        chance = Random(seed)
        assert watched(2000, course).changes == []


def test_three_rows_are_too_few() -> None:
    """Everything is as before from row 46 on, where only rows 43, 44 and 45 agreed."""

    def course(n: int) -> Mapping[str, float]:
        if n > 45:
            return {"reward_mean": 0.9, "completion_truncated_ratio": 0.09}
        return {"reward_mean": falling(n, 0.68, 0.43), "completion_truncated_ratio": falling(n, 0.09, 0.53)}

    assert watched(60, course).changes == []


def test_a_long_run_needs_a_share_of_its_rows() -> None:
    """Of 1,000 rows, 8 % are 80: a bad stretch of 60 rows is not enough, one of 120 is."""

    def stretch(length: int) -> list[tuple[str, int, str]]:
        def course(n: int) -> Mapping[str, float]:
            bad = 1000 < n <= 1000 + length
            return {"reward_mean": 0.4 if bad else 0.8, "completion_truncated_ratio": 0.6 if bad else 0.1}

        return watched(1000 + length + 20, course).changes

    assert stretch(60) == []
    assert [change[0] for change in stretch(120)] == ["firing", "resolved"]


def at_the_end(rewards: list[float], lengths: list[float], *, after: float = 3600.0) -> Watched:
    """Rows a second apart, and a tick so many seconds after the newest one."""
    rows = [
        row(n, reward_mean=reward, completion_length_mean=length)._replace(time=float(n))
        for n, (reward, length) in enumerate(zip(rewards, lengths, strict=True), 1)
    ]
    return Watched(RULE).feed_all(rows).feed(Tick(len(rows) + after))


SHORTER = [300.0 - 11.0 * n for n in range(23)]
"""300 to 58: the newest five are a quarter of the first five."""
FALLEN = [0.55, 0.57] * 10 + [0.36, 0.33, 0.34]
"""The best mean of five is 0.562; 0.36 is 36 % below it. The steps make a noise of 0.034, four errors 0.099."""


def test_a_log_that_ends_three_rows_into_a_fall() -> None:
    run = at_the_end(FALLEN, SHORTER)

    assert run.changes == [("firing", 23, "warning")]
    assert run.said[-1].first_step == 21
    assert run.said[-1].reading.message == "the run degrades as its log ends: reward fell, completions shrank"


@pytest.mark.parametrize(
    ("records", "severity"),
    [
        ((Activity("log", 0.0), Tick(3600.0, live=False)), "warning"),
        ((Activity("log", 0.0), Tick(3599.0, live=False)), "info"),
        ((Activity("log", 0.0), Tick(3599.0)), None),
        ((Activity("log", 0.0), Tick(9e9, live=False, state=EndState.RUNNING)), None),
        ((Activity("log", 0.0), Tick(9.0, live=False, state=EndState.ENDED)), "warning"),
        ((Tick(9e9, live=False),), "info"),
    ],
    ids=["old file", "new file", "watched", "running", "ended", "unknown"],
)
def test_whether_a_log_without_times_has_ended(records: tuple[Record, ...], severity: str | None) -> None:
    rows = [
        row(n, reward_mean=reward, completion_length_mean=length)
        for n, (reward, length) in enumerate(zip(FALLEN, SHORTER, strict=True), 1)
    ]
    run = Watched(RULE).feed_all(rows).feed(*records)
    assert run.changes == ([] if severity is None else [("firing", 23, severity)])


@pytest.mark.parametrize(
    ("rewards", "lengths", "after"),
    [
        (FALLEN, SHORTER, 3599.0),
        (FALLEN, [300.0] * 23, 3600.0),
        ([*FALLEN[:-1], 0.45], SHORTER, 3600.0),
        ([0.55, 0.57] * 10 + [0.56] * 3, SHORTER, 3600.0),
        ([0.2, 0.9] * 10 + [0.3, 0.3, 0.3], SHORTER, 3600.0),
    ],
    ids=["more may come", "no second sign", "the last row is back", "as good and shorter", "noise"],
)
def test_no_fall_at_the_end(rewards: list[float], lengths: list[float], after: float) -> None:
    assert at_the_end(rewards, lengths, after=after).changes == []


def test_a_reward_centred_over_its_batch_does_not_fall_by_rounding() -> None:
    """Logged as 2e-10 at first and as -1e-9 later, beside a spread of 0.05."""
    run = watched(
        70,
        lambda n: {
            "reward_mean": (2e-10 if n < 20 else -1e-9) * (n % 3),
            "reward_batch_std": 0.05,
            "kl_reference": falling(n, 0.05, 0.9),
        },
    )
    assert run.changes == []
