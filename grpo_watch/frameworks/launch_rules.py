"""The arithmetic of a framework's launches: refusals of a batch, broken rules, and the predicted run.

``OwnArithmetic`` is a framework that counts for itself, ``OnTrainer`` one on the Hugging Face trainer: TRL and those
built on it, ms-swift. The settings of the latter become a ``LaunchBatch``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

from grpo_watch.detectors.shared.batch_plan import BatchPlan, PromptPlan, StepFormula, style_of
from grpo_watch.frameworks.framework_tables import contributions
from grpo_watch.frameworks.launches import LaunchSettings, at_least, launch_facts


class RefusalKind(str, Enum):
    """Kinds of refusals, independent of the wording."""

    GROUP_SIZE = "fewer than two generations per prompt"
    GROUPS = "the generation batch does not hold whole groups"
    PROCESS_GROUPS = "the batch has less than one group for each process"
    EVAL_GROUPS = "the evaluation batch does not hold whole groups"
    GLOBAL_BATCH = "the generation batch is no multiple of the global batch"
    BOTH_SET = "both generation settings are set"
    UNEQUAL = "both generation settings are set and disagree"
    NO_BATCH = "the dataloader gets batches of 0"
    NO_STEPS = "the dataset is smaller than one generation batch"
    NOTHING_DRAWN = "the dataset is smaller than one generation batch, and training ends without a step"


class RefusalStage(str, Enum):
    """When the framework refuses."""

    ARGUMENTS = "when the arguments are parsed"
    TRAINER = "when the trainer is built, after the model was loaded"
    TRAINING = "when training begins, after the model was loaded"
    SILENT = "never"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason why the framework will not train with this batch; ``text`` is its wording.

    ``factors`` are the numbers it multiplies, each with its setting, if they differ from those of the version's rule.
    """

    kind: RefusalKind
    stage: RefusalStage
    text: str
    factors: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BrokenConstraint:
    """One rule that the settings break.

    ``text`` is the framework's message, ``when`` the moment; ``settings`` are the settings to blame, the likeliest
    first; ``fix`` says what must hold. ``unsure`` says why the version in use may not have the rule; empty if it does.
    ``where`` is the place to blame if that is none of the settings.
    """

    text: str
    when: str
    fix: str
    settings: tuple[str, ...]
    unsure: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The run in numbers; None for those whose inputs are missing.

    ``max_steps`` and ``steps_per_epoch`` count the framework's own steps; ``optimizer_steps_per_generation`` how often
    the weights change per generation batch. ``tokens`` is an upper bound (longest prompt and completion). ``notes`` are
    sentences about what the numbers leave out.
    """

    max_steps: int | None = None
    steps_per_epoch: int | None = None
    completions_per_step: int | None = None
    prompts_per_step: float | None = None
    generation_batch_size: int | None = None
    optimizer_steps_per_generation: float | None = None
    formula: str = ""
    completions: int | None = None
    tokens: int | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def in_prompts(
        cls, prompts: int, group: int, updates: float, plan: PromptPlan | None, total: int | None, formula: str = ""
    ) -> Prediction:
        """The run of a framework that counts in prompts.

        Args:
            prompts: per step.
            group: completions per prompt.
            updates: optimizer steps per step.
            plan: the steps by the dataset; None if its size is unknown.
            total: steps of the run, if known.
            formula: used if the plan's formula does not give the total.
        """
        return cls(
            max_steps=total or None,
            steps_per_epoch=None if plan is None else plan.steps_per_epoch,
            completions_per_step=prompts * group,
            prompts_per_step=prompts,
            generation_batch_size=prompts * group,
            optimizer_steps_per_generation=updates,
            formula=formula or ("" if plan is None else f"{plan.formula} = {total or 0}"),
            completions=total * prompts * group if total else None,
        )


@dataclass(frozen=True, slots=True)
class OwnArithmetic:
    """A framework that counts for itself.

    Attributes:
        rules: yields every rule that settings break; called if nothing is lacking.
        run: predicts the run; called if nothing is lacking and no rule is broken.
        counts: settings that must be whole numbers from 1 on.
        words: other settings that rules and run depend on.
        devices: the settings of its GPUs per node and nodes, if it starts its own workers.
        unknown: a line for each other input that is missing.
    """

    rules: Callable[[LaunchSettings], Iterator[BrokenConstraint]]
    run: Callable[[LaunchSettings], Prediction | None]
    counts: Sequence[str]
    words: Sequence[str] = ()
    devices: tuple[str, str] | None = None
    unknown: Callable[[LaunchSettings], Iterator[str]] = lambda _: iter(())

    def lacking(self, settings: LaunchSettings) -> Iterator[str]:
        """One line for each input that must be known before rules or steps can be computed."""
        yield from self.unknown(settings)
        yield from _unread(settings, self.counts, self.words)
        if self.devices is not None:
            yield from _devices_unread(settings, *self.devices)

    def broken(self, settings: LaunchSettings) -> Iterator[BrokenConstraint]:
        """Every rule that the settings break; none if an input is missing (see ``lacking``)."""
        if not any(self.lacking(settings)):
            yield from self.rules(settings)

    def predict(self, settings: LaunchSettings) -> Prediction | None:
        """The run in numbers; None if it would not begin, or if too little is known."""
        return None if any(self.lacking(settings)) or any(self.rules(settings)) else self.run(settings)


def unusable(settings: LaunchSettings, name: str, wanted: str = "") -> str:
    """A line for a setting whose value can't be read, or is not ``wanted``."""
    value = settings.value(name)
    what = "could not be read" if value is None else f"is {value}, not {wanted}"
    return f"{settings.own_name(name)} {what} ({settings.where(name)})"


