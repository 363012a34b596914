"""Each measure against its own threshold, and what explains it away."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import RunConfig
from grpo_watch.engine.snapshot import take_snapshot
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "train-rollout-mismatch"


def watched(rows: int, **values: float | None) -> Watched:
    return Watched(RULE).feed_all(row(step, **values) for step in range(1, rows + 1))


@pytest.mark.parametrize(
    ("metric", "wrong", "right"),
    [
        ("logprob_gap_rollout", 0.11, 0.09),
        ("probability_gap_rollout", 0.011, 0.009),
        ("kl_rollout", 0.11, 0.09),
        ("probability_error_rollout", 1.06, 1.04),
        ("effective_sample_rollout", 0.29, 0.31),
        ("chi2_rollout", 1.1, 0.9),
        ("importance_ratio_rollout", 0.09, 0.11),
        ("importance_ratio_rollout", 2.1, 1.9),
    ],
)
def test_thresholds(metric: str, wrong: float, right: float) -> None:
    """The fifth row fills the window, the seventh is the third breach."""
    run = watched(10, **{metric: wrong})
    assert run.changes == [("firing", 7, "warning")]
    assert run.said[-1].reading.evidence == {metric: wrong}
    assert watched(10, **{metric: right}).said == []


def test_entropy_explains_a_gap_of_log_probabilities() -> None:
    """15 % of the entropy: 0.2 at 1.4 nats is 14 %, at 1.3 nats 15.4 %. Probabilities need no such excuse."""
    assert watched(10, logprob_gap_rollout=0.2, entropy=1.4).said == []
    assert watched(10, logprob_gap_rollout=0.2, entropy=1.3).changes == [("firing", 7, "warning")]
    assert watched(10, probability_gap_rollout=0.02, entropy=5.0).changes == [("firing", 7, "warning")]


def test_a_ratio_falls_when_the_entropy_explodes() -> None:
    """Three times the run's first entropy."""
    calm = [row(step, importance_ratio_rollout=0.9, entropy=0.2) for step in range(1, 11)]
    wild = [row(step, importance_ratio_rollout=0.01, entropy=2.0) for step in range(11, 30)]
    assert Watched(RULE).feed_all([*calm, *wild]).changes == []


def test_two_measures_are_reported_in_one_reading() -> None:
    """Both named, both in the evidence."""
    run = watched(10, logprob_gap_rollout=0.5, importance_ratio_rollout=0.01)
    assert set(run.said[-1].reading.evidence) == {"logprob_gap_rollout", "importance_ratio_rollout"}
    assert "after masking" in run.said[-1].reading.message


def test_null_and_missing_values_are_no_rows() -> None:
    """Four of each are not five."""
    run = watched(4, kl_rollout=0.5).feed(row(5, kl_rollout=None), row(6, kl_rollout=float("nan")), row(7, loss=0.1))
    assert run.said == []
    assert run.blind_reason == "too few rows yet"


def test_it_ends() -> None:
    """Ten bad rows; the median of row 12 is the last bad one (three of five)."""
    run = watched(10, kl_rollout=0.5).feed_all(row(step, kl_rollout=0.001) for step in range(11, 30))
    assert run.changes == [("firing", 7, "warning"), ("resolved", 17, "warning")]


@pytest.mark.parametrize(
    ("framework", "ratio", "fires"),
    [("verl", 0.49, True), ("verl", 0.51, False), ("verl", 2.1, True), ("trl", 0.49, False), ("trl", 0.09, True)],
)
def test_a_mean_ratio_before_masking_has_a_limit_of_its_own(framework: str, ratio: float, *, fires: bool) -> None:
    """verl's guide: below 0.5 or above 2; what TRL logs after masking is 0.4 to 0.7 in healthy runs."""
    run = Watched(RULE).feed(RunConfig(framework, None, {}))
    run.feed_all(row(step, importance_ratio_rollout=ratio) for step in range(1, 20))
    assert bool(run.changes) is fires
    assert all(("after masking" in said.reading.message) is (framework == "trl") for said in run.said if ratio < 1)


@pytest.mark.parametrize(
    ("fresh", "aged", "says", "cause"),
    [
        (0.15, 0.18, "samples of the current weights show it too (0.15 against 0.18)", "kernels or MoE routing"),
        (0.02, 0.3, "only older samples show it (0.3 against 0.02)", "allow less staleness"),
    ],
)
def test_the_gap_is_split_by_the_age_of_samples(fresh: float, aged: float, says: str, cause: str) -> None:
    """An asynchronous trainer: two rows of samples that are three updates old, one of fresh ones."""
    ages = [0.0 if step % 3 == 0 else 3.0 for step in range(1, 31)]
    run = Watched(RULE).feed_all(
        row(step, logprob_gap_rollout=aged if age else fresh, sample_staleness_steps=age)
        for step, age in enumerate(ages, 1)
    )
    (finding,) = take_snapshot(run.state).findings
    assert says in finding.summary
    assert cause in finding.causes[0]


def test_samples_of_one_age_split_nothing() -> None:
    run = Watched(RULE).feed_all(row(at, logprob_gap_rollout=0.2, sample_staleness_steps=2.0) for at in range(1, 20))
    assert run.said[-1].reading.message == "logprob_gap_rollout is 0.2, normal is below 0.1"
