"""Turns batch settings and a dataset's size into the number of optimizer steps that a trainer will make."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What decides the number of steps; sizes count completions, ``dataset_size`` counts training prompts.

    ``steps_per_generation`` None means ``generation_batch_size`` decides, or else ``gradient_accumulation_steps``.
    """

    dataset_size: int
    per_device_train_batch_size: int
    num_generations: int
    world_size: int = 1
    gradient_accumulation_steps: int = 1
    steps_per_generation: int | None = None
    generation_batch_size: int | None = None
    num_iterations: int = 1
    num_train_epochs: float = 1.0

    @property
    def micro_batches(self) -> int:
        """Micro-steps fed by one generation batch."""
        if self.steps_per_generation:
            return self.steps_per_generation
        if self.generation_batch_size:
            return self.generation_batch_size // (self.per_device_train_batch_size * self.world_size)
        return self.gradient_accumulation_steps

    @property
    def completions(self) -> int:
        """Completions of one generation batch."""
        return self.per_device_train_batch_size * self.world_size * self.micro_batches

    @property
    def prompts(self) -> int:
        """Whole groups of one generation batch."""
        return self.completions // self.num_generations

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps of one pass over the dataset; None where not even one generation batch fits.

        The sampler drops an incomplete generation batch at the end of each epoch (TRL >= 0.20, ms-swift 3.12 and 4.6);
        an incomplete accumulation makes a step of its own (transformers >= 4.52). Held against 26 real runs of
        ms-swift 4.6.0 and 3.12.6, all exact.
        """
        if self.prompts < 1 or self.dataset_size < self.prompts:
            return None
        micro = self.dataset_size // self.prompts * self.num_iterations * self.micro_batches
        return max(1, math.ceil(micro / self.gradient_accumulation_steps))

    @property
    def max_steps(self) -> int | None:
        """Optimizer steps of the whole run; None where not even one generation batch fits."""
        per_epoch = self.steps_per_epoch
        return None if per_epoch is None else math.ceil(self.num_train_epochs * per_epoch)

    @property
    def formula(self) -> str:
        """The arithmetic in one line, with its numbers."""
        return (
            f"ceil({self.num_train_epochs:g} epochs x ceil(floor({self.dataset_size} prompts / {self.prompts} per "
            f"generation) x {self.num_iterations} iterations x {self.micro_batches} micro-steps / "
            f"{self.gradient_accumulation_steps} accumulated))"
        )
