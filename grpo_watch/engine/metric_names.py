"""Canonical metric and setting names: the one list for data files, detectors, the exporter and the docs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

METRICS: Mapping[str, str] = MappingProxyType(
    {
        "reward_mean": "Mean total reward of the generation batch.",
        "reward_group_std": "Standard deviation of the reward inside a group, averaged over groups.",
        "reward_batch_std": "Standard deviation of the reward over the whole generation batch.",
        "reward_zero_std_ratio": "Share of groups whose rewards are all equal (no learning signal).",
        "reward_function_mean": "Mean of one reward function.",
        "reward_function_std": "Standard deviation of one reward function over the whole batch.",
        "eval_score": "Mean score of an evaluation on held-out data, by what is scored (label function).",
        "kl_reference": "KL of the policy to the reference model.",
        "kl_policy_update": "KL of the policy to the policy that generated (old policy).",
        "logprob_gap_rollout": "Mean absolute log-probability gap between trainer and rollout engine.",
        "importance_ratio_rollout": "Mean importance ratio between trainer and rollout engine.",
        "probability_gap_rollout": "Mean absolute token-probability gap between trainer and rollout engine.",
        "probability_error_rollout": "Mean multiplicative token-probability error of the rollout engine (1: no error).",
        "kl_rollout": "KL between trainer and rollout engine (k3 estimator, never negative).",
        "chi2_rollout": "Chi-squared divergence between trainer and rollout engine, per token.",
        "effective_sample_rollout": "Effective sample size of the importance weights, as a share (1: no loss).",
        "sample_staleness_steps": "Policy updates since a sample was generated, averaged over the batch.",
        "tool_failure_ratio": "Share of tool calls, or of an agent's rollouts, that failed.",
        "tool_calls_mean": "Tool calls per completion.",
        "turns_mean": "Turns per completion.",
        "reward_failures": "Reward computations that the log says failed and counted as 0, since the row before.",
        "tool_errors": "Tool calls that the log says failed, since the row before.",
        "policy_clip_ratio": "Share of tokens whose importance ratio was clipped.",
        "policy_clip_low_ratio": "Share of tokens clipped at the lower bound.",
        "policy_clip_high_ratio": "Share of tokens clipped at the upper bound.",
        "advantage_max": "Largest advantage of the batch.",
        "advantage_min": "Smallest advantage of the batch.",
        "completion_length_mean": "Mean completion length in tokens.",
        "completion_length_min": "Shortest completion in tokens.",
        "completion_length_max": "Longest completion in tokens.",
        "completion_truncated_ratio": "Share of completions truncated at the length limit.",
        "prompt_truncated_ratio": "Share of prompts truncated at the prompt limit.",
        "completion_duplicate_ratio": "Share of completions that duplicate another one of their group.",
        "entropy": "Mean token entropy of the training policy.",
        "grad_norm": "Gradient norm before clipping, at the last optimizer step of the logging interval.",
        "learning_rate": "Learning rate applied at this step.",
        "loss": "Logged loss (near 0 is normal for on-policy GRPO).",
        "step_seconds": "Seconds per optimizer step.",
        "step_seconds_average": "Seconds per optimizer step, averaged since the start of this attempt.",
        "memory_gib": "Accelerator memory in GiB.",
        "tokens_seen": "Tokens processed so far.",
        "epoch": "Passes over the dataset.",
        "parameters_changed_ratio": "Share of tensors whose checksum changed since the previous checkpoint or probe.",
    }
)

LABELLED = frozenset({"reward_function_mean", "reward_function_std", "eval_score"})
"""Metrics with one label (``function``)."""

MAX_FUNCTIONS = 512
"""Most reward functions read per channel. Runs have up to a few dozen; keys that hold a step or an id make a new name
on every row, and each costs about 1 KB for as long as the run is watched."""

SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "beta": "weight of the KL to the reference in the loss (0: no reference model)",
        "kl_implies_beta": "true where the framework logs a KL only if beta is not 0",
        "num_generations": "completions per prompt (G)",
        "per_device_train_batch_size": "completions per device and micro-step",
        "gradient_accumulation_steps": "micro-steps per optimizer step",
        "steps_per_generation": "micro-steps fed by one generation batch",
        "generation_batch_size": "completions per generation batch",
        "num_iterations": "passes over one generation batch",
        "world_size": "number of training processes",
        "max_steps": "optimizer steps requested, regardless of the dataset size",
        "most_steps": "optimizer steps after which the run ends, if the dataset gives more",
        "steps_printed": "optimizer steps that the trainer says it will make",
        "steps_counted": "true where rows name no step and are counted instead",
        "prompts_per_step": "prompts of one step, where a framework counts in prompts",
        "parallel_tool_calls": "tool calls that one turn may make (taken as 1 where not known)",
        "prompts_drawn": "prompts drawn for one step, where others are drawn than trained on",
        "dataset_size": "training prompts of the dataset (after split and filters; where no log prints it: --set)",
        "rows_before_filter": "rows of the dataset read last, before prompts were filtered",
        "rows_after_filter": "rows that the filter left of it",
        "num_train_epochs": "passes over the dataset planned",
        "logging_steps": "optimizer steps per logged row",
        "save_steps": "optimizer steps per checkpoint",
        "eval_steps": "optimizer steps per evaluation",
        "learning_rate": "peak learning rate",
        "warmup_steps": "warm-up in optimizer steps",
        "warmup_ratio": "warm-up as a share of max_steps",
        "lr_scheduler_type": "learning-rate schedule",
        "max_completion_length": "length limit in tokens",
        "max_prompt_length": "length limit of prompts in tokens",
        "prompt_truncation": "where prompts beyond their limit are cut (error: nowhere, the run ends)",
        "prompts_filtered": "whether prompts beyond their limit are left out before training",
        "temperature": "sampling temperature",
        "model_temperature": "temperature of the model's own generation_config, where it is another",
        "top_p": "share of the probability that is sampled from",
        "top_k": "tokens that are sampled from (0 or -1: all)",
        "do_sample": "whether tokens are drawn rather than the likeliest taken",
        "request_seed": "random seed of every single request to the engine",
        "reward_weights": "weight of each reward function in the total, in order (default: all 1)",
        "scale_rewards": "how advantages are scaled (group, batch, none)",
        "leave_one_out": "whether the baseline of a completion is the mean of the others of its group",
        "log_completions": "whether completions are dumped",
        "sync_ref_model": "whether the reference is synced to the policy on purpose",
        "adapter": "true when an adapter is trained instead of the full model",
        "adapter_init": "how the adapter was initialised (pissa, olora, loftq … start non-zero)",
        "adapter_continued": "true when training continues from an existing adapter",
        "weight_decay": "AdamW weight decay",
        "max_grad_norm": "norm to which gradients are clipped",
        "deepspeed_stage": "DeepSpeed ZeRO stage",
        "offload_optimizer": "where optimizer state is offloaded to",
        "gradient_checkpointing": "whether activations are recomputed",
        "use_vllm": "whether vLLM generates",
        "vllm_mode": "colocate or server",
        "vllm_enable_lora": "whether the engine loads the adapter separately instead of merged weights",
        "vllm_sleep_level": "how deep vLLM sleeps while the trainer works (2 discards its weights)",
        "model": "base model name or path",
        "dtype": "weight data type",
        "fp16": "whether the loss is scaled for float16 gradients",
        "seed": "random seed",
        "rank_seeds": "whether the training processes began with one random seed (same, different)",
        "dynamic_sample": "whether groups without spread are re-sampled",
        "mask_truncated_completions": "whether truncated completions are left out of the loss",
        "rollout_bypass": "whether the engine's log-probabilities replace those of the old policy",
        "max_staleness": "policy updates that a sample may be old when it is trained on",
        "peft_type": "adapter type (LORA, …)",
    }
)


def labelled(metric: str, label: str) -> str:
    """The key of a labelled metric, e.g. ``reward_function_mean[accuracy]``."""
    return f"{metric}[{label}]"


def split_label(key: str) -> tuple[str, str | None]:
    """The metric and label of a key made by ``labelled``; the label is None for plain metrics."""
    if key.endswith("]"):
        metric, _, label = key[:-1].partition("[")
        return metric, label
    return key, None


def prometheus_name(metric: str) -> str:
    """``grpo_`` + canonical name, always."""
    return f"grpo_{metric}"
