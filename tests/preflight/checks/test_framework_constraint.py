"""The rules of the frameworks that count for themselves."""

from __future__ import annotations

from tests.preflight.launches import launch, told

CHECK = "framework-constraint"


ACTOR, ROLLOUT = "actor_rollout_ref__actor__", "actor_rollout_ref__rollout__"
MICRO = {f"{ACTOR}ppo_micro_batch_size_per_gpu": 4}


def said(*args: object, **settings: object) -> list[str]:
    return [problem.says for problem in told(CHECK, launch(*args, **settings))]


def test_verl_spreads_over_the_devices() -> None:
    """100 prompts x 1 over 8 devices: 100 % 8 = 4."""
    settings = {"data__train_batch_size": 100, f"{ACTOR}ppo_mini_batch_size": 100, **MICRO}
    assert said("verl", "0.9.0", **settings) == [
        "real_train_batch_size (100) must be divisible by minimal possible batch size (8)"
    ]
    assert said("verl", "0.9.0", trainer__n_gpus_per_node=4, **settings) == []
    assert said("verl", "0.9.0", actor_rollout_ref__actor__use_dynamic_bsz=True, **settings) == []


def test_verl_wants_a_micro_batch() -> None:
    assert "Please set at least one of" in said("verl", "0.9.0")[0]


def test_verl_on_megatron() -> None:
    """8 devices do not split into 3 x 1 x 1."""
    settings = {f"{ACTOR}strategy": "megatron", f"{ACTOR}megatron__tensor_model_parallel_size": 3, **MICRO}
    assert said("verl", "0.9.0", **settings) == [
        "n_gpus (8) must be divisible by model_parallel_size (3) times context_parallel_size (1)"
    ]


def test_openrlhf_compares_groups() -> None:
    """By the dotted names of 0.11 and by the flat ones before."""
    for names in (
        {"algo__advantage__estimator": "group_norm"},
        {"advantage_estimator": "group_norm", "n_samples_per_prompt": 1},
    ):
        assert said("openrlhf", "0.11.0", **names) == ["group_norm requires n_samples_per_prompt > 1"]
    assert said("openrlhf", "0.11.0", algo__advantage__estimator="group_norm", rollout__n_samples_per_prompt=8) == []


def test_openrlhf_needs_a_batch_for_every_actor() -> None:
    """4 prompts x 1 in batches of 1 are fewer than 8 actors."""
    assert "effective number of actor processes" in said("openrlhf", "0.11.0", rollout__batch_size=4)[0]


def test_nemo_skips_a_reference_that_it_needs() -> None:
    assert (
        "requires loss_fn.reference_policy_kl_penalty == 0"
        in said("nemo-rl", "0.7.0", grpo__skip_reference_policy_logprobs_calculation=True)[0]
    )


def test_megatron_spreads_prompts_in_whole_micro_batches() -> None:
    """64 / 8 = 8 prompts over 4 copies: 2 each, in micro-batches of 4."""
    settings = {"global_batch_size": 64, "num_generations": 8, "micro_batch_size": 4}
    assert "Per-device rollout prompt count (2)" in said("ms-swift-megatron", "4.6.0", 4, **settings)[0]
    assert said("ms-swift-megatron", "4.6.0", 4, **{**settings, "micro_batch_size": 2}) == []
    assert (
        said("ms-swift-megatron", "4.6.0", 8, tensor_model_parallel_size=2, **{**settings, "micro_batch_size": 2}) == []
    )
