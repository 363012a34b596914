"""Pairs of checkpoints: which are compared, and what identical bytes mean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_watch.core.records import CheckpointDigest, CheckpointKind, TensorDigest
from tests.support.detecting import Watched
from tests.support.records import a_checkpoint, row

RULE = "parameters-unchanged"
SAME = {"a.w": "1", "b.w": "2"}
MOVED = {"a.w": "1", "b.w": "3"}


def fed(*checkpoints: CheckpointDigest) -> Watched:
    return Watched(RULE).feed(*checkpoints)


def test_one_identical_pair_fires_with_both_named() -> None:
    """first_step is the earlier checkpoint, the firing step the later one."""
    run = fed(a_checkpoint(20, SAME), a_checkpoint(40, SAME))
    assert run.changes == [("firing", 40, "critical")]
    said = run.said[-1]
    assert said.first_step == 20
    assert said.reading.evidence["optimizer_steps_between"] == 20
    assert said.reading.evidence["later_checkpoint"] == "checkpoint-40"


def test_one_changed_byte_acquits() -> None:
    """No tolerance: one tensor of two is enough."""
    assert fed(a_checkpoint(20, SAME), a_checkpoint(40, MOVED)).changes == []


def test_frozen_in_mid_run_and_thawed() -> None:
    """40 = 60 = 80, 100 differs."""
    run = fed(a_checkpoint(20, SAME), *(a_checkpoint(s, MOVED) for s in (40, 60, 80)), a_checkpoint(100, SAME))
    assert run.changes == [("firing", 60, "critical"), ("resolved", 100, "critical")]


def test_repeats_of_a_step_are_not_compared() -> None:
    """The final save, a best-model copy, a replayed step after a resume."""
    assert fed(a_checkpoint(20, SAME), a_checkpoint(40, MOVED), a_checkpoint(40, MOVED)).changes == []
    resumed = fed(a_checkpoint(20, SAME), a_checkpoint(40, MOVED), a_checkpoint(20, SAME), a_checkpoint(40, MOVED))
    assert resumed.changes == []


def test_survives_a_new_attempt() -> None:
    """Resumed at 41, saved at 60: compared with the 40 of the attempt before."""
    run = Watched(RULE).feed(row(40), a_checkpoint(40, SAME), row(41, attempt=2), row(60, attempt=2))
    assert run.feed(a_checkpoint(60, SAME)).changes == [("firing", 60, "critical")]


def test_kinds_are_kept_apart() -> None:
    """The frozen base beside an adapter is the same on purpose when nobody trains it, and is no adapter."""
    adapter = {"kind": CheckpointKind.ADAPTER}
    run = fed(a_checkpoint(20, SAME, **adapter), a_checkpoint(30, SAME), a_checkpoint(40, MOVED, **adapter))
    assert run.changes == []


def test_tensors_without_elements_are_not_compared() -> None:
    """ZeRO-3 saved ungathered: every such tensor has the bytes of nothing."""
    empty = {"w": TensorDigest("BF16", (0,), "e")}
    run = fed(*(replace(a_checkpoint(step, {}), tensors=empty) for step in (20, 40)))
    assert run.changes == []
    assert "no tensor in common" in run.blind_reason


@pytest.mark.parametrize("broken", [{"complete": False}, {"problems": ("model.safetensors: cut off",)}])
def test_unusable_checkpoints_are_skipped(broken: dict[str, object]) -> None:
    """The next good one is compared with the last good one before."""
    run = fed(a_checkpoint(20, SAME), a_checkpoint(40, SAME, **broken))
    assert run.changes == []
    assert run.feed(a_checkpoint(60, SAME)).changes == [("firing", 60, "critical")]
    assert run.said[-1].first_step == 20


def test_steps_in_any_order_are_compared_with_their_nearest_lower() -> None:
    """A reader may list checkpoint-100 before checkpoint-20; 60 is compared with 20, not with 100."""
    assert fed(a_checkpoint(100, MOVED), a_checkpoint(20, SAME), a_checkpoint(60, MOVED)).changes == []


def test_the_rollout_engines_weights_are_another_rules_matter() -> None:
    """An engine that is not synced repeats its bytes; the trainer's own weights may well move."""
    engine = [a_checkpoint(step, SAME, kind=CheckpointKind.ROLLOUT_ENGINE) for step in (20, 40, 60)]
    assert fed(*engine).changes == []


def of_files(step: int, checksum: str) -> CheckpointDigest:
    """A distributed checkpoint: two files, compared as a whole."""
    files = {name: TensorDigest("FILE", (100,), checksum + name) for name in ("__0_0.distcp", "__1_0.distcp")}
    return replace(a_checkpoint(step, {}), tensors=files)


def test_whole_files_prove_only_when_they_are_equal() -> None:
    run = fed(of_files(20, "a"), of_files(40, "b"))
    assert run.changes == []
    assert "files that differ prove nothing" in run.blind_reason
    assert run.feed(of_files(60, "b")).changes == [("firing", 60, "critical")]


def with_optimizer(step: int, tensors: dict[str, str], moments: str, masters: str | None = None) -> CheckpointDigest:
    state: dict[str, str | int] = {"moments": moments, "moment_tensors": 4}
    return a_checkpoint(step, tensors, optimizer=state if masters is None else state | {"masters": masters})


@pytest.mark.parametrize(
    ("moments", "masters", "words"),
    [
        ("m2", None, "the optimizer's moments changed, so gradients arrive and the updates are lost"),
        ("m2", "f2", "the float32 copies changed, so the updates are lost in rounding"),
        ("m1", None, "neither did the optimizer's moments change, so it never stepped"),
        ("m1", "f1", "neither did the optimizer's moments change, so it never stepped"),
    ],
)
def test_what_the_optimizer_says_of_frozen_weights(moments: str, masters: str | None, words: str) -> None:
    run = fed(with_optimizer(20, SAME, "m1", masters and "f1"), with_optimizer(40, SAME, moments, masters))
    assert run.changes == [("firing", 40, "critical")]
    assert run.said[-1].reading.message.endswith(words)


def test_moments_that_never_change_beside_weights_that_do() -> None:
    """The optimizer that is saved is not the one that trains; a warning of its own, and it ends."""
    run = fed(with_optimizer(20, SAME, "m1"), with_optimizer(40, MOVED, "m1"))
    assert run.changes == [("firing", 40, "warning")]
    assert run.said[-1].key == "optimizer"
    run.feed(with_optimizer(60, SAME, "m2"))
    assert run.changes[-1] == ("resolved", 60, "warning")


def test_moments_that_one_checkpoint_lacks_say_nothing() -> None:
    assert fed(with_optimizer(20, SAME, "m1"), a_checkpoint(40, MOVED)).changes == []
