"""Checks the type and range of a run's settings as a user gave them: numbers, and true or false."""

from __future__ import annotations

import math

from grpo_watch.engine.records import Scalar
from grpo_watch.engine.reward_functions import weights_in

NUMBERS = frozenset(
    {"beta", "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"}
    | {"generation_batch_size", "num_iterations", "world_size", "max_steps", "num_train_epochs", "logging_steps"}
    | {"save_steps", "eval_steps", "learning_rate", "warmup_steps", "warmup_ratio", "max_completion_length"}
    | {"temperature", "weight_decay", "deepspeed_stage", "seed", "dataset_size", "prompts_per_step", "prompts_drawn"}
    | {"most_steps", "steps_printed", "model_temperature", "top_p", "top_k", "request_seed"}
)
BOOLEANS = frozenset(
    {"kl_implies_beta", "log_completions", "sync_ref_model", "adapter", "adapter_continued", "gradient_checkpointing"}
    | {"use_vllm", "vllm_enable_lora", "dynamic_sample", "mask_truncated_completions", "do_sample"}
)
LEAST = {"num_generations": 1}


def wrong_value(name: str, value: Scalar) -> str | None:
    """What is wrong with a setting's value (``beta: 'abc' is not a number``); None when it can be used.

    Texts that spell a number or a boolean count as such; None (not known) is never wrong.
    """
    if value is None:
        return None
    if name in BOOLEANS and str(value).lower() not in {"true", "false"}:
        return f"{name}: {value!r} is not true or false"
    if name in NUMBERS:
        least = LEAST.get(name, 0)
        number = _number(value)
        if number is None or not math.isfinite(number):
            return f"{name}: {value!r} is not a number"
        if number < least:
            return f"{name}: {value!r} is below {least}"
    if name == "reward_weights" and not weights_in(value):
        return f"{name}: {value!r} is not a list of numbers, one per reward function (e.g. 1 -0.5 0)"
    return None


def _number(value: Scalar) -> float | None:
    try:
        return None if isinstance(value, bool) or value is None else float(value)
    except (ValueError, OverflowError):
        return None
