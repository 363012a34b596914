"""Replicas that should agree."""

from __future__ import annotations

from grpo_watch.engine.records import CheckpointKind
from tests.support.detecting import Watched
from tests.support.records import a_checkpoint

RULE = "ranks-diverged"


def test_checkpoints_of_one_rank_leave_it_blind() -> None:
    run = Watched(RULE).feed(a_checkpoint(20, {"a": "1"}), a_checkpoint(20, {"a": "2"}))
    assert "do not name the rank" in run.blind_reason
    assert run.changes == []


SHARED = (("norm@0/2", "norm@1/2"), ("bias@0/2", "bias@1/2"))


def test_ranks_within_one_checkpoint() -> None:
    """What several ranks saved side by side; the shards of w differ by design."""
    sums = {"w@0/2": "1", "w@1/2": "2", "norm@0/2": "n", "norm@1/2": "n", "bias@0/2": "b", "bias@1/2": "b"}
    run = Watched(RULE).feed(a_checkpoint(20, sums, replicas=SHARED))
    assert run.changes == []
    assert run.monitor.evaluated
    run.feed(a_checkpoint(40, sums | {"bias@1/2": "other"}, replicas=SHARED))
    assert run.changes == [("firing", 40, "critical")]
    said = run.said[-1].reading
    assert said.message == "1 of 2 tensors that all ranks share differ between ranks"
    assert said.evidence["first"] == "bias@0/2 b, bias@1/2 other"


def test_a_checkpoint_with_a_missing_shard_is_not_judged() -> None:
    run = Watched(RULE).feed(a_checkpoint(20, {"norm@0/2": "n"}, replicas=SHARED, problems=("rank 1 is missing",)))
    assert run.changes == []


def test_one_process_alone_says_nothing() -> None:
    run = Watched(RULE).feed(a_checkpoint(10, {"w": "a"}, kind=CheckpointKind.PROBE))
    assert not run.monitor.evaluated
