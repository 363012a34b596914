"""Every advisory with one configuration that it fires on and one that it does not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from grpo_watch.advisories.entries import CLAUSE, advisories, own_settings, packages
from grpo_watch.advisories.judge import VERSION_OF, Match, Setup, judge_by
from grpo_watch.engine.expression import RAW
from grpo_watch.engine.metric_names import SETTINGS
from grpo_watch.engine.records import Scalar, Setting

ADVISORIES = {advisory.id: advisory for advisory in advisories()}
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
ASYNC, MEGATRON = "grpo.async_grpo", "policy.megatron_cfg"
TABLE: tuple[tuple[str, str, dict[str, Scalar], dict[str, Scalar]], ...] = (
    ("GW-2025-0001", "0.14.0", {"world_size": 8}, {"world_size": 1}),
    (
        "GW-2025-0002",
        "0.15.2",
        {"adapter": True, "gradient_checkpointing": True},
        {"adapter": True, "gradient_checkpointing": True, "gradient_checkpointing_kwargs.use_reentrant": False},
    ),
    (
        "GW-2025-0003",
        "0.27.0",
        {"use_vllm": True, "vllm_enable_sleep_mode": True, "vllm_mode": "colocate"},
        {"use_vllm": True, "vllm_enable_sleep_mode": True, "vllm_mode": "server"},
    ),
    ("GW-2025-0004", "0.15.2", {"temperature": 0.7}, {"temperature": 1.0}),
    ("GW-2025-0005", "0.22.1", {"num_generations": 8}, {"num_generations": 1}),
    (
        "GW-2026-0006",
        "1.9.0",
        {"steps_per_generation": 4, "gradient_accumulation_steps": 2},
        {"steps_per_generation": 4, "gradient_accumulation_steps": 2, "loss_type": "bnpo"},
    ),
    (
        "GW-2026-0007",
        "0.28.0",
        {"use_liger_kernel": True, "max_tool_calling_iterations": 5},
        {"use_liger_kernel": True},
    ),
    (
        "GW-2026-0008",
        "1.8.0",
        {"mask_truncated_completions": True},
        {"mask_truncated_completions": True, "loss_type": "grpo"},
    ),
    (
        "GW-2025-0009",
        "0.20.0",
        {"world_size": 2, "top_entropy_quantile": 0.2},
        {"world_size": 2, "top_entropy_quantile": 1.0},
    ),
    ("GW-2026-0010", "0.27.2", {"use_vllm": True, "off_policy_mask_threshold": 0.5}, {"use_vllm": True}),
    ("GW-2026-0011", "0.29.1", {"max_tool_calling_iterations": 3}, {}),
    (
        "GW-2025-0012",
        "0.23.1",
        {"use_vllm": True, "vllm_mode": "colocate", "temperature": 0.6},
        {"use_vllm": True, "vllm_mode": "colocate", "temperature": 1.0},
    ),
    ("GW-2025-0101", "3.2.0", {"use_vllm": True, "num_infer_workers": 2}, {"use_vllm": True, "num_infer_workers": 1}),
    ("GW-2025-0102", "3.5.1", {"use_vllm": True, "vllm_mode": "colocate"}, {"use_vllm": True, "vllm_mode": "server"}),
    ("GW-2026-0103", "3.9.1", {"use_vllm": True, "vllm_mode": "server"}, {"use_vllm": True, "vllm_mode": "colocate"}),
    ("GW-2025-0104", "3.11.1", {"vllm_sleep_level": 2}, {"vllm_sleep_level": 1}),
    (
        "GW-2025-0105",
        "3.5.3",
        {"steps_per_generation": 3, "gradient_accumulation_steps": 4},
        {"steps_per_generation": 2, "gradient_accumulation_steps": 4},
    ),
    (
        "GW-2026-0106",
        "4.3.1",
        {"use_vllm": True, "vllm_mode": "server", "adapter": True, "vllm_enable_lora": True},
        {"use_vllm": True, "vllm_mode": "server", "adapter": True, "vllm_enable_lora": False},
    ),
    (
        "GW-2026-0107",
        "4.5.3",
        {"loss_type": "dapo", "gradient_accumulation_steps": 4},
        {"loss_type": "grpo", "gradient_accumulation_steps": 4},
    ),
    ("GW-2026-0108", "4.0.2", {"micro_batch_size": 1, "global_batch_size": 64}, {}),
    (
        "GW-2026-0109",
        "4.1.2",
        {"vllm_mode": "server", "micro_batch_size": 1, "tensor_model_parallel_size": 4, "world_size": 16},
        {"vllm_mode": "server", "micro_batch_size": 1, "tensor_model_parallel_size": 4, "world_size": 8},
    ),
    ("GW-2025-0201", "0.18.2", {"deepspeed_stage": 2}, {"deepspeed_stage": 3}),
    (
        "GW-2026-0202",
        "0.16.9",
        {"deepspeed_stage": 2, "offload_optimizer": "cpu", "gradient_accumulation_steps": 8},
        {"deepspeed_stage": 2, "offload_optimizer": "cpu", "gradient_accumulation_steps": 2},
    ),
    ("GW-2025-0203", "0.17.4", {"deepspeed_stage": 2}, {"deepspeed_stage": 3}),
    ("GW-2026-0204", "0.18.4", {"deepspeed": "zero0", "deepspeed_stage": 0}, {"deepspeed": "", "deepspeed_stage": 0}),
    (
        "GW-2025-0301",
        "0.6.1",
        {f"{ROLLOUT}.mode": "async", f"{ROLLOUT}.free_cache_engine": False},
        {f"{ROLLOUT}.mode": "async", f"{ROLLOUT}.free_cache_engine": True},
    ),
    (
        "GW-2025-0302",
        "0.5.0",
        {f"{ACTOR}.strategy": "megatron", "temperature": 0.9},
        {f"{ACTOR}.strategy": "fsdp", "temperature": 0.9},
    ),
    (
        "GW-2025-0303",
        "0.4.1",
        {f"{ACTOR}.strategy": "megatron", f"{ROLLOUT}.multi_turn.enable": True},
        {f"{ACTOR}.strategy": "megatron", f"{ROLLOUT}.multi_turn.enable": False},
    ),
    (
        "GW-2026-0304",
        "0.8.0",
        {f"{ACTOR}.strategy": "megatron", f"{ACTOR}.megatron.context_parallel_size": 2},
        {f"{ACTOR}.strategy": "megatron", f"{ACTOR}.megatron.context_parallel_size": 1},
    ),
    (
        "GW-2025-0305",
        "0.7.1",
        {"actor_rollout_ref.model.use_fused_kernels": True, f"{ACTOR}.ulysses_sequence_parallel_size": 2},
        {"actor_rollout_ref.model.use_fused_kernels": True, f"{ACTOR}.ulysses_sequence_parallel_size": 1},
    ),
    ("GW-2026-0401", "0.10.0", {"dynamic_filtering": True}, {"dynamic_filtering": False}),
    (
        "GW-2026-0402",
        "0.10.4",
        {"algo.advantage.estimator": "dr_grpo", "num_generations": 1},
        {"algo.advantage.estimator": "dr_grpo", "num_generations": 8},
    ),
    ("GW-2025-0403", "0.8.8", {"policy_loss_type": "gspo"}, {"policy_loss_type": "ppo"}),
    ("GW-2025-0501", "0.3.1", {"temperature": 0.8}, {"temperature": 1.0}),
    (
        "GW-2026-0502",
        "0.7.0",
        {"grpo.normalize_rewards": True, "grpo.use_leave_one_out_baseline": True},
        {"grpo.normalize_rewards": True, "grpo.use_leave_one_out_baseline": False},
    ),
    (
        "GW-2026-0503",
        "0.6.0",
        {f"{ASYNC}.enabled": True, f"{ASYNC}.recompute_kv_cache_after_weight_updates": True},
        {
            f"{ASYNC}.enabled": True,
            f"{ASYNC}.recompute_kv_cache_after_weight_updates": True,
            f"{ASYNC}.in_flight_weight_updates": True,
        },
    ),
    (
        "GW-2026-0504",
        "0.7.0",
        {f"{ASYNC}.enabled": True, f"{ASYNC}.recompute_kv_cache_after_weight_updates": False},
        {f"{ASYNC}.enabled": False},
    ),
    (
        "GW-2026-0505",
        "0.5.0",
        {f"{MEGATRON}.enabled": True, f"{MEGATRON}.optimizer.optimizer_cpu_offload": True},
        {f"{MEGATRON}.enabled": True, f"{MEGATRON}.optimizer.optimizer_cpu_offload": False},
    ),
    (
        "GW-2026-0506",
        "0.7.0",
        {"loss_fn.positive_example_nll_weight": 0.1},
        {"loss_fn.positive_example_nll_weight": 0.0},
    ),
    (
        "GW-2026-0507",
        "0.6.0",
        {"grpo.use_dynamic_sampling": True, "grpo.reward_shaping.enabled": True},
        {"grpo.use_dynamic_sampling": True, "grpo.reward_shaping.enabled": False},
    ),
    ("GW-2026-0601", "2026.7.1", {"loss_type": "vespo"}, {"loss_type": "dapo"}),
    (
        "GW-2026-0602",
        "2026.6.7",
        {"use_vllm": True, "vllm_importance_sampling_mode": "sequence_mask"},
        {"use_vllm": True, "vllm_importance_sampling_mode": "token_truncate"},
    ),
    (
        "GW-2026-0701",
        "0.3.0",
        {"normalize_advantages": True, "context_parallel_size": 2},
        {"normalize_advantages": True, "context_parallel_size": 1},
    ),
    ("GW-2026-0702", "0.3.1", {"eps_clip_c": 3.0}, {}),
    (
        "GW-2026-0703",
        "0.2.1",
        {"advantage_estimator": "reinforce_plus_plus", "kl_coef": 0.01},
        {"advantage_estimator": "grpo", "kl_coef": 0.01},
    ),
    ("GW-2025-0704", "0.2.0", {"calculate_per_token_loss": True}, {"calculate_per_token_loss": False}),
    ("GW-2026-0705", "0.2.3", {"lr_decay_style": "cosine", "load": "ckpt"}, {"load": "ckpt"}),
    (
        "GW-2026-0801",
        "0.1.0",
        {"trainer.algorithm.use_kl_loss": True, "beta": 0.001},
        {"trainer.algorithm.use_kl_loss": False, "beta": 0.001},
    ),
    ("GW-2026-0802", "0.1.0", {"generator.step_wise_trajectories": True}, {"generator.step_wise_trajectories": False}),
    (
        "GW-2026-0803",
        "0.1.0",
        {"trainer.algorithm.loss_reduction": "token_mean"},
        {"trainer.algorithm.loss_reduction": "sequence_mean"},
    ),
    (
        "GW-2026-0804",
        "0.2.0",
        {"trainer.fully_async.max_staleness_steps": 4, "trainer.algorithm.policy_loss_type": "regular"},
        {"trainer.fully_async.max_staleness_steps": 4, "trainer.algorithm.policy_loss_type": "rollout_is"},
    ),
    ("GW-2026-0901", "0.3.0", {"num_generations": 16}, {"num_generations": 1}),
    ("GW-2026-0902", "0.5.0", {"world_size": 8}, {"world_size": 1}),
    ("GW-2026-0903", "0.4.1", {"trainer.loss.type": "custom"}, {"trainer.loss.type": "default"}),
    ("GW-2025-1001", "0.8.4", {"vllm_sleep_level": 2}, {"vllm_sleep_level": 1}),
)
"""Id, an affected version, settings that meet the condition, settings that do not."""


def match_of(name: str, version: str | None, settings: Mapping[str, Scalar], *, complete: bool = True) -> Match | None:
    advisory = ADVISORIES[name]
    given = {key if key in SETTINGS else f"raw:{key}": Setting(value, "test") for key, value in settings.items()}
    if version is not None:
        given[f"{VERSION_OF}{advisory.package}"] = Setting(version, "pip freeze")
    framework = advisory.frameworks[0] if advisory.frameworks else "trl"
    return judge_by(advisory, Setup(framework, given, complete))


def test_every_advisory_has_its_line() -> None:
    assert [name for name, *_ in TABLE] == sorted(ADVISORIES, key=[name for name, *_ in TABLE].index)


@pytest.mark.parametrize(("name", "version", "fires", "quiet"), TABLE, ids=[name for name, *_ in TABLE])
def test_condition(name: str, version: str, fires: dict[str, Scalar], quiet: dict[str, Scalar]) -> None:
    """It fires on one configuration and stays quiet on the other, in the same version."""
    found = match_of(name, version, fires)
    assert found is not None
    assert found.applies
    assert match_of(name, version, quiet) is None


@pytest.mark.parametrize(("name", "version", "fires"), [row[:3] for row in TABLE], ids=[name for name, *_ in TABLE])
def test_versions(name: str, version: str, fires: dict[str, Scalar]) -> None:
    """The first release outside the range is quiet; without a version, or of a commit, it is open."""
    bounds = dict(CLAUSE.findall(ADVISORIES[name].affected))
    if "<" in bounds:
        fixed = bounds["<"]
        assert match_of(name, fixed, fires) is None
        early = match_of(name, f"{fixed}.dev0", fires)
        assert early is not None
        assert not early.applies
    for unknown in (None, "main"):
        found = match_of(name, unknown, fires)
        assert found is not None
        assert not found.applies
        assert found.settle == f"pip show {ADVISORIES[name].package}"


@pytest.mark.parametrize(("name", "version"), [row[:2] for row in TABLE], ids=[name for name, *_ in TABLE])
def test_unknown_settings_fire_nothing(name: str, version: str) -> None:
    """Of a run whose settings were not logged, an advisory is open at most."""
    found = match_of(name, version, {}, complete=False)
    assert found is None or not found.applies


def test_the_settings_that_sources_keep_are_those_of_the_conditions() -> None:
    named = {name for advisory in advisories() for name in advisory.condition.names if name.startswith(RAW)}
    assert own_settings() == {name.removeprefix(RAW) for name in named}


def test_each_package_has_a_file_of_its_name() -> None:
    assert {advisory.package for advisory in advisories()} == packages()
