"""ms-swift: its divisibility rules by version, its evaluation rows, and the arithmetic of its Megatron trainer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from grpo_watch.frameworks.launch_rules import (
    BrokenConstraint,
    LaunchBatch,
    OnTrainer,
    OwnArithmetic,
    Prediction,
    Refusal,
    RefusalKind,
    RefusalStage,
)
from grpo_watch.frameworks.launches import LaunchSettings, at_least
from grpo_watch.frameworks.trl.launch import (
    Rules,
    by_version,
    divisors,
    effective,
    mixed,
    modern,
    not_a_multiple,
    whole_global,
)

WHEN = "when the arguments are parsed, on all ranks"
SPLIT = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
BATCH = ("global_batch_size", "micro_batch_size", "num_generations", "generation_batch_size", "steps_per_generation")


def _unknown(settings: LaunchSettings) -> Iterator[str]:
    if not settings.world_size:
        yield "the number of processes is not known (--world-size)"


def _generation(settings: LaunchSettings) -> tuple[int, int]:
    """Completions and optimizer steps per generation."""
    each = settings.product("global_batch_size")
    size = settings.whole("generation_batch_size")
    steps = settings.whole("steps_per_generation") or (size // each if size else 1)
    return size or each * steps, steps


def _copies(settings: LaunchSettings) -> int | None:
    """Copies of the model that share the batch; None if the number of processes is unknown."""
    world = settings.world_size
    return None if world is None else world // settings.product(*SPLIT)


def _broken(settings: LaunchSettings) -> Iterator[BrokenConstraint]:
    """Every rule that the settings break, in ms-swift's order."""
    each, group = settings.product("global_batch_size"), settings.product("num_generations")
    size, steps = settings.whole("generation_batch_size"), settings.whole("steps_per_generation")
    both = ("generation_batch_size", "steps_per_generation", "global_batch_size")
    if size and steps:
        if not at_least(settings.version, "4.2"):
            text = "'generation_batch_size' and 'steps_per_generation' cannot be both configured"
            yield BrokenConstraint(text, WHEN, "leave one of the two out", both)
        elif size != each * steps:
            text = f"generation_batch_size ({size}) must equal global_batch_size ({each}) * steps_per_generation "
            yield BrokenConstraint(f"{text}({steps}) = {each * steps}.", WHEN, "leave one of the two out", both)
    elif size and size % each:
        text = f"generation_batch_size ({size}) must be divisible by global_batch_size ({each})"
        yield BrokenConstraint(text, WHEN, "make generation_batch_size a multiple of global_batch_size", both)
    size, _ = _generation(settings)
    if group > 1 and size % group and at_least(settings.version, "4.2"):
        text = f"generation_batch_size ({size}) must be divisible by num_generations ({group})."
        yield BrokenConstraint(
            text, WHEN, "make global_batch_size a multiple of num_generations", ("num_generations", *both)
        )
    yield from _spread(settings, size // group)


def _spread(settings: LaunchSettings, prompts: int) -> Iterator[BrokenConstraint]:
    """Broken if the prompts of one generation don't spread over the model's copies in whole micro-batches."""
    copies, micro = _copies(settings), settings.product("micro_batch_size")
    names = ("global_batch_size", "num_generations", "micro_batch_size")
    if not copies:
        return
    if prompts % copies or prompts < copies:
        text = f"num_rollout_prompt ({prompts}) must be divisible by dp_size ({copies})."
        yield BrokenConstraint(
            text, WHEN, f"make generation_batch_size / num_generations a multiple of {copies}", names
        )
    elif prompts // copies % micro:
        text = f"Per-device rollout prompt count ({prompts // copies}) must be divisible by micro_batch_size ({micro})."
        yield BrokenConstraint(text, WHEN, "lower micro_batch_size, or raise global_batch_size", names)


def _run(settings: LaunchSettings) -> Prediction | None:
    """Iterations: whole batches of prompts over the copies, times the group, over the global batch."""
    copies = _copies(settings)
    if not copies:
        return None
    each, group = settings.product("global_batch_size"), settings.product("num_generations")
    size, steps = _generation(settings)
    rows, ratio = settings.dataset_size, settings.number("split_dataset_ratio") or 0
    if rows is not None and ratio > 0:
        rows -= max(int(rows * ratio), 1)
    epochs = settings.number("num_train_epochs")
    micro = settings.product("micro_batch_size")
    whole = None if rows is None else rows // (micro * copies) * micro * copies
    total = settings.whole("train_iters")
    formula = "" if total is None else f"train_iters = {total}, as set"
    per_epoch = None if whole is None else whole * group // each
    if whole is not None and epochs:
        total = int(whole * group * epochs // each)
        formula = (
            f"floor(floor({rows} prompts / ({micro} micro-batch x {copies} copies)) x {micro * copies} x {group} "
            f"generations x {epochs:g} epochs / {each} global batch) = {total}"
        )
    return Prediction(
        max_steps=total,
        steps_per_epoch=per_epoch,
        completions_per_step=each,
        prompts_per_step=each / group,
        generation_batch_size=size,
        optimizer_steps_per_generation=steps,
        formula=formula,
        completions=None if total is None else total * each,
    )


MEGATRON = OwnArithmetic(
    _broken,
    _run,
    counts=(*BATCH, *SPLIT, "train_iters"),
    words=("num_train_epochs", "split_dataset_ratio"),
    unknown=_unknown,
)


def _swift(batch: LaunchBatch) -> Iterator[Refusal]:
    """ms-swift 4.2 on: both generation settings may be given if they agree."""
    if batch.num_generations < 2:  # noqa: PLR2004  a group of one has nothing to compare
        yield Refusal(RefusalKind.GROUP_SIZE, RefusalStage.ARGUMENTS, "num_generations must be greater than 1 for GRPO")
        return
    size = batch.completions
    expected = batch.global_batch * (batch.steps_per_generation or 0)
    if batch.steps_per_generation and size != expected:
        text = f"generation_batch_size ({size}) must equal per_device_train_batch_size * world_size * "
        yield Refusal(RefusalKind.UNEQUAL, RefusalStage.ARGUMENTS, f"{text}steps_per_generation = {expected}.")
        return
    if size % batch.global_batch:
        yield not_a_multiple(batch)
    if size % batch.num_generations:
        text = f"generation_batch_size ({size}) must be evenly divisible by num_generations ({batch.num_generations}). "
        yield Refusal(RefusalKind.GROUPS, RefusalStage.ARGUMENTS, f"{text}Valid values: {divisors(size, 2)}.")
    group, each = batch.num_generations_eval or batch.num_generations, batch.per_device_eval_batch_size
    evaluated = each * batch.world_size
    if batch.evaluates and evaluated % group:
        text = f"The global eval batch size ({batch.world_size} x {each}) must be evenly divisible by "
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
    """Rows left for training: ``max(int(rows x ratio), 1)`` are split off unless it has other or no evaluation data."""
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
"""The rules from each version on, newest first."""
LAUNCHES = {
    "ms-swift": OnTrainer(
        partial(by_version, TABLE),
        "3.4",
        evaluates=_evaluates,
        training_rows=_training_rows,
        lacking=_lacking,
    ),
    "ms-swift-megatron": MEGATRON,
}
