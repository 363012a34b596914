"""Turns the settings of a launch on the Hugging Face trainer into its batch: TRL and those built on it, ms-swift."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from grpo_watch.detectors.shared.batch_plan import BatchPlan, StepFormula, style_of
from grpo_watch.preflight.defaults import LaunchSettings

BATCH_SETTINGS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "generation_batch_size",
    "num_generations",
)
"""The settings that make up the generation batch."""

COUNTING = ("num_train_epochs", "split_dataset_ratio", "val_set_size", "dataloader_drop_last")
"""What decides the number of steps besides the batch and the dataset."""
EVALUATION = ("eval_strategy", "per_device_eval_batch_size", "num_generations_eval", "val_dataset")

SWIFT_ACCUMULATED = 16
"""Before 3.7 ms-swift filled the accumulation up to this many rows per step where it was not given."""


@dataclass(frozen=True, slots=True)
class LaunchBatch:
    """One launch's batch settings with every default filled in.

    ``steps_per_generation`` and ``generation_batch_size`` are None unless given. ``prompts`` are the rows left for
    training, None where the dataset's size is unknown. ``configured_per_device`` is what was asked for where the
    framework silently trains with another value. ``ungiven_group`` is the group's size where that is a default.
    """

    framework: str
    version: str
    style: StepFormula
    world_size: int
    per_device: int
    accumulation: int
    group: int
    steps_per_generation: int | None = None
    generation_batch_size: int | None = None
    iterations: int = 1
    epochs: float = 1.0
    max_steps: int | None = None
    prompts: int | None = None
    evaluates: bool = False
    eval_per_device: int = 8
    eval_group: int | None = None
    configured_per_device: int | None = None
    ungiven_group: int | None = None

    @property
    def global_batch(self) -> int:
        """Rows of one micro-step over all processes."""
        return self.per_device * self.world_size

    def plan(self) -> BatchPlan:
        """The same as the arithmetic of steps takes it; with an unknown dataset, of size 0."""
        return BatchPlan(
            dataset_size=self.prompts or 0,
            per_device_train_batch_size=self.per_device,
            num_generations=self.group,
            world_size=self.world_size,
            gradient_accumulation_steps=self.accumulation,
            steps_per_generation=self.steps_per_generation,
            generation_batch_size=self.generation_batch_size,
            num_iterations=self.iterations,
            num_train_epochs=self.epochs,
            style=self.style,
        )


def lacking(settings: LaunchSettings) -> tuple[str, ...]:
    """What is missing before the batch can be judged, one line each, with values that no trainer accepts."""
    lines = [] if settings.world_size else ["the number of training processes is not known (--world-size)"]
    for name in (*BATCH_SETTINGS, "num_iterations"):
        given = settings.given(name)
        if given is not None and (settings.whole(name) or 0) < 1:
            lines.append(_unusable(settings, name, "not a positive whole number"))
    if settings.flag("auto_find_batch_size"):
        where = settings.where("auto_find_batch_size")
        lines.append(f"auto_find_batch_size changes the per-device batch when memory runs out ({where})")
    if settings.framework == "ms-swift" and (settings.number("sequence_parallel_size") or 1) != 1:
        where = settings.where("sequence_parallel_size")
        lines.append(f"sequence_parallel_size lets several processes share one batch, which is not judged ({where})")
    return tuple(lines)


def uncounted(settings: LaunchSettings) -> tuple[str, ...]:
    """What is missing before steps can be counted, one line each; nothing where max_steps is set."""
    if settings.unreadable("max_steps"):
        return (_unusable(settings, "max_steps"),)
    if (settings.whole("max_steps") or 0) > 0:
        return ()
    lines = [_unusable(settings, name) for name in COUNTING if settings.unreadable(name)]
    epochs = settings.number("num_train_epochs")
    if epochs is not None and not 0 < epochs < math.inf:
        lines.append(_unusable(settings, "num_train_epochs", "not more than 0"))
    if settings.flag("streaming"):
        lines.append(f"a dataset that is streamed has no length: set max_steps ({settings.where('streaming')})")
    return tuple(lines)


def unevaluated(settings: LaunchSettings) -> tuple[str, ...]:
    """What could not be read of the evaluation, one line each."""
    return tuple(_unusable(settings, name) for name in EVALUATION if settings.unreadable(name))


def _unusable(settings: LaunchSettings, name: str, wanted: str = "") -> str:
    value = settings.value(name)
    number = settings.number(name)
    what = (
        "could not be read" if value is None else f"is {number:g}, {wanted}" if number is not None else "is no number"
    )
    return f"{settings.own_name(name)} {what} ({settings.where(name)})"


def batch_of(settings: LaunchSettings) -> LaunchBatch | None:
    """The launch's batch; None where a value that it needs is not known (see ``lacking``)."""
    if lacking(settings) or not settings.world_size:
        return None
    per_device = settings.whole("per_device_train_batch_size") or 1
    batch = LaunchBatch(
        framework=settings.framework,
        version=settings.version,
        style=_style(settings),
        world_size=settings.world_size,
        per_device=per_device,
        accumulation=_accumulation(settings, per_device, settings.world_size),
        group=settings.whole("num_generations") or 1,
        steps_per_generation=settings.whole("steps_per_generation"),
        generation_batch_size=settings.whole("generation_batch_size"),
        iterations=max(settings.whole("num_iterations") or 1, 1),
        epochs=_epochs(settings),
        max_steps=total if (total := settings.whole("max_steps") or 0) > 0 else None,
        prompts=None if uncounted(settings) else training_rows(settings),
        evaluates=evaluates(settings) and not unevaluated(settings),
        eval_per_device=settings.whole("per_device_eval_batch_size") or 8,
        eval_group=settings.whole("num_generations_eval"),
        ungiven_group=settings.whole("num_generations") if settings.given("num_generations") is None else None,
    )
    return _patched_by_unsloth(batch) if settings.framework == "unsloth" else batch


