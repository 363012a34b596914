"""What the arithmetic of a framework's launches answers: refusals of a batch, broken rules, and the predicted run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from grpo_watch.detectors.shared.batch_plan import PromptPlan
from grpo_watch.frameworks.launches import LaunchSettings


class RefusalKind(str, Enum):
    """What is wrong, independent of the wording."""

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
    """When the framework says so."""

    ARGUMENTS = "when the arguments are parsed"
    TRAINER = "when the trainer is built, after the model was loaded"
    TRAINING = "when training begins, after the model was loaded"
    SILENT = "never"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason why the framework will not train with this batch; ``text`` as it words it.

    ``factors`` are what it multiplies, each with its setting, where that is not what the version's rule multiplies.
    """

    kind: RefusalKind
    stage: RefusalStage
    text: str
    factors: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BrokenConstraint:
    """One rule that the settings break.

    ``text`` is what the framework says, ``when`` the moment; ``settings`` are the names to blame, the likeliest first;
    ``fix`` says what has to hold. ``unsure`` says why the version in use may not have the rule, empty where it has it.
    ``where`` is the place to blame where that is none of the settings.
    """

    text: str
    when: str
    fix: str
    settings: tuple[str, ...]
    unsure: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The run in numbers; None where an input is missing.

    ``max_steps`` and ``steps_per_epoch`` count what the framework shows as its step; ``optimizer_steps_per_generation``
    how often the weights change per generation batch. ``tokens`` is an upper bound (longest prompt and completion).
    ``notes`` are sentences on what the numbers leave out.
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


@dataclass(frozen=True, slots=True)
class OwnArithmetic:
    """A framework that counts for itself.

    Attributes:
        rules: every rule that settings break; asked where nothing is lacking.
        run: the predicted run; asked where nothing is lacking and no rule broken.
        counts: settings that have to be whole numbers from 1 on.
        words: other settings that rules and run depend on.
        devices: the settings of its GPUs per node and nodes, where it starts its own workers.
        unknown: a line for each other input that is missing.
    """

    rules: Callable[[LaunchSettings], Iterator[BrokenConstraint]]
    run: Callable[[LaunchSettings], Prediction | None]
    counts: Sequence[str]
    words: Sequence[str] = ()
    devices: tuple[str, str] | None = None
    unknown: Callable[[LaunchSettings], Iterator[str]] = lambda _: iter(())

    def lacking(self, settings: LaunchSettings) -> Iterator[str]:
        """What has to be known before a rule can be judged or a step predicted, one line each."""
        yield from self.unknown(settings)
        yield from _unread(settings, self.counts, self.words)
        if self.devices is not None:
            yield from _devices_unread(settings, *self.devices)

    def broken(self, settings: LaunchSettings) -> Iterator[BrokenConstraint]:
        """Every rule that the settings break; none where something they hang on is not known (see ``lacking``)."""
        if not any(self.lacking(settings)):
            yield from self.rules(settings)

    def predict(self, settings: LaunchSettings) -> Prediction | None:
        """The run in numbers; None where it would not begin, or too little is known to say anything."""
        return None if any(self.lacking(settings)) or any(self.rules(settings)) else self.run(settings)


def prompt_batches(  # noqa: PLR0913, PLR0917  what such a framework counts by
    settings: LaunchSettings,
    prompts: int,
    group: int,
    updates: float,
    epochs: int | None,
    most: int | None,
    notes: tuple[str, ...] = (),
) -> Prediction:
    """The run of a framework that draws whole batches of prompts and drops the rest of an epoch.

    Args:
        settings: for the rows of the dataset.
        prompts: of a step.
        group: completions of a prompt.
        updates: optimizer steps of a step.
        epochs: passes over the dataset; None: steps alone end the run.
        most: steps that end the run sooner; None: nothing does.
        notes: sentences on what the numbers leave out.
    """
    rows = None if epochs is None else settings.dataset_size
    plan = None if rows is None or epochs is None else PromptPlan(rows, prompts, epochs, most)
    total = most if plan is None else plan.max_steps
    return Prediction(
        max_steps=total or None,
        steps_per_epoch=None if plan is None else plan.steps_per_epoch,
        completions_per_step=prompts * group,
        prompts_per_step=prompts,
        generation_batch_size=prompts * group,
        optimizer_steps_per_generation=updates,
        formula="" if plan is None else f"{plan.formula} = {total or 0}",
        completions=None if not total else total * prompts * group,
        notes=notes,
    )


def unusable(settings: LaunchSettings, name: str, wanted: str = "") -> str:
    """A line for a setting whose value could not be read, or is not what is wanted."""
    value = settings.value(name)
    what = "could not be read" if value is None else f"is {value}, not {wanted}"
    return f"{settings.own_name(name)} {what} ({settings.where(name)})"


def _unread(settings: LaunchSettings, counts: Sequence[str], others: Sequence[str] = ()) -> Iterator[str]:
    """One line for each setting that was given and can't be used."""
    for name in (*counts, *others):
        given = settings.given(name)
        if given is None:
            continue
        if given.value is None or (name in counts and (settings.whole(name) or 0) < 1):
            yield unusable(settings, name, "a positive whole number")


def devices(settings: LaunchSettings, each: str, nodes: str) -> int | None:
    """GPUs as the framework's settings name them; what ``--world-size`` says where one of them can't be read."""
    if settings.unreadable(each) or settings.unreadable(nodes):
        return settings.world_size
    return _product(settings, each, nodes)


def _devices_unread(settings: LaunchSettings, each: str, nodes: str) -> Iterator[str]:
    """One line where the number of GPUs is not known, or two different ones are given."""
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
