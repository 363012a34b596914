"""axolotl's own batch rules, applied before TRL's: they ignore the processes, then require a group for each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from grpo_watch.frameworks.launch_rules import LaunchBatch, Refusal, RefusalKind, RefusalStage
from grpo_watch.frameworks.launches import LaunchSettings, at_least
from grpo_watch.frameworks.trl.launch import RULES

SINCE = "1.5"
"""TRL's version in axolotl 0.17, the oldest whose rules were read; older ones get TRL's rules only."""
ALONE = "With num_generations=1, every group has zero advantage and the policy never updates."


def _own(batch: LaunchBatch) -> Iterator[Refusal]:
    """The first reason of axolotl to refuse; none if it leaves the group's size to TRL."""
    if batch.num_generations == batch.ungiven_group or not at_least(batch.version, SINCE):
        return
    size = batch.generation_batch_size or batch.per_device_train_batch_size * batch.gradient_accumulation_steps
    wanted = batch.num_generations * batch.world_size
    if batch.num_generations < 2:  # noqa: PLR2004  a group of one has nothing to compare
        text = f"GRPO requires `trl.num_generations >= 2` (got {batch.num_generations}). {ALONE}"
        yield Refusal(RefusalKind.GROUP_SIZE, RefusalStage.ARGUMENTS, text)
    elif size % batch.num_generations:
        yield Refusal(RefusalKind.GROUPS, RefusalStage.ARGUMENTS, _not_whole(batch, size), _factors(batch))
    elif batch.world_size > 1 and size < wanted:
        text = f"GRPO with world_size={batch.world_size} requires effective_gbs >= num_generations * world_size = "
        text += f"{wanted}, got {size}. Increase gradient_accumulation_steps or micro_batch_size."
        yield Refusal(RefusalKind.PROCESS_GROUPS, RefusalStage.ARGUMENTS, text, _factors(batch))


def _factors(batch: LaunchBatch) -> tuple[tuple[str, int], ...]:
    """The factors that axolotl multiplies, by TRL's names."""
    if batch.generation_batch_size:
        return (("generation_batch_size", batch.generation_batch_size),)
    return (
        ("per_device_train_batch_size", batch.per_device_train_batch_size),
        ("gradient_accumulation_steps", batch.gradient_accumulation_steps),
    )


def _not_whole(batch: LaunchBatch, size: int) -> str:
    group, each, steps = batch.num_generations, batch.per_device_train_batch_size, batch.gradient_accumulation_steps
    text = f"GRPO: generation batch size must be divisible by `trl.num_generations`. Got effective_gbs={size} (from "
    if batch.generation_batch_size:
        return f"{text}trl.generation_batch_size) and num_generations={group}."
    whole = math.lcm(group, each)
    text += f"micro_batch_size ({each}) * gradient_accumulation_steps ({steps})) and "
    text += f"num_generations={group}. Smallest fix: set `gradient_accumulation_steps: "
    return f"{text}{whole // each}` (so micro_batch_size * GA = {whole} is a multiple of {group})."


def _training_rows(settings: LaunchSettings, rows: int) -> int:
    """Rows left for training; ``val_set_size`` is a share or a number."""
    share = settings.number("val_set_size") or 0
    return rows - (int(share) if share >= 1 else math.ceil(rows * share))


LAUNCHES = {
    "axolotl": replace(
        RULES, refusals=lambda batch: chain(_own(batch), RULES.refusals(batch)), training_rows=_training_rows
    )
}
