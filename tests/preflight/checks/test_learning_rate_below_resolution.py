"""Rates that bf16 rounds away."""

from __future__ import annotations

from tests.preflight.launches import launch, told

CHECK = "learning-rate-below-resolution"


FULL = {"tuner_type": "full", "torch_dtype": "bfloat16", "per_device_train_batch_size": 8}


def test_the_weight_that_stands_still_is_named() -> None:
    """256 x 2e-6 = 0.000512."""
    assert "0.00051" in told(CHECK, launch("ms-swift", "4.6.0", learning_rate="2e-6", **FULL))[0].message


def test_masters_keep_it() -> None:
    assert (
        told(CHECK, launch("ms-swift", "4.6.0", learning_rate=1e-6, zero={"zero_optimization.stage": 2}, **FULL)) == []
    )
    assert told(CHECK, launch("ms-swift", "4.6.0", learning_rate=1e-5, **FULL)) == []


def test_what_is_not_proven_is_not_told() -> None:
    """TRL: it is unknown whether an adapter trains."""
    assert told(CHECK, launch(learning_rate=1e-6, torch_dtype="bfloat16")) == []
    assert len(told(CHECK, launch(learning_rate=1e-6, torch_dtype="bfloat16", peft=False))) == 1
