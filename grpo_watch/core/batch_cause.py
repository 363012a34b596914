"""Names the one setting that would turn the predicted number of steps into the number that a trainer printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from grpo_watch.core.batch import BatchPlan
from grpo_watch.core.batch_prompts import PromptPlan

MOST = 64
"""How many processes, accumulated steps or completions per device are tried."""
LARGEST_POWER = 15
"""Prompts per step that are powers of 2 below this one are tried."""
SPLIT = 100
"""ms-swift split one row in a hundred off for evaluation until 3.5."""


def likely_cause(plan: BatchPlan | PromptPlan, printed: int, known: Callable[[str], bool]) -> tuple[str, float] | None:
    """The setting and the value with which the prediction is exactly ``printed``; None where no single one does.

    Settings that nobody said come before those that are known, and among them in the order of how often they are the
    reason: a process that was not counted, a per-device batch that a framework replaced, rows split off.
    """
    candidates = _candidates(plan) if isinstance(plan, BatchPlan) else _of_prompts(plan)
    tried = sorted(candidates, key=lambda change: known(change[0]))
    return next(((name, value) for name, value in tried if _total(plan, name, value) == printed), None)


def _total(plan: BatchPlan | PromptPlan, name: str, value: float) -> int | None:
    changes: dict[str, Any] = {name: value}
    return replace(plan, **changes).max_steps


def _candidates(plan: BatchPlan) -> Iterator[tuple[str, float]]:
    whole = range(1, MOST + 1)
    yield from (("world_size", value) for value in whole)
    yield "per_device_train_batch_size", plan.num_generations
    yield "dataset_size", plan.dataset_size - max(plan.dataset_size // SPLIT, 1)
    yield from (("gradient_accumulation_steps", value) for value in whole)
    yield from (("per_device_train_batch_size", value) for value in whole)
    yield from (("num_iterations", value) for value in range(1, 9))
    yield from (("num_train_epochs", float(value)) for value in range(1, 11))
    yield from (("num_generations", value) for value in range(2, MOST + 1))


def _of_prompts(plan: PromptPlan) -> Iterator[tuple[str, float]]:
    yield from (("num_train_epochs", value) for value in range(1, MOST + 1))
    yield from (("prompts_per_step", 2**power) for power in range(LARGEST_POWER))
    yield from (("prompts_per_step", plan.prompts_per_step * times) for times in range(2, 9))
