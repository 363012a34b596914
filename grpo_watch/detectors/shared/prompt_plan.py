"""Turns prompts per step and a dataset's size into a number of steps, for trainers that count in prompts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """What decides the number of steps in verl, OpenRLHF and NeMo-RL; all sizes count prompts.

    ``keeps_rest``: what is left at the end of an epoch is a step of its own (OpenRLHF), else it is dropped.
    ``most_steps`` ends the run before the dataset does (NeMo-RL's max_num_steps). ``words`` are what the framework
    calls a step and a pass over the dataset.
    """

    dataset_size: int
    prompts_per_step: int
    num_train_epochs: int = 1
    most_steps: int | None = None
    keeps_rest: bool = False
    words: tuple[str, str] = ("step", "epochs")

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one pass over the dataset; 0 where it does not fill one."""
        whole, rest = divmod(self.dataset_size, self.prompts_per_step)
        return whole + (self.keeps_rest and rest > 0)

    @property
    def max_steps(self) -> int | None:
        """Steps of the whole run; None where an epoch has none."""
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
