"""The rules of the frameworks that count for themselves."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_watch.engine.records import Scalar
from grpo_watch.preflight.assess import assess
from grpo_watch.preflight.findings import MISSING, exit_code
from tests.preflight.launches import judged, launch

CHECK = "framework-constraint"


ACTOR, ROLLOUT = "actor_rollout_ref__actor__", "actor_rollout_ref__rollout__"
MICRO = {f"{ACTOR}ppo_micro_batch_size_per_gpu": 4, f"{ROLLOUT}log_prob_micro_batch_size_per_gpu": 4}
MINI = "actor_rollout_ref.actor.ppo_mini_batch_size"
PER_GPU = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"


def texts(framework: str, version: str, world_size: int | None = None, **settings: Any) -> list[str]:
    return [problem.says for problem in judged(CHECK, launch(framework, version, world_size, **settings))]


def test_verl_spreads_over_the_devices() -> None:
    """100 prompts x 1 over 8 devices: 100 % 8 = 4."""
    settings: dict[str, Any] = {"data__train_batch_size": 100, f"{ACTOR}ppo_mini_batch_size": 96, **MICRO}
    assert texts("verl", "0.9.0", **settings) == [
        "real_train_batch_size (100) must be divisible by minimal possible batch size (8)"
    ]
    assert texts("verl", "0.9.0", trainer__n_gpus_per_node=4, **settings) == []
    assert texts("verl", "0.9.0", actor_rollout_ref__actor__use_dynamic_bsz=True, **settings) == []


def test_verl_wants_a_micro_batch() -> None:
    assert "Please set at least one of" in texts("verl", "0.9.0")[0]


def test_verl_on_megatron() -> None:
    """8 devices do not split into 3 x 1 x 1."""
    settings: dict[str, Any] = {
        f"{ACTOR}strategy": "megatron",
        f"{ACTOR}megatron__tensor_model_parallel_size": 3,
        **MICRO,
    }
    assert texts("verl", "0.9.0", **settings) == [
        "n_gpus (8) must be divisible by model_parallel_size (3) times context_parallel_size (1)"
    ]


def test_openrlhf_compares_groups() -> None:
    """By the dotted names of 0.11 and by the flat ones before."""
    for names in (
        {"algo__advantage__estimator": "group_norm"},
        {"advantage_estimator": "group_norm", "n_samples_per_prompt": 1},
    ):
        assert texts("openrlhf", "0.11.0", **names) == ["group_norm requires n_samples_per_prompt > 1"]
    assert texts("openrlhf", "0.11.0", algo__advantage__estimator="group_norm", rollout__n_samples_per_prompt=8) == []


def test_openrlhf_needs_a_batch_for_every_actor() -> None:
    """4 prompts x 1 in batches of 1 are fewer than 8 actors."""
    assert "effective number of actor processes" in texts("openrlhf", "0.11.0", rollout__batch_size=4)[0]


def test_nemo_skips_a_reference_that_it_needs() -> None:
    assert (
        "requires loss_fn.reference_policy_kl_penalty == 0"
        in texts("nemo-rl", "0.7.0", grpo__skip_reference_policy_logprobs_calculation=True)[0]
    )


def test_megatron_spreads_prompts_in_whole_micro_batches() -> None:
    """64 / 8 = 8 prompts over 4 copies: 2 each, in micro-batches of 4."""
    settings = {"global_batch_size": 64, "num_generations": 8, "micro_batch_size": 4}
    assert "Per-device rollout prompt count (2)" in texts("ms-swift-megatron", "4.6.0", 4, **settings)[0]
    assert texts("ms-swift-megatron", "4.6.0", 4, **{**settings, "micro_batch_size": 2}) == []
    assert (
        texts("ms-swift-megatron", "4.6.0", 8, tensor_model_parallel_size=2, **{**settings, "micro_batch_size": 2})
        == []
    )


def test_openrlhf_hands_deepspeed_whole_micro_batches() -> None:
    """100 // 3 // 8 = 4 accumulated: 3 x 4 x 8 = 96. On 3 GPUs 32 are 1 x 10 x 3 and 2 more."""
    settings = {"train__batch_size": 100, "train__micro_batch_size": 3, "actor__num_gpus_per_node": 8}
    text = "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * "
    assert texts("openrlhf", "0.11.0", **settings) == [f"{text}world_size 100 != 3 * 4 * 8"]
    seen = {"train_batch_size": 32, "micro_train_batch_size": 1, "actor_num_gpus_per_node": 3}
    assert texts("openrlhf", "0.10.0", **seen) == [f"{text}world_size 32 != 1 * 10 * 3"]
    assert texts("openrlhf", "0.11.0", **{**settings, "train__batch_size": 96}) == []
    assert texts("openrlhf", "0.11.0", **settings, train__dynamic_batch_enable=True) == []
    few = {**settings, "train__batch_size": 8}
    assert texts("openrlhf", "0.11.0", **few) == ["Gradient accumulation steps: 0 has to be greater than 0"]


