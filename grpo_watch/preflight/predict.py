"""Predicts the run of a launch: steps, completions, tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from grpo_watch.frameworks.launch_rules import LaunchBatch, OnTrainer, Prediction, batch_of, refusals, rules_of
from grpo_watch.frameworks.launches import LaunchSettings


def predict(settings: LaunchSettings) -> Prediction | None:
    """The predicted run; None if the framework would refuse it, or too little is known."""
    rules = rules_of(settings)
    found = _on_trainer(settings) if isinstance(rules, OnTrainer) else rules.predict(settings)
    return None if found is None else _with_tokens(settings, found)


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
    """Steps that the run really makes: fewer than the total if more rows are counted than drawn."""
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


def _with_tokens(settings: LaunchSettings, found: Prediction) -> Prediction:
    length = settings.whole(settings.name_of("completion_length"))
    prompt = settings.whole(settings.name_of("prompt_length"))
    if found.completions is None or not length:
        return found
    return replace(found, tokens=found.completions * (length + (prompt or 0)))
