"""The number of optimizer steps that follows from batch settings and dataset size, and a run's own plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from grpo_watch import lazy_re as re
from grpo_watch.engine.detector import NotApplicable, RunView


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """The settings that decide the number of steps in verl, OpenRLHF and NeMo-RL; all sizes count prompts.

    ``keeps_rest``: the incomplete batch at the end of an epoch is a step of its own (OpenRLHF), else it is dropped.
    ``most_steps`` ends the run before the dataset does (NeMo-RL's max_num_steps). ``words`` are the framework's names
    for a step and for a pass over the dataset.
    """

    dataset_size: int
    prompts_per_step: int
    num_train_epochs: int = 1
    most_steps: int | None = None
    keeps_rest: bool = False
    words: tuple[str, str] = ("step", "epochs")

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one pass over the dataset; 0 if it does not fill one."""
        whole, rest = divmod(self.dataset_size, self.prompts_per_step)
        return whole + (self.keeps_rest and rest > 0)

    @property
    def max_steps(self) -> int | None:
        """Steps of the whole run; None if an epoch has none."""
        total = self.steps_per_epoch * self.num_train_epochs
        return (total if self.most_steps is None else min(total, self.most_steps)) or None

    @property
    def formula(self) -> str:
        """The arithmetic in one line, with its numbers."""
        step, epochs = self.words
        rounded = "ceil" if self.keeps_rest else "floor"
        text = f"{rounded}({self.dataset_size} prompts / {self.prompts_per_step} per {step}) "
        text += f"x {self.num_train_epochs} {epochs}"
        return text if self.most_steps is None else f"min({self.most_steps} max_num_steps, {text})"


class SamplerCount(str, Enum):
    """How a version counts its sampler's length, from which the trainer derives the total of steps."""

    WHOLE_BATCHES = "whole generation batches"
    """TRL >= 0.20 and ms-swift >= 3.6: an incomplete generation batch at the end of an epoch is not counted."""
    COMPLETIONS = "all completions"
    """TRL 0.15 to 0.19, ms-swift 3.1 to 3.5: it is counted, though from TRL 0.16 on it is not drawn."""
    PROMPTS = "prompts"
    """TRL 0.14: the per-device batch counts prompts, each generated for ``num_generations`` times."""


@dataclass(frozen=True, slots=True)
class StepFormula:
    """How one version counts steps.

    ``draws_whole``: an incomplete generation batch is not drawn, whether it was counted or not. ``drop_last`` leaves
    out an incomplete micro-batch, ``floor`` an incomplete step.
    """

    counting: SamplerCount = SamplerCount.WHOLE_BATCHES
    draws_whole: bool = True
    drop_last: bool = False
    floor: bool = False


MODERN = StepFormula()
_TRL: Sequence[tuple[tuple[int, ...], StepFormula]] = (
    ((0, 20), MODERN),
    ((0, 18), StepFormula(SamplerCount.COMPLETIONS)),
    ((0, 16), StepFormula(SamplerCount.COMPLETIONS, floor=True)),
    ((0, 15), StepFormula(SamplerCount.COMPLETIONS, draws_whole=False, floor=True)),
    ((0, 14), StepFormula(SamplerCount.PROMPTS, draws_whole=False, floor=True)),
)
_SWIFT: Sequence[tuple[tuple[int, ...], StepFormula]] = (
    ((3, 6), MODERN),
    ((3, 2), StepFormula(SamplerCount.COMPLETIONS, drop_last=True, floor=True)),
    ((3, 1), StepFormula(SamplerCount.COMPLETIONS, draws_whole=False, drop_last=True, floor=True)),
)
CEILING_TRANSFORMERS = (4, 52)
"""First transformers version in which an incomplete accumulation at the end of an epoch is a step of its own."""


RELEASE = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){0,3})")


def release(version: str) -> tuple[int, ...]:
    """``v0.19.1rc2`` as (0, 19, 1): the numbers at its beginning; empty if the text does not begin with one."""
    found = RELEASE.match(version.strip())
    return tuple(map(int, found[1].split("."))) if found else ()


