"""ms-swift: its divisibility rules by version and its evaluation rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from grpo_watch.detectors.shared.batch_plan import MODERN, StepFormula
from grpo_watch.frameworks.launch_batch import LaunchBatch, OnTrainer
from grpo_watch.frameworks.launch_rules import Refusal, RefusalKind, RefusalStage
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.frameworks.trl.launch import (
    OLD,
    Rules,
    by_version,
    divisors,
    effective,
    mixed,
    modern,
    not_a_multiple,
    whole_global,
)

ROUNDINGS = (
    ("ms-swift from 3.6 on", MODERN),
    ("ms-swift 3.1 to 3.5 on transformers from 4.52 on", StepFormula(OLD, drop_last=True)),
    ("ms-swift 3.1 to 3.5 on transformers before 4.52", StepFormula(OLD, drop_last=True, floor=True)),
)


def _swift(batch: LaunchBatch) -> Iterator[Refusal]:
    """ms-swift 4.2 on: both generation settings may be given if they agree."""
    if batch.group < 2:  # noqa: PLR2004  a group of one has nothing to compare
        yield Refusal(RefusalKind.GROUP_SIZE, RefusalStage.ARGUMENTS, "num_generations must be greater than 1 for GRPO")
        return
    size = batch.plan().completions
    expected = batch.global_batch * (batch.steps_per_generation or 0)
    if batch.steps_per_generation and size != expected:
        text = f"generation_batch_size ({size}) must equal per_device_train_batch_size * world_size * "
        yield Refusal(RefusalKind.UNEQUAL, RefusalStage.ARGUMENTS, f"{text}steps_per_generation = {expected}.")
        return
    if size % batch.global_batch:
        yield not_a_multiple(batch)
    if size % batch.group:
        text = f"generation_batch_size ({size}) must be evenly divisible by num_generations ({batch.group}). "
        yield Refusal(RefusalKind.GROUPS, RefusalStage.ARGUMENTS, f"{text}Valid values: {divisors(size, 2)}.")
    group, evaluated = batch.eval_group or batch.group, batch.eval_per_device * batch.world_size
    if batch.evaluates and evaluated % group:
        text = f"The global eval batch size ({batch.world_size} x {batch.eval_per_device}) must be evenly divisible by "
        values = f"num_generations_eval ({group}). Valid values: {divisors(evaluated, 1)}."
        yield Refusal(RefusalKind.EVAL_GROUPS, RefusalStage.ARGUMENTS, text + values)


def _lacking(settings: LaunchSettings) -> Iterator[str]:
    if (settings.number("sequence_parallel_size") or 1) != 1:
        where = settings.where("sequence_parallel_size")
        yield f"sequence_parallel_size lets several processes share one batch, which is not judged ({where})"


def _evaluates(settings: LaunchSettings) -> bool:
    strategy = settings.word("eval_strategy") or settings.word("evaluation_strategy")
    if strategy == "no" or (not strategy and settings.word("save_strategy") == "no"):
        return False
    return settings.given("val_dataset") is not None or (settings.number("split_dataset_ratio") or 0) > 0


def _training_rows(settings: LaunchSettings, rows: int) -> int:
    """``max(int(rows x ratio), 1)`` rows are for evaluation unless it does not evaluate or has a dataset for it."""
    ratio = settings.number("split_dataset_ratio") or 0
    held_out = max(int(rows * ratio), 1) if ratio > 0 and _evaluates(settings) else 0
    return rows if settings.given("val_dataset") is not None else rows - held_out


TABLE: Sequence[tuple[str, Rules]] = (
    ("4.2", _swift),
    ("3.12", partial(modern, evaluation="own")),
    ("3.6", partial(mixed, careless=False)),
    ("3.5", partial(mixed, careless=True)),
    ("3.4", effective),
    ("3.1", whole_global),
)
"""Which rules hold from which version on."""
LAUNCHES = {
    "ms-swift": OnTrainer(
        partial(by_version, TABLE),
        "3.4",
        ROUNDINGS,
        evaluates=_evaluates,
        training_rows=_training_rows,
        lacking=_lacking,
    )
}