def _unread(settings: LaunchSettings, counts: Sequence[str], others: Sequence[str] = ()) -> Iterator[str]:
    """One line for each given setting that can't be used."""
    for name in (*counts, *others):
        given = settings.given(name)
        if given is None:
            continue
        if given.value is None or (name in counts and (settings.whole(name) or 0) < 1):
            yield unusable(settings, name, "a positive whole number")


def devices(settings: LaunchSettings, each: str, nodes: str) -> int | None:
    """GPUs by the framework's settings, or by ``--world-size`` if one of them can't be read."""
    if settings.unreadable(each) or settings.unreadable(nodes):
        return settings.world_size
    return _product(settings, each, nodes)


def _devices_unread(settings: LaunchSettings, each: str, nodes: str) -> Iterator[str]:
    """One line if the number of GPUs is unknown, or if two different ones are given."""
    if settings.unreadable(each) or settings.unreadable(nodes):
        if settings.world_size is None:
            yield from (f"{line}; say --world-size" for line in _unread(settings, (), (each, nodes)))
        return
    count, given = _product(settings, each, nodes), settings.world_size
    if count is None:
        yield from _unread(settings, (each, nodes))
    elif given is not None and given != count:
        product = f"{settings.own_name(each)} x {settings.own_name(nodes)} is {count}"
        yield f"{product}, and the number of processes {given}: correct one of them"


def _product(settings: LaunchSettings, each: str, nodes: str) -> int | None:
    per_node, count = settings.whole(each) or 0, settings.whole(nodes) or 0
    return per_node * count if per_node > 0 and count > 0 else None


def _no_rules(settings: LaunchSettings) -> Iterator[str]:
    yield f"how {settings.framework} counts and what it refuses is not known: its batch is not judged"


UNKNOWN = OwnArithmetic(rules=lambda _: iter(()), run=lambda _: None, counts=(), unknown=_no_rules)
"""For a framework whose settings can be read, but which has no ``launch.py``."""

BATCH_SETTINGS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "generation_batch_size",
    "num_generations",
)
"""The settings that determine the generation batch."""

COUNTING = ("num_train_epochs", "split_dataset_ratio", "val_set_size", "dataloader_drop_last")
"""Settings that determine the number of steps besides the batch and the dataset."""
EVALUATION = ("eval_strategy", "per_device_eval_batch_size", "num_generations_eval", "val_dataset")

