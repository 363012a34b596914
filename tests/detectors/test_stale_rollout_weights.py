"""Gaps that climb or leap, engine weights that stay, and everything that only looks like it."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import CheckpointDigest, CheckpointKind, MetricRow
from grpo_watch.engine.snapshot import take_snapshot
from grpo_watch.engine.window import ranks
from tests.support.detecting import Watched
from tests.support.records import a_checkpoint, row

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


def engine(step: int, tensors: dict[str, str]) -> CheckpointDigest:
    return a_checkpoint(step, tensors, kind=CheckpointKind.ROLLOUT_ENGINE)


def test_engine_weights_that_stay_while_ours_move() -> None:
    """Two syncs are proof, one is not."""
    run = Watched(RULE).feed(a_checkpoint(10, {"w": "a"}), synced(10, {"w": "a"}))
    run.feed(a_checkpoint(20, {"w": "b"}), synced(20, {"w": "a"}))
    assert run.said == []
    run.feed(a_checkpoint(30, {"w": "c"}), synced(30, {"w": "a"}))
    assert run.changes == [("firing", 30, "critical")]
    assert run.said[-1].first_step == 10
    run.feed(a_checkpoint(40, {"w": "d"}), synced(40, {"w": "d"}))
    assert run.changes[-1] == ("resolved", 40, "critical")


def test_engine_weights_that_have_no_reason_to_move() -> None:
    """The trainer stands still, too."""
    run = Watched(RULE)
    for step in (10, 20, 30, 40):
        run.feed(a_checkpoint(step, {"w": "a"}), engine(step, {"w": "a"}))
    assert run.said == []


def in_memory(step: int, tensors: dict[str, str]) -> CheckpointDigest:
    return a_checkpoint(step, tensors, kind=CheckpointKind.PROBE)


def synced(step: int, tensors: dict[str, str]) -> CheckpointDigest:
    return a_checkpoint(step, tensors, kind=CheckpointKind.ROLLOUT_ENGINE, synced=True)


def test_one_sync_that_gave_other_weights_is_proof() -> None:
    """Whichever side is read first; the next good sync ends it."""
    run = Watched(RULE).feed(in_memory(10, {"w": "a", "v": "1"}), synced(10, {"w": "a", "v": "1"}))
    assert run.said == []
    run.feed(synced(20, {"w": "a", "v": "2"}), in_memory(20, {"w": "b", "v": "2"}))
    assert run.changes == [("firing", 20, "critical")]
    assert run.said[-1].reading.evidence["differ"] == 1
    run.feed(in_memory(30, {"w": "c", "v": "3"}), synced(30, {"w": "c", "v": "3"}))
    assert run.changes[-1] == ("resolved", 30, "critical")


def test_an_engine_of_another_layout_is_not_accused() -> None:
    """Not one tensor was ever the same, and all of them follow."""
    run = Watched(RULE)
    for step in range(10, 60, 10):
        run.feed(in_memory(step, {"w": f"a{step}"}), synced(step, {"w": f"b{step}"}))
    assert run.said == []


def test_a_tensor_that_is_held_in_another_form_is_not_accused() -> None:
    """One of three never was the same, and follows; when it stops following it is reported at the next sync."""
    run = Watched(RULE)
    for step in (10, 20, 30):
        now = str(step)
        run.feed(in_memory(step, {"w": now, "v": now, "a": now}), synced(step, {"w": now, "v": now, "a": f"-{now}"}))
    assert run.said == []
    run.feed(in_memory(40, {"w": "40", "v": "40", "a": "40"}), synced(40, {"w": "40", "v": "40", "a": "-30"}))
    assert run.changes == [("firing", 40, "critical")]
    assert run.said[-1].reading.evidence["first"] == "a"


def test_tensors_that_no_sync_ever_reached_are_reported_at_the_second() -> None:
    """The trainer had moved before the first one; norms, which did not change, are the same on both sides."""
    run = Watched(RULE).feed(in_memory(10, {"w": "1", "norm": "n"}), synced(10, {"w": "0", "norm": "n"}))
    assert run.said == []
    run.feed(in_memory(20, {"w": "2", "norm": "n"}), synced(20, {"w": "0", "norm": "n"}))
    assert run.changes == [("firing", 20, "critical")]


def test_an_engine_that_was_not_synced_may_be_behind() -> None:
    run = Watched(RULE).feed(in_memory(10, {"w": "a"}), synced(10, {"w": "a"}))
    run.feed(in_memory(20, {"w": "b"}), engine(20, {"w": "a"}))
    assert run.said == []


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


def test_an_engine_that_is_synced_seldom_is_not_stale() -> None:
    """Probed every 10 steps, synced every 50, never marked: it changes at 50, 100, 150, 200."""
    run = Watched(RULE)
    for step in range(10, 240, 10):
        run.feed(in_memory(step, {"w": str(step)}), engine(step, {"w": str(step // 50)}))
    assert run.said == []


def test_an_engine_that_never_changed_and_was_never_reported_to_be_synced_proves_nothing() -> None:
    run = Watched(RULE)
    for step in range(10, 240, 10):
        run.feed(in_memory(step, {"w": str(step)}), engine(step, {"w": "a"}))
    assert run.said == []
    assert not run.monitor.evaluated


def test_one_stale_engine_of_two_is_not_hidden_by_the_other() -> None:
    """Both speak at each step, in any order."""
    run = Watched(RULE)
    for step in (10, 20, 30):
        run.feed(in_memory(step, {"w": str(step)}))
        for name, held in (("0-a-1", "10"), ("1-a-2", str(step))):
            tensors = {"merged": held}  # other names than the trainer's: nothing to compare
            run.feed(a_checkpoint(step, tensors, kind=CheckpointKind.ROLLOUT_ENGINE, synced=True, engine=name))
    assert run.changes == [("firing", 30, "critical")]
    assert run.said[-1].reading.evidence["engine"] == "0-a-1"


def test_an_engine_that_was_replaced_is_forgotten() -> None:
    """The first was stale; the second, of another process, follows for two probes."""
    run = Watched(RULE)
    for step in range(10, 60, 10):
        name, held = ("0-a-1", "a") if step <= 30 else ("0-a-2", str(step))
        run.feed(in_memory(step, {"w": str(step)}))
        run.feed(a_checkpoint(step, {"m": held}, kind=CheckpointKind.ROLLOUT_ENGINE, synced=True, engine=name))
    assert run.changes == [("firing", 30, "critical"), ("resolved", 50, "critical")]


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