def _style(settings: LaunchSettings) -> StepFormula:
    given = settings.given("transformers_version")
    transformers = None if given is None or given.value is None else str(given.value)
    style = style_of(settings.framework, settings.version, transformers)
    return replace(style, drop_last=style.drop_last or settings.flag("dataloader_drop_last"))


def _epochs(settings: LaunchSettings) -> float:
    epochs = settings.number("num_train_epochs")
    return 1.0 if epochs is None else epochs


def _accumulation(settings: LaunchSettings, per_device: int, world_size: int) -> int:
    """``gradient_accumulation_steps``; DeepSpeed's own number does not change it."""
    given = settings.whole("gradient_accumulation_steps")
    return given or max(1, math.ceil(SWIFT_ACCUMULATED / per_device / world_size))


def _patched_by_unsloth(batch: LaunchBatch) -> LaunchBatch:
    """Unsloth replaces a per-device batch that does not fit by the group's size, and only prints that it did."""
    if batch.global_batch * batch.accumulation % batch.group == 0:
        return batch
    return replace(batch, per_device=batch.group, configured_per_device=batch.per_device)


def evaluates(settings: LaunchSettings) -> bool:
    """Whether the run evaluates while it trains, as far as the settings say."""
    strategy = settings.word("eval_strategy") or settings.word("evaluation_strategy")
    if settings.framework != "ms-swift":
        return strategy not in {"", "no"}
    if strategy == "no" or (not strategy and settings.word("save_strategy") == "no"):
        return False
    return settings.given("val_dataset") is not None or (settings.number("split_dataset_ratio") or 0) > 0


def training_rows(settings: LaunchSettings) -> int | None:
    """Rows left for training once the framework has split off its evaluation rows; None where unknown.

    ms-swift takes ``max(int(rows x ratio), 1)`` rows for evaluation unless it does not evaluate or has a dataset for
    it; axolotl takes ``val_set_size`` as a share or a number.
    """
    rows = settings.dataset_size
    if rows is None:
        return None
    if settings.framework == "ms-swift":
        ratio = settings.number("split_dataset_ratio") or 0
        held_out = max(int(rows * ratio), 1) if ratio > 0 and evaluates(settings) else 0
        return rows if settings.given("val_dataset") is not None else rows - held_out
    if settings.framework == "axolotl":
        share = settings.number("val_set_size") or 0
        return rows - (int(share) if share >= 1 else math.ceil(rows * share))
    return rows