def style_of(framework: str, version: str | None, transformers: str | None = None) -> StepFormula:
    """How this version counts: like the newest one if None, like the first GRPO trainer if older than that.

    ``floor`` depends on transformers: unless configured, the release of the framework's own time is assumed (TRL 0.14
    to 0.17 and ms-swift 3.1 to 3.5 are as old as transformers 4.51 and older).
    """
    table = _SWIFT if framework.startswith("ms-swift") else _TRL
    held = (style for since, style in table if version is None or release(version) >= since)
    found = next(held, table[-1][1])
    if transformers is None:
        return found
    return replace(found, floor=release(transformers) < CEILING_TRANSFORMERS)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The settings that decide the number of steps; sizes count completions, ``dataset_size`` counts training prompts.

    A ``dataset_size`` of None means that nothing is drawn. ``steps_per_generation`` None means
    ``generation_batch_size`` decides, or else ``gradient_accumulation_steps``.
    """

    dataset_size: int | None
    per_device_train_batch_size: int
    num_generations: int
    world_size: int = 1
    gradient_accumulation_steps: int = 1
    steps_per_generation: int | None = None
    generation_batch_size: int | None = None
    num_iterations: int = 1
    num_train_epochs: float = 1.0
    style: StepFormula = MODERN

    @property
    def global_batch(self) -> int:
        """Rows of one micro-step over all devices: completions, or prompts under ``SamplerCount.PROMPTS``."""
        return self.per_device_train_batch_size * self.world_size

    @property
    def micro_batches(self) -> int:
        """Micro-steps fed by one generation batch."""
        if self.style.counting is SamplerCount.PROMPTS:
            return 1
        if self.steps_per_generation:
            return self.steps_per_generation
        if self.generation_batch_size:
            return self.generation_batch_size // self.global_batch
        return self.gradient_accumulation_steps

    @property
    def completions(self) -> int:
        """Completions of one generation batch."""
        if self.style.counting is SamplerCount.PROMPTS:
            return self.global_batch * self.num_generations
        return self.generation_batch_size or self.global_batch * self.micro_batches

    @property
    def completions_per_step(self) -> int:
        """Completions that one optimizer step learns from."""
        factor = self.num_generations if self.style.counting is SamplerCount.PROMPTS else 1
        return self.global_batch * self.gradient_accumulation_steps * factor

    @property
    def optimizer_steps_per_generation(self) -> float:
        """How often the weights change per generation batch."""
        return self.micro_batches * self.num_iterations / self.gradient_accumulation_steps

    @property
    def prompts(self) -> int:
        """Whole groups of one generation batch."""
        return self.completions // self.num_generations

    @property
    def micro_steps(self) -> int:
        """Micro-steps per epoch and device by the sampler's length."""
        if self.style.counting is SamplerCount.WHOLE_BATCHES:
            return self.drawn
        rows = self.dataset_size or 0
        if self.style.counting is SamplerCount.COMPLETIONS:
            rows *= self.num_generations * self.num_iterations
        return rows // self.global_batch if self.style.drop_last else -(-rows // self.global_batch)

    @property
    def drawn(self) -> int:
        """Micro-steps per epoch and device that are made: fewer than counted in TRL 0.16 to 0.19."""
        if not self.style.draws_whole:
            return self.micro_steps
        return (self.dataset_size or 0) // max(self.prompts, 1) * self.num_iterations * self.micro_batches

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps of one pass over the dataset; None if not even one generation batch fits.

        Compared with 26 real runs of ms-swift 4.6.0 and 3.12.6 and thousands of configurations of real TRL 0.15 to
        1.16, all exact.
        """
        if self.prompts < 1 or self.micro_batches < 1 or self.micro_steps < 1:
            return None
        full, rest = divmod(self.micro_steps, self.gradient_accumulation_steps)
        return max(1, full + (rest > 0 and not self.style.floor))

    @property
    def max_steps(self) -> int | None:
        """Optimizer steps of the whole run; None if not even one generation batch fits."""
        per_epoch = self.steps_per_epoch
        return None if per_epoch is None else math.ceil(self.num_train_epochs * per_epoch)

    @property
    def formula(self) -> str:
        """The arithmetic in one line, with its numbers."""
        rounded = "floor" if self.style.floor else "ceil"
        accumulated = f"{self.gradient_accumulation_steps} accumulated"
        return f"ceil({self.num_train_epochs:g} epochs x {rounded}({self._micro_text()} / {accumulated}))"

    def _micro_text(self) -> str:
        if self.style.counting is SamplerCount.WHOLE_BATCHES:
            return (
                f"floor({self.dataset_size} prompts / {self.prompts} per generation) x {self.num_iterations} "
                f"iterations x {self.micro_batches} micro-steps"
            )
        over = f"({self.per_device_train_batch_size} per device x {self.world_size} processes)"
        rounded = "floor" if self.style.drop_last else "ceil"
        if self.style.counting is SamplerCount.PROMPTS:
            return f"{rounded}({self.dataset_size} prompts / {over})"
        return (
            f"{rounded}({self.dataset_size} prompts x {self.num_generations} generations x {self.num_iterations} "
            f"iterations / {over})"
        )


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
"""Settings needed to count the steps, by framework: the Hugging Face trainer's, and those of batches in prompts."""
DRAWS_WHAT_IT_TRAINS = (0, 9)
"""First verl version whose epochs depend on train_batch_size alone; earlier ones use gen_batch_size if it is set."""


def why_not(run: RunView) -> str | None:
    """Why the run's steps can't be predicted; None if they can."""
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
    """What besides the settings decides the total; None if nothing does."""
    if run.setting("dynamic_sample"):
        return "dynamic sampling draws prompts as it needs them"
    if run.framework == "verl" and run.version is None and _draws_others(run):
        return "data.gen_batch_size is set, and whether it counts depends on verl's version, which is unknown"
    return None


def plan_of(run: RunView) -> Plan:
    """The plan of a run for which ``why_not`` is None."""
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
    """The number of steps by the run's settings; None if they don't decide it, or if not even one fits."""
    return plan_of(run).max_steps if why_not(run) is None else None


def _draws_others(run: RunView) -> bool:
    """Whether verl is configured to draw a different number of prompts than it trains on."""
    drawn = run.number("prompts_drawn")
    return drawn is not None and drawn >= 1 and drawn != run.number("prompts_per_step")


def _whole(run: RunView, name: str, default: int = 1) -> int:
    value = run.number(name)
    return default if value is None or value < 1 else int(value)