ACCUMULATED = 16
"""Rows per step up to which the accumulation is filled if it has no default (ms-swift before 3.7)."""

NO_STEPS = "args.max_steps must be set to a positive value if dataloader does not have a length, was -1"


def evaluates_by_strategy(settings: LaunchSettings) -> bool:
    """Whether the run evaluates while it trains, as the Hugging Face trainer decides it."""
    return (settings.word("eval_strategy") or settings.word("evaluation_strategy")) not in {"", "no"}


@dataclass(frozen=True, slots=True)
class OnTrainer:
    """A framework whose steps the Hugging Face trainer counts.

    Attributes:
        refusals: its reasons to refuse a batch when arguments are parsed or the trainer is built, in its order.
        accumulation_counts_since: the version from which accumulated rows belong to a generation batch.
        evaluates: whether the run evaluates while it trains.
        training_rows: the dataset's rows left once rows for evaluation are split off.
        lacking: lines for its own settings that can't be judged.
    """

    refusals: Callable[[LaunchBatch], Iterator[Refusal]]
    accumulation_counts_since: str
    evaluates: Callable[[LaunchSettings], bool] = evaluates_by_strategy
    training_rows: Callable[[LaunchSettings, int], int] = lambda _, rows: rows
    lacking: Callable[[LaunchSettings], Iterator[str]] = lambda _: iter(())


LaunchRules: TypeAlias = OwnArithmetic | OnTrainer


@lru_cache(maxsize=1)
def launch_rules() -> Mapping[str, LaunchRules]:
    """The rules and arithmetic of each framework: ``LAUNCHES`` of the ``launch.py`` in its folder."""
    found: dict[str, LaunchRules] = {}
    for launches in contributions("launch", "LAUNCHES"):
        found |= launches
    of_base = {name: found.get(facts.extends, UNKNOWN) for name, facts in launch_facts().items()}
    return MappingProxyType({**of_base, **found})


def rules_of(settings: LaunchSettings) -> LaunchRules:
    """The rules and arithmetic of the launch's framework."""
    return launch_rules()[settings.framework]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchBatch(BatchPlan):
    """One launch's batch with every default filled in.

    ``dataset_size`` are the rows left for training, None if unknown; ``steps_set`` is a given max_steps.
    ``configured_per_device`` is the configured value if the framework silently trains with another one.
    ``ungiven_group`` is the group's size if that is a default.
    """

    rules: OnTrainer
    framework: str
    version: str
    steps_set: int | None = None
    evaluates: bool = False
    per_device_eval_batch_size: int = 8
    num_generations_eval: int | None = None
    configured_per_device: int | None = None
    ungiven_group: int | None = None


def lacking(settings: LaunchSettings) -> tuple[str, ...]:
    """One line for each value needed to judge the batch that is missing, or that no trainer accepts."""
    lines = [] if settings.world_size else ["the number of training processes is not known (--world-size)"]
    lines += _unread(settings, (*BATCH_SETTINGS, "num_iterations"))
    if settings.flag("auto_find_batch_size"):
        where = settings.where("auto_find_batch_size")
        lines.append(f"auto_find_batch_size changes the per-device batch when memory runs out ({where})")
    return (*lines, *rules_of(settings).lacking(settings))


def uncounted(settings: LaunchSettings) -> tuple[str, ...]:
    """One line for each value needed to count steps that is missing; empty if max_steps is set."""
    if settings.unreadable("max_steps"):
        return (unusable(settings, "max_steps"),)
    if (settings.whole("max_steps") or 0) > 0:
        return ()
    lines = [*_unread(settings, (), COUNTING)]
    epochs = settings.number("num_train_epochs")
    if epochs is not None and not 0 < epochs < math.inf:
        lines.append(unusable(settings, "num_train_epochs", "more than 0"))
    if settings.flag("streaming"):
        lines.append(f"a dataset that is streamed has no length: set max_steps ({settings.where('streaming')})")
    return tuple(lines)


def unevaluated(settings: LaunchSettings) -> tuple[str, ...]:
    """One line for each evaluation setting that could not be read."""
    return tuple(_unread(settings, (), EVALUATION))