def test_openrlhf_on_a_ring() -> None:
    """Rings of 2 make 4 copies of 8 processes: 96 = 3 x 8 x 4, which DeepSpeed sees as 192 = 3 x 8 x 8."""
    settings = {"train__batch_size": 96, "train__micro_batch_size": 3, "ds__ring_attn_size": 2}
    assert texts("openrlhf", "0.11.0", **settings) == []
    assert "192 != 5 * 4 * 8" in texts("openrlhf", "0.11.0", **{**settings, "train__micro_batch_size": 5})[0]


def test_openrlhf_without_a_micro_batch() -> None:
    """4 before 0.11: 100 // 4 // 8 = 3, 4 x 3 x 8 = 96. What 0.11 takes is not judged."""
    assert "100 != 4 * 3 * 8" in texts("openrlhf", "0.10.0", train_batch_size=100)[0]
    assert texts("openrlhf", "0.11.0", train__batch_size=100) == []


def test_nemo_trains_on_whole_batches() -> None:
    """32 x 16 = 512 completions are no whole optimizer steps of 500."""
    assert texts("nemo-rl", "0.7.0", policy__train_global_batch_size=500) == [
        "Total batch size (512) is not a multiple of batch_size (500)"
    ]
    assert texts("nemo-rl", "0.7.0", policy__train_global_batch_size=256) == []


def test_nemo_shares_a_batch_among_copies() -> None:
    """12 GPUs as 6 copies: 512 % 6 = 2. 8 GPUs as 4: 128 each, no multiple of 3 unless batches go by tokens."""
    split = {"policy__dtensor_cfg__tensor_parallel_size": 2, "cluster__gpus_per_node": 12}
    assert texts("nemo-rl", "0.7.0", **split) == ["Batch size (512) is not a multiple of shards (6)"]
    assert texts("nemo-rl", "0.7.0", **split, policy__generation__colocated__enabled=False) == []
    three = {**split, "cluster__gpus_per_node": 8, "policy__train_micro_batch_size": 3}
    plain = {"policy__sequence_packing__enabled": False, "policy__dynamic_batching__enabled": False}
    assert texts("nemo-rl", "0.7.0", **three, **plain) == [
        "Data dict size (128) is not a multiple of the provided microbatch size (3)"
    ]
    assert texts("nemo-rl", "0.7.0", **three) == []
    megatron = {"policy__megatron_cfg__enabled": True, "policy__megatron_cfg__tensor_model_parallel_size": 4}
    assert texts("nemo-rl", "0.7.0", cluster__gpus_per_node=12, **megatron) == [
        "Batch size (512) is not a multiple of shards (3)"
    ]


def test_deepspeed_s_numbers_are_the_trainer_s() -> None:
    """4 and 8 in the file, 8 and 2 among the arguments; 4 x 2 processes x 8 = 64."""
    given = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8, "train_batch_size": 64}
    arguments = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
    (problem,) = judged(CHECK, launch("trl", "1.16.0", 2, zero=given, **arguments))
    assert problem.where == "ds.json"
    assert problem.says == (
        "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: "
        "- ds gradient_accumulation_steps=8 vs hf gradient_accumulation_steps=2 "
        "- ds train_micro_batch_size_per_gpu=4 vs hf per_device_train_batch_size=8 "
        "- ds train_batch_size=64 vs hf train_batch_size (calculated)=32"
    )
    same = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8}
    assert judged(CHECK, launch("trl", "1.16.0", 2, zero=given, **same)) == []
    assert judged(CHECK, launch("trl", "1.16.0", 2, zero=dict.fromkeys(given, "auto"), **arguments)) == []


