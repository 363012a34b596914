"""Mixtures of experts, and what replays their routing."""

from __future__ import annotations

import pytest

from tests.preflight.launches import judged, launch

CHECK = "routing-not-replayed"
SWIFT = {"model": "Qwen/Qwen3-30B-A3B-Instruct-2507", "expert_model_parallel_size": 8}
NEMO = {"policy__model_name": "moonshotai/Moonlight-16B-A3B", "policy__megatron_cfg__enabled": True}
VERL = {"actor_rollout_ref__actor__strategy": "megatron"}


def says(framework: str, **settings: object) -> bool:
    return bool(judged(CHECK, launch(framework, None, **settings)))


def test_off_by_default_and_by_word() -> None:
    assert says("ms-swift", **SWIFT)
    assert says("ms-swift", **SWIFT, router_replay_mode="disabled")
    assert says("nemo-rl", **NEMO)
    assert says("slime", hf_checkpoint="/root/Qwen3-30B-A3B")


def test_on() -> None:
    assert not says("ms-swift", **SWIFT, router_replay_mode="R3")
    assert not says("nemo-rl", **NEMO, policy__router_replay__enabled=True)
    assert not says("slime", hf_checkpoint="/root/Qwen3-30B-A3B", use_routing_replay=True)


def test_where_megatron_does_not_train_it_cannot_be_switched_on() -> None:
    model = {"actor_rollout_ref__model__path": "Qwen/Qwen3-30B-A3B"}
    assert not says("verl", **model)
    assert not says("verl", **model, actor_rollout_ref__actor__strategy="fsdp")
    assert not says("ms-swift", model="Qwen/Qwen3-30B-A3B")
    assert not says("trl", model_name_or_path="Qwen/Qwen3-30B-A3B")


@pytest.mark.parametrize(
    ("model", "mixture"),
    [
        ("Qwen/Qwen3-235B-A22B", True),
        ("deepseek-ai/DeepSeek-V3-0324", True),
        ("openai/gpt-oss-20b", True),
        ("mistralai/Mixtral-8x7B-v0.1", True),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", False),
        ("Qwen/Qwen3-30B", False),
        ("Qwen/Qwen2.5-7B-A1", False),
        (None, False),
    ],
)
def test_names(model: str | None, *, mixture: bool) -> None:
    known = {} if model is None else {"actor_rollout_ref__model__path": model}
    assert says("verl", **VERL, **known) is mixture
