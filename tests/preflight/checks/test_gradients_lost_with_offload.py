"""Offload with accumulation."""

from __future__ import annotations

from tests.preflight.launches import judged, launch

CHECK = "gradients-lost-with-offload"


def test_a_deepspeed_file_is_read_too() -> None:
    config = {"zero_optimization.stage": 3, "zero_optimization.offload_optimizer.device": "cpu"}
    assert len(judged(CHECK, launch(gradient_accumulation_steps=4, zero=config))) == 1
    assert judged(CHECK, launch(gradient_accumulation_steps=1, zero=config)) == []
    assert (
        judged(
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
    assert len(judged(CHECK, launch("ms-swift", "3.4.1", offload_optimizer=True, **settings))) == 1
    assert judged(CHECK, launch("ms-swift", "3.4.1", **settings)) == []


def test_the_version_is_named_where_it_is_no_verdict() -> None:
    settings = {"deepspeed": "zero3_offload", "gradient_accumulation_steps": 8}
    (problem,) = judged(CHECK, launch("ms-swift", packages={"deepspeed": "0.16.9"}, **settings))
    assert "8 accumulated steps, DeepSpeed 0.16.9: such runs were reported" in problem.message
