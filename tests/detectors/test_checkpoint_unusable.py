"""What makes a complete checkpoint unusable."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_watch.engine.records import TensorDigest
from tests.support.detecting import Watched
from tests.support.records import a_checkpoint

RULE = "checkpoint-unusable"
FIRE = [("firing", 20, "critical")]


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (TensorDigest("BF16", (0,), "e"), "1 of 2 tensors of checkpoint 20 are empty"),
        (TensorDigest("BF16", (0, 4096), "e"), "1 of 2 tensors of checkpoint 20 are empty"),
        (TensorDigest("F32", (4,), "n", nonfinite=3), "3 non-finite weights in 1 tensors"),
    ],
    ids=["no element", "one dimension 0", "NaN"],
)
def test_broken_tensors_are_counted(tensor: TensorDigest, words: str) -> None:
    """The message says how many and where."""
    good = TensorDigest("F32", (4,), "g")
    run = Watched(RULE).feed(replace(a_checkpoint(20, {}), tensors={"good": good, "bad": tensor}))
    assert run.changes == FIRE
    assert words in run.said[-1].reading.message
    assert run.said[-1].reading.evidence["first"] == "bad"


def test_weights_of_another_model() -> None:
    """Half of the matrices are enough; fewer may be a head that was just added; it ends when they are related again."""
    run = Watched(RULE).feed(a_checkpoint(10, {}), a_checkpoint(20, {}, unrelated=(4, 8)))
    assert run.changes == FIRE
    assert run.headline == "The checkpoint holds other weights"
    assert run.feed(a_checkpoint(30, {}, unrelated=(3, 8))).changes[-1] == ("resolved", 30, "critical")


def test_three_matrices_are_too_few_to_call_it_another_model() -> None:
    """A gate that begins at zero, or a head that was just added, is all that is trained."""
    run = Watched(RULE).feed(a_checkpoint(10, {}), a_checkpoint(20, {}, unrelated=(3, 3)))
    assert run.changes == []
    assert run.feed(a_checkpoint(30, {}, unrelated=(4, 4))).changes == [("firing", 30, "critical")]


def test_a_problem_of_the_files_goes_first() -> None:
    """What was read of a cut-off file says nothing more."""
    run = Watched(RULE).feed(a_checkpoint(20, {}, problems=("model.safetensors: cut off", "another")))
    assert run.changes == FIRE
    assert run.said[-1].reading.message == "checkpoint 20: model.safetensors: cut off"


@pytest.mark.parametrize(
    "tensor",
    [TensorDigest("F32", (), "s"), TensorDigest("F32", (4,), "z", zero=True), TensorDigest("F32", (1, 1), "o")],
    ids=["scalar", "all zero", "one element"],
)
def test_unusual_but_usable(tensor: TensorDigest) -> None:
    """A scalar has one element; zeros are finite."""
    run = Watched(RULE).feed(replace(a_checkpoint(20, {}), tensors={"t": tensor}))
    assert run.changes == []
    assert run.monitor.evaluated


def test_an_attention_mask_holds_infinities_on_purpose() -> None:
    """A buffer that is saved; ``mask_token`` is a weight."""
    infinite = TensorDigest("F32", (4,), "i", nonfinite=3)
    mask = Watched(RULE).feed(replace(a_checkpoint(20, {}), tensors={"blocks.0.attn_mask": infinite}))
    assert mask.changes == []
    token = Watched(RULE).feed(replace(a_checkpoint(20, {}), tensors={"embeddings.mask_token": infinite}))
    assert token.changes == FIRE


def test_an_incomplete_folder_is_not_judged() -> None:
    """It is still being written."""
    run = Watched(RULE).feed(a_checkpoint(20, {}, complete=False, problems=("cut off",)))
    assert run.said == []
    assert not run.monitor.evaluated


def test_a_good_one_ends_it() -> None:
    """The next save."""
    run = Watched(RULE).feed(a_checkpoint(20, {}, problems=("cut off",)), a_checkpoint(40, {"w": "1"}))
    assert run.changes == [*FIRE, ("resolved", 40, "critical")]