def batch_of(settings: LaunchSettings) -> LaunchBatch | None:
    """The launch's batch; None if its framework counts for itself, or a value is missing (see ``lacking``)."""
    rules = rules_of(settings)
    if not isinstance(rules, OnTrainer) or lacking(settings) or not settings.world_size:
        return None
    rows, per_device = settings.dataset_size, settings.whole("per_device_train_batch_size") or 1
    filled = max(1, math.ceil(ACCUMULATED / per_device / settings.world_size))
    accumulated = settings.whole("gradient_accumulation_steps") or filled  # not DeepSpeed's own number
    epochs = settings.number("num_train_epochs")
    batch = LaunchBatch(
        rules=rules,
        framework=settings.framework,
        version=settings.version,
        style=_style(settings),
        world_size=settings.world_size,
        dataset_size=None if rows is None or uncounted(settings) else rules.training_rows(settings, rows),
        per_device_train_batch_size=per_device,
        gradient_accumulation_steps=accumulated,
        num_generations=settings.whole("num_generations") or 1,
        steps_per_generation=settings.whole("steps_per_generation"),
        generation_batch_size=settings.whole("generation_batch_size"),
        num_iterations=max(settings.whole("num_iterations") or 1, 1),
        num_train_epochs=1.0 if epochs is None else epochs,
        steps_set=total if (total := settings.whole("max_steps") or 0) > 0 else None,
        evaluates=rules.evaluates(settings) and not unevaluated(settings),
        per_device_eval_batch_size=settings.whole("per_device_eval_batch_size") or 8,
        num_generations_eval=settings.whole("num_generations_eval"),
        ungiven_group=settings.whole("num_generations") if settings.given("num_generations") is None else None,
    )
    if not settings.facts.replaces_batch or batch.global_batch * accumulated % batch.num_generations == 0:
        return batch
    return replace(batch, per_device_train_batch_size=batch.num_generations, configured_per_device=per_device)


def _style(settings: LaunchSettings) -> StepFormula:
    given = settings.given("transformers_version")
    transformers = None if given is None or given.value is None else str(given.value)
    style = style_of(settings.framework, settings.version, transformers)
    return replace(style, drop_last=style.drop_last or settings.flag("dataloader_drop_last"))


def refusals(batch: LaunchBatch) -> tuple[Refusal, ...]:
    """Every reason to refuse the batch, in the framework's order; it reports the first one only."""
    broken = tuple(batch.rules.refusals(batch))
    return broken or tuple(_training(batch))


def accepts(batch: LaunchBatch) -> bool:
    """Whether there is no reason to refuse the batch; cheaper than ``refusals``."""
    return next(batch.rules.refusals(batch), None) is None and next(_training(batch), None) is None


def factors(batch: LaunchBatch) -> tuple[tuple[str, int], ...]:
    """The factors of the version's rule, each with its setting."""
    if batch.generation_batch_size:
        return (("generation_batch_size", batch.generation_batch_size),)
    each = (("per_device_train_batch_size", batch.per_device_train_batch_size), ("processes", batch.world_size))
    if not at_least(batch.version, batch.rules.accumulation_counts_since):
        return each
    if batch.steps_per_generation:
        return (*each, ("steps_per_generation", batch.steps_per_generation))
    return (*each, ("gradient_accumulation_steps", batch.gradient_accumulation_steps))


def _training(batch: LaunchBatch) -> Iterator[Refusal]:
    """Reasons that appear only when training starts."""
    if batch.micro_batches < 1:
        text = "batch_size should be a positive integer value, but got batch_size=0"
        yield Refusal(RefusalKind.NO_BATCH, RefusalStage.TRAINING, text)
    elif batch.dataset_size is not None and batch.micro_steps < 1 and batch.steps_set is None:
        yield Refusal(RefusalKind.NO_STEPS, RefusalStage.TRAINING, NO_STEPS)
    elif batch.dataset_size is not None and batch.drawn < 1:
        yield Refusal(RefusalKind.NOTHING_DRAWN, RefusalStage.SILENT, "")
