"""Warm-up against the predicted run."""

from __future__ import annotations

from tests.preflight.launches import launch, told

CHECK = "warmup-longer-than-run"


def test_half_of_the_run() -> None:
    """100 prompts, one a step, one epoch."""
    assert len(told(CHECK, launch(rows=100, num_train_epochs=1, warmup_steps=50))) == 1
    assert told(CHECK, launch(rows=100, num_train_epochs=1, warmup_steps=49)) == []


def test_a_share_needs_no_rows() -> None:
    assert len(told(CHECK, launch(warmup_ratio=0.9))) == 1
    assert len(told(CHECK, launch(warmup_steps=0.9))) == 1
    assert told(CHECK, launch(warmup_steps=1000)) == []
