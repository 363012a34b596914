"""Offload with accumulation."""

from __future__ import annotations

from tests.preflight.launches import launch, told

CHECK = "gradients-lost-with-offload"


def test_a_deepspeed_file_is_read_too() -> None:
    config = {"zero_optimization.stage": 3, "zero_optimization.offload_optimizer.device": "cpu"}
    assert len(told(CHECK, launch(gradient_accumulation_steps=4, zero=config))) == 1
    assert told(CHECK, launch(gradient_accumulation_steps=1, zero=config)) == []
    assert (
        told(
            CHECK,
            launch(
                gradient_accumulation_steps=4,
                zero={**config, "zero_optimization.offload_optimizer.device": "none"},
            ),
        )
        == []
    )


def test_ms_swift_offloads_by_itself() -> None:
    settings = {"deepspeed": "zero3", "gradient_accumulation_steps": 8}
    assert len(told(CHECK, launch("ms-swift", "3.4.1", offload_optimizer=True, **settings))) == 1
    assert told(CHECK, launch("ms-swift", "3.4.1", **settings)) == []
