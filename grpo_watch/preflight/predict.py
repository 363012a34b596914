"""Turns a launch into the run it would be: steps, completions, tokens, hours, and how many groups teach nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from grpo_watch.frameworks.launch_batch import LaunchBatch, OnTrainer, batch_of, refusals, rules_of
from grpo_watch.frameworks.launch_rules import Prediction
from grpo_watch.frameworks.launches import LaunchSettings

LARGEST_GROUP = 1024
"""Beyond this no group is proposed: the pass rate has to change."""


def predict(settings: LaunchSettings) -> Prediction | None:
    """The run in numbers; None where the framework would not train, or too little is known to say anything."""
    rules = rules_of(settings)
    found = _on_trainer(settings) if isinstance(rules, OnTrainer) else rules.predict(settings)
    return None if found is None else _with_cost(settings, found)


def _on_trainer(settings: LaunchSettings) -> Prediction | None:
    batch = batch_of(settings)
    if batch is None or refusals(batch):
        return None
    per_generation = batch.optimizer_steps_per_generation
    total = batch.steps_set or batch.max_steps
    reached = _reached(batch, total)
    return Prediction(
        max_steps=total,
        steps_per_epoch=batch.steps_per_epoch,
        completions_per_step=batch.completions_per_step,
        prompts_per_step=batch.completions_per_step / batch.num_generations,
        generation_batch_size=batch.completions,
        optimizer_steps_per_generation=per_generation,
        formula=_formula(batch, total),
        completions=None if reached is None else math.ceil(reached / per_generation) * batch.completions,
        notes=tuple(_notes(settings, batch, total, reached)),
    )


def _reached(batch: LaunchBatch, total: int | None) -> int | None:
    """Steps that the run really makes: fewer than the total where more rows are counted than drawn."""
    if total is None or batch.steps_set is not None:
        return total
    full, rest = divmod(batch.drawn, batch.gradient_accumulation_steps)
    return min(total, math.ceil(batch.num_train_epochs) * (full + (rest > 0)))


def _formula(batch: LaunchBatch, total: int | None) -> str:
    if batch.steps_set is not None:
        return f"max_steps = {batch.steps_set}, as set"
    return "" if total is None else f"{batch.formula} = {total}"


def _notes(settings: LaunchSettings, batch: LaunchBatch, total: int | None, reached: int | None) -> Iterator[str]:
    if batch.configured_per_device is not None:
        set_to = batch.configured_per_device
        yield f"Unsloth trains with {batch.per_device_train_batch_size} per device, not with the {set_to} that is set"
    if total is not None and reached is not None and reached < total:
        yield (
            f"{batch.framework} {batch.version} counts an incomplete generation batch that it does not draw: "
            f"the bar says {total}, the run ends at about {reached}"
        )
    if settings.flag("dynamic_sample"):
        yield "dynamic sampling draws prompts again for groups without spread: more completions than are counted here"


def _with_cost(settings: LaunchSettings, found: Prediction) -> Prediction:
    """The same with tokens, time and dead groups, as far as ``seconds_per_step`` and ``pass_rate`` are given."""
    length = settings.whole(settings.name_of("completion_length"))
    prompt = settings.whole(settings.name_of("prompt_length"))
    tokens = None if found.completions is None or not length else found.completions * (length + (prompt or 0))
    pace = settings.number("seconds_per_step")
    seconds = None if pace is None or found.max_steps is None else pace * found.max_steps
    world = settings.world_size
    return replace(
        found,
        tokens=tokens,
        seconds=seconds,
        gpu_hours=None if seconds is None or world is None else seconds * world / 3600,
        **_dead(settings),
    )


def _dead(settings: LaunchSettings) -> dict[str, Any]:
    """The share of dead groups at the expected pass rate, and the group that the wanted share needs."""
    rate, wanted = settings.number("pass_rate"), settings.number("dead_share")
    group = settings.whole(settings.name_of("group"))
    if rate is None or not 0 <= rate <= 1 or group is None or group < 1:
        return {}
    return {
        "dead_group_share": dead_share(rate, group),
        "group_size_needed": None if wanted is None else group_for(rate, wanted),
    }


def dead_share(pass_rate: float, group: int) -> float:
    """Share of groups whose answers are all right or all wrong, for rewards of 0 and 1 and independent answers.

    The chance that all of ``group`` answers pass or all fail, ``p^G + (1-p)^G``. Prompts differ in difficulty, which
    makes the true share higher: this is a lower bound for a mean pass rate.
    """
    return min(1.0, pass_rate**group + (1 - pass_rate) ** group)


def group_for(pass_rate: float, share: float) -> int | None:
    """The smallest group with at most ``share`` dead groups; None where none up to ``LARGEST_GROUP`` has."""
    return next((group for group in range(2, LARGEST_GROUP + 1) if dead_share(pass_rate, group) <= share), None)
