"""TRL: its divisibility rules by version."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from grpo_watch.frameworks.launch_rules import LaunchBatch, OnTrainer, Refusal, RefusalKind, RefusalStage
from grpo_watch.frameworks.launches import at_least

Rules: TypeAlias = Callable[[LaunchBatch], Iterator[Refusal]]
BOTH = "'generation_batch_size' and 'steps_per_generation' can not be both configured at the same time"


def whole_global(batch: LaunchBatch) -> Iterator[Refusal]:
    """TRL 0.15 and 0.16: accumulation does not count; one generation is never among the valid values."""
    stage, parts = RefusalStage.TRAINER, (batch.world_size, batch.per_device_train_batch_size)
    yield from _old(batch, RefusalKind.GROUPS, stage, "global train", parts, "train")
    yield from _old_evaluation(batch, stage, "global eval", "eval")


def effective(batch: LaunchBatch) -> Iterator[Refusal]:
    """TRL 0.17: accumulation counts, and one generation has a text of its own."""
    stage = RefusalStage.TRAINER
    parts = (batch.world_size, batch.per_device_train_batch_size, batch.gradient_accumulation_steps)
    yield from _two_at_least(batch, stage)
    yield from _old(batch, RefusalKind.GROUPS, stage, "effective train", parts)
    yield from _old_evaluation(batch, stage, "effective eval")


def mixed(batch: LaunchBatch, *, careless: bool) -> Iterator[Refusal]:
    """TRL 0.18 and 0.19: steps_per_generation counts.

    ``careless`` versions (0.18.0 to 0.19.0, ms-swift 3.5) test ``generation_batch_size % per_device * processes``,
    which is only the remainder by the per-device batch: a batch that is no multiple of the global one gets through.
    """
    stage = RefusalStage.ARGUMENTS
    if batch.generation_batch_size and batch.steps_per_generation:
        yield Refusal(RefusalKind.BOTH_SET, stage, BOTH)
        return
    size = batch.completions
    if size % (batch.per_device_train_batch_size if careless else batch.global_batch):
        yield not_a_multiple(batch)
    yield from _two_at_least(batch, stage)
    if not _whole_groups(size, batch.num_generations):
        parts = (batch.world_size, batch.per_device_train_batch_size, size // batch.global_batch)
        text = _old_text("effective train", "effective train", parts, batch.num_generations)
        yield Refusal(RefusalKind.GROUPS, stage, text)
    yield from _old_evaluation(batch, stage, "global eval")


def modern(batch: LaunchBatch, *, evaluation: str) -> Iterator[Refusal]:
    """TRL 0.20 on; ``evaluation``: unchecked, by the ``same`` group size or by its ``own`` (num_generations_eval)."""
    if batch.generation_batch_size and batch.steps_per_generation:
        yield Refusal(RefusalKind.BOTH_SET, RefusalStage.ARGUMENTS, BOTH)
        return
    size = batch.completions
    if size % batch.global_batch:
        yield not_a_multiple(batch)
    group = (batch.num_generations_eval if evaluation == "own" else None) or batch.num_generations
    if evaluation and batch.evaluates and batch.per_device_eval_batch_size * batch.world_size % group:
        by = f"the number of generations used for evaluation ({group})"
        by = by if evaluation == "own" else f"num_generations ({group})"
        whole = f"({batch.per_device_eval_batch_size} * {batch.world_size})"
        yield Refusal(
            RefusalKind.EVAL_GROUPS,
            RefusalStage.ARGUMENTS,
            f"The global eval batch size {whole} must be divisible by {by}.",
        )
    if size % batch.num_generations:
        text = f"generation_batch_size ({size}) must be divisible by num_generations ({batch.num_generations})."
        yield Refusal(RefusalKind.GROUPS, RefusalStage.ARGUMENTS, text)
    yield from _two_at_least(batch, RefusalStage.ARGUMENTS)


def _two_at_least(batch: LaunchBatch, stage: RefusalStage) -> Iterator[Refusal]:
    if batch.num_generations < 2:  # noqa: PLR2004  a group of one has nothing to compare
        text = (
            "GRPO requires at least 2 generations per prompt to calculate the advantages. You provided "
            f"{batch.num_generations}, which is less than the minimum required."
        )
        yield Refusal(RefusalKind.GROUP_SIZE, stage, text)


def not_a_multiple(batch: LaunchBatch) -> Refusal:
    """A refusal: the generation batch is no multiple of the global batch."""
    text = f"generation_batch_size ({batch.completions}) must be divisible by the global batch size "
    return Refusal(RefusalKind.GLOBAL_BATCH, RefusalStage.ARGUMENTS, f"{text}({batch.global_batch}).")


def _old(
    batch: LaunchBatch, kind: RefusalKind, stage: RefusalStage, what: str, parts: tuple[int, ...], current: str = ""
) -> Iterator[Refusal]:
    """The rule of TRL before 0.20 for a batch that is the product of ``parts``."""
    if not _whole_groups(math.prod(parts), batch.num_generations):
        yield Refusal(kind, stage, _old_text(what, current or what, parts, batch.num_generations))


def _old_evaluation(batch: LaunchBatch, stage: RefusalStage, what: str, current: str = "") -> Iterator[Refusal]:
    if batch.evaluates:
        parts = (batch.world_size, batch.per_device_eval_batch_size)
        yield from _old(batch, RefusalKind.EVAL_GROUPS, stage, what, parts, current)


def _whole_groups(size: int, group: int) -> bool:
    """TRL's old test: the group size is one of the divisors from 2 on."""
    return group > 1 and size % group == 0


def _old_text(what: str, current: str, parts: tuple[int, ...], group: int) -> str:
    return (
        f"The {what} batch size ({' x '.join(map(str, parts))}) must be evenly divisible by the number of generations "
        f"per prompt ({group}). Given the current {current} batch size, the valid values for the number of generations "
        f"are: {divisors(math.prod(parts), 2)}."
    )


def divisors(size: int, first: int) -> list[int]:
    """The divisors of a number from ``first`` on."""
    return [value for value in range(first, size + 1) if size % value == 0]


def by_version(table: Sequence[tuple[str, Rules]], batch: LaunchBatch) -> Iterator[Refusal]:
    """Refusals by the rules of the batch's version; a table begins with the newest."""
    rules = next((rules for since, rules in table if at_least(batch.version, since)), None)
    if rules is not None:
        yield from rules(batch)


TABLE: Sequence[tuple[str, Rules]] = (
    ("0.26", partial(modern, evaluation="own")),
    ("0.22", partial(modern, evaluation="same")),
    ("0.20", partial(modern, evaluation="")),
    ("0.19.1", partial(mixed, careless=False)),
    ("0.18", partial(mixed, careless=True)),
    ("0.17", effective),
    ("0.15", whole_global),
)
"""The rules from each version on, newest first; 0.14 had none."""
RULES = OnTrainer(partial(by_version, TABLE), "0.17")
LAUNCHES = {"trl": RULES}
