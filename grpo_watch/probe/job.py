"""The training process's description of itself: its rank, seed, settings and sampling."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable
from typing import Any

SETTINGS = frozenset(
    {"beta", "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps"}
    | {"steps_per_generation", "generation_batch_size", "num_iterations", "world_size", "max_steps"}
    | {"num_train_epochs", "logging_steps", "save_steps", "learning_rate", "warmup_steps", "warmup_ratio"}
    | {"lr_scheduler_type", "max_completion_length", "temperature", "scale_rewards", "log_completions"}
    | {"sync_ref_model", "weight_decay", "gradient_checkpointing", "use_vllm", "vllm_mode", "fp16", "seed"}
    | {"mask_truncated_completions"}
)
"""Arguments that are written; no others are, so that no secret can leak."""
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "do_sample")
TRAINERS_OWN = frozenset({"do_sample"})
"""Off in most models' settings, but every trainer switches it on to generate."""
SEED = "seed"
"""Of a request: with equal seeds, engines draw the same texts."""
PLAIN = (bool, int, float, str)


def torch_of_job() -> Any:
    """The torch module, if the job has imported it.

    Raises:
        RuntimeError: the job has not imported torch, so there is nothing to read.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        raise RuntimeError("this process has not imported torch")
    return torch


def rank_and_ranks() -> tuple[int, int]:
    """This process's rank and the number of processes, by torch.distributed or else the launcher's variables."""
    torch = sys.modules.get("torch")
    group = getattr(torch, "distributed", None)
    if group is not None and group.is_available() and group.is_initialized():
        return int(group.get_rank()), int(group.get_world_size())
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def settings(arguments: Any) -> dict[str, Any]:
    """A trainer's known arguments with a plain value, and the list of its reward weights."""
    found, weights = _plain(arguments, SETTINGS), getattr(arguments, "reward_weights", None)
    if isinstance(weights, (list, tuple)) and all(isinstance(weight, (int, float)) for weight in weights):
        found["reward_weights"] = list(weights)
    return found


def sampling(model: Any, arguments: Any, trainer: Any = None) -> dict[str, Any]:
    """The sampling settings by name; each source below overrides those before it.

    The model's own generation settings, the trainer's arguments with ``generation_kwargs`` (TRL), and the request that
    ms-swift's trainer builds from them. ``model_`` marks differing settings of the model: transformers 4.50 and later
    may use them instead of a trainer's value that is the library's default (trl#5783).
    """
    own = _plain(getattr(model, "generation_config", None), set(SAMPLING) - TRAINERS_OWN)
    found = {**own, **_plain(arguments, SAMPLING)}
    more = getattr(arguments, "generation_kwargs", None)
    if isinstance(more, dict):
        found.update({name: more[name] for name in (*SAMPLING, SEED) if isinstance(more.get(name), PLAIN)})
    found.update(_plain(getattr(trainer, "request_config", None), (*SAMPLING, SEED)))
    return found | {f"model_{name}": value for name, value in own.items() if found[name] != value}


def framework(arguments: Any) -> str | None:
    """The framework of these arguments; None if others have replaced TRL's class (Unsloth, open-r1)."""
    modules = [kind.__module__.partition(".")[0] for kind in type(arguments).__mro__]
    if "swift" in modules:
        return "ms-swift"
    return "trl" if modules[0] == "trl" and "Unsloth" not in type(arguments).__name__ else None


def _plain(source: Any, names: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        value = getattr(source, name, None)
        value = getattr(value, "value", value)  # a string enumeration
        if isinstance(value, PLAIN) and (not isinstance(value, float) or math.isfinite(value)):  # JSON has no others
            found[name] = value
    return found
