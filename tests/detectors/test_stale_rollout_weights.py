"""Gaps that climb or leap, and everything that only looks like it."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import MetricRow
from grpo_watch.engine.snapshot import take_snapshot
from grpo_watch.engine.window import ranks
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "stale-rollout-weights"


def rows(*gaps: float, lr: float | None = 1e-5, entropy: float | None = None, start: int = 1) -> list[MetricRow]:
    more = {"learning_rate": lr, "entropy": entropy}
    known = {name: value for name, value in more.items() if value is not None}
    return [row(start + at, logprob_gap_rollout=gap, **known) for at, gap in enumerate(gaps)]


CLIMB = [0.01] * 5 + [0.01 + 0.004 * at for at in range(1, 100)]
LEAP = [0.01, 0.012, 0.009, *[0.8] * 20]


def test_a_climb_is_a_warning_and_critical_where_weights_must_be_others() -> None:
    """Five times the first gaps at row 17, but the order takes 20 rows; the median first exceeds 0.3 at row 80."""
    run = Watched(RULE).feed_all(rows(*CLIMB))
    assert run.changes == [("firing", 22, "warning"), ("firing", 80, "critical")]
    assert run.said[0].step == 20


def test_a_climb_that_levels_off_stays_a_finding() -> None:
    """The high level never becomes normal."""
    run = Watched(RULE).feed_all(rows(*CLIMB[:30], *[CLIMB[29]] * 100))
    assert run.changes == [("firing", 22, "warning")]


def test_a_leap_is_critical_after_three_rows() -> None:
    """Seen from its third row on, reported at the third such row."""
    run = Watched(RULE).feed_all(rows(*LEAP, entropy=0.5))
    assert run.changes == [("firing", 8, "critical")]
    assert run.said[0].step == 6
    assert "sleep level" in run.said[-1].reading.hint


def test_a_leap_needs_one_row_before_it() -> None:
    """Garbage right after the first sync."""
    assert Watched(RULE).feed_all(rows(0.01, *[0.8] * 9)).changes == [("firing", 6, "critical")]
    assert Watched(RULE).feed_all(rows(*[0.8] * 30)).said == []


def test_two_rows_are_a_spike() -> None:
    """It came back."""
    assert Watched(RULE).feed_all(rows(0.01, 0.01, 0.01, 0.9, 0.9, *[0.01] * 20)).said == []


@pytest.mark.parametrize("gaps", [CLIMB, LEAP])
def test_without_learning_it_is_the_engines_drift(gaps: list[float]) -> None:
    """The learning rate is 0 on all rows; where it is not logged, steps count."""
    assert Watched(RULE).feed_all(rows(*gaps, lr=0.0)).said == []
    assert Watched(RULE).feed_all(rows(*gaps, lr=None)).changes != []


def test_a_gap_that_grows_with_the_entropy_is_no_staleness() -> None:
    """5 nats."""
    assert Watched(RULE).feed_all(rows(*CLIMB, entropy=5.0)).said == []


def test_a_sawtooth_is_bounded_staleness() -> None:
    """Syncs every eight steps: climbs to 0.15 and falls back."""
    saw = [0.01 + 0.02 * (step % 8) for step in range(200)]
    assert Watched(RULE).feed_all(rows(*saw)).said == []


def test_a_flat_high_gap_is_no_climb() -> None:
    """FP8 rollouts, with noise."""
    assert Watched(RULE).feed_all(rows(*[0.06, 0.08, 0.05, 0.07] * 20)).said == []


def test_ranks_share_ties() -> None:
    """Two equal ones share 1.5."""
    assert ranks([3.0, 1.0, 2.0, 2.0]) == [3.0, 0.0, 1.5, 1.5]


@pytest.mark.parametrize(("gap", "changes"), [(0.05, []), (0.07, [("firing", 8, "critical")])])
def test_a_leap_of_probabilities_reaches_what_only_other_weights_give(gap: float, changes: list[object]) -> None:
    """0.06 is the bound (0.01 is worth a look); both are far more than ten times the 0.001 before."""
    known = {"learning_rate": 1e-5}
    gaps = [0.001] * 3 + [gap] * 9
    run = Watched(RULE).feed_all(row(n, probability_gap_rollout=each, **known) for n, each in enumerate(gaps, 1))
    assert run.changes == changes


@pytest.mark.parametrize(
    ("ageing", "says", "cause"),
    [
        (0.0, "the age of samples stays (2 updates)", "no sync ever arrived"),
        (0.1, "samples get older (2.2 to 3.9 updates)", "falls behind its rollouts"),
    ],
    ids=["never synced", "falls behind"],
)
def test_a_climb_with_and_without_older_samples(ageing: float, says: str, cause: str) -> None:
    """In verl #7495 the engine counted each sync and never got the adapter."""
    run = Watched(RULE)
    for at, gap in enumerate(CLIMB[:25]):
        run.feed(row(at + 1, logprob_gap_rollout=gap, learning_rate=1e-5, sample_staleness_steps=2.0 + ageing * at))
    (finding,) = take_snapshot(run.state).findings
    assert says in finding.summary
    assert cause in finding.causes[0]