def test_sizes_found_by_trial_are_not_compared() -> None:
    """transformers replaces them."""
    given: dict[str, Scalar] = {"train_micro_batch_size_per_gpu": 4}
    assert judged(CHECK, launch("trl", "1.8.0", auto_find_batch_size=True, zero=given)) == []
    assert len(judged(CHECK, launch("trl", "1.8.0", zero=given))) == 1


LOG_PROBS = "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"
WHOLE: dict[str, Scalar] = {LOG_PROBS: 4, MINI: 64, PER_GPU: 4, "actor_rollout_ref.rollout.n": 8}
UNREADABLE: list[tuple[str, dict[str, Scalar], str]] = [
    ("verl", {"data.train_batch_size": None, **WHOLE}, "data.train_batch_size"),
    ("verl", {"trainer.total_epochs": None, **WHOLE}, "trainer.total_epochs"),
    ("verl", {"trainer.nnodes": None, **WHOLE}, "trainer.nnodes"),
    ("openrlhf", {"n_samples_per_prompt": None, "advantage_estimator": "group_norm"}, "n_samples_per_prompt"),
    (
        "openrlhf",
        {"rollout.n_samples_per_prompt": 2, "rollout.batch_size": 2, "actor.num_gpus_per_node": None},
        "actor.num_gpus_per_node",
    ),
    (
        "nemo-rl",
        {"grpo.num_prompts_per_step": None, "loss_fn.force_on_policy_ratio": True},
        "grpo.num_prompts_per_step",
    ),
    ("nemo-rl", {"grpo.max_num_epochs": None}, "grpo.max_num_epochs"),
    ("ms-swift-megatron", {"global_batch_size": None, "num_generations": 8}, "global_batch_size"),
    ("ms-swift-megatron", {"tensor_model_parallel_size": None, "num_train_epochs": 1}, "tensor_model_parallel_size"),
]


@pytest.mark.parametrize(("framework", "settings", "name"), UNREADABLE)
def test_what_could_not_be_read_is_no_one(framework: str, settings: dict[str, Scalar], name: str) -> None:
    """``train_batch_size=$BATCH`` is neither 1 nor the default: no rule, no step, and the answer asks for it."""
    world = 8 if framework == "ms-swift-megatron" else None
    asked = launch(framework, None, world, 5000, **settings)
    assert judged(CHECK, asked) == []
    found = assess(asked)
    assert found.prediction is None
    assert [line for line in found.missing if line.startswith(f"{name} could not be read (train.sh:3)")]
    assert exit_code(found) == MISSING


@pytest.mark.parametrize("value", [0, "abc", 1_048_576.5])
def test_what_is_no_count_is_asked_about(value: Scalar) -> None:
    found = assess(launch("nemo-rl", "0.7.0", None, 100, policy__train_global_batch_size=value))
    assert f"policy.train_global_batch_size is {value}, not a positive whole number (train.sh:3)" in found.missing
    assert found.prediction is None


def test_two_numbers_of_processes_are_one_too_many() -> None:
    """8 x 1 in verl's settings, 48 given: which of them the run will have is not known."""
    found = assess(launch("verl", "0.9.0", 48, 5000, trainer__n_gpus_per_node=8))
    assert (
        "trainer.n_gpus_per_node x trainer.nnodes is 8, and the number of processes 48: correct one of them"
        in found.missing
    )
    assert found.prediction is None


def test_named_devices_stand_in_for_unreadable_ones() -> None:
    """trainer.nnodes=$NODES with --world-size 16: 100 completions do not spread over 16."""
    settings: dict[str, Scalar] = {"data.train_batch_size": 100, MINI: 100, PER_GPU: 4, "trainer.nnodes": None}
    assert "minimal possible batch size (16)" in texts("verl", "0.9.0", 16, **settings)[0]
