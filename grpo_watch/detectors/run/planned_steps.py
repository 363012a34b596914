"""Turns what is known of a run into the plan of its steps, or into what has to be said before there can be one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from grpo_watch.detectors.shared.batch_plan import BatchPlan, PromptPlan, release, style_of
from grpo_watch.engine.detector import NotApplicable, RunView

Plan: TypeAlias = BatchPlan | PromptPlan

_ON_HF: tuple[str, ...] = (
    "dataset_size",
    "per_device_train_batch_size",
    "num_generations",
    "gradient_accumulation_steps",
)
_ON_HF += ("world_size", "num_train_epochs")
NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("trl", "ms-swift", "unsloth", "axolotl", "open-r1"), _ON_HF),
        "verl": ("dataset_size", "prompts_per_step", "num_train_epochs"),
        "nemo-rl": ("dataset_size", "prompts_per_step", "num_train_epochs"),
    }
)
"""Settings without which the steps can't be counted, by framework: the Hugging Face trainer's, and those in prompts."""
DRAWS_WHAT_IT_TRAINS = (0, 9)
"""From here on verl counts its train_batch_size, before it gen_batch_size where that is set."""


def why_not(run: RunView) -> str | None:
    """Why the run's steps can't be predicted; None where they can."""
    if (run.number("max_steps") or 0) > 0:
        return NotApplicable("max_steps is set, so the dataset does not decide the total")
    needed = NEEDED.get(run.framework or "")
    if needed is None:
        unlogged = run.framework == "openrlhf"
        return (
            "OpenRLHF logs no total of steps"
            if unlogged
            else NotApplicable("how this framework counts steps is unknown")
        )
    lacking = [name for name in needed if run.number(name) is None]
    if lacking:
        return f"set {', '.join(lacking)} (--set {lacking[0]}=…) to have the total number of steps checked"
    return _undecided(run)


def _undecided(run: RunView) -> str | None:
    """What makes the total hang on more than the settings."""
    if run.setting("dynamic_sample"):
        return "dynamic sampling draws prompts as it needs them"
    if run.framework == "verl" and run.version is None and _draws_others(run):
        return "data.gen_batch_size is set, and whether it counts depends on verl's version, which is unknown"
    return None


def plan_of(run: RunView) -> Plan:
    """The plan of a run that ``why_not`` says nothing against."""
    if run.framework == "verl":
        drawn = _draws_others(run) and release(run.version or "") < DRAWS_WHAT_IT_TRAINS
        prompts = _whole(run, "prompts_drawn" if drawn else "prompts_per_step")
        return PromptPlan(_whole(run, "dataset_size"), prompts, _whole(run, "num_train_epochs"))
    if run.framework == "nemo-rl":
        most = run.number("most_steps")
        prompts, epochs = _whole(run, "prompts_per_step"), _whole(run, "num_train_epochs")
        return PromptPlan(_whole(run, "dataset_size"), prompts, epochs, None if most is None else int(most))
    return BatchPlan(
        dataset_size=_whole(run, "dataset_size"),
        per_device_train_batch_size=_whole(run, "per_device_train_batch_size"),
        num_generations=_whole(run, "num_generations"),
        world_size=_whole(run, "world_size"),
        gradient_accumulation_steps=_whole(run, "gradient_accumulation_steps"),
        steps_per_generation=_whole(run, "steps_per_generation", 0) or None,
        generation_batch_size=_whole(run, "generation_batch_size", 0) or None,
        num_iterations=_whole(run, "num_iterations"),
        num_train_epochs=run.number("num_train_epochs") or 1.0,
        style=style_of(run.framework or "", None if run.framework == "unsloth" else run.version),
    )


def predicted_max_steps(run: RunView) -> int | None:
    """The number of steps that the run's settings give; None where they don't decide it, or not even one fits."""
    return plan_of(run).max_steps if why_not(run) is None else None


def _draws_others(run: RunView) -> bool:
    """Whether verl is configured to draw another number of prompts than it trains on."""
    drawn = run.number("prompts_drawn")
    return drawn is not None and drawn >= 1 and drawn != run.number("prompts_per_step")


def _whole(run: RunView, name: str, default: int = 1) -> int:
    value = run.number(name)
    return default if value is None or value < 1 else int(value)
