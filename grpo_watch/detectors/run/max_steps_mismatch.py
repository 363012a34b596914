"""The run's total number of steps does not match its batch settings and dataset size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from grpo_watch.detectors.shared.batch_plan import BatchPlan, Plan, PromptPlan, plan_of, why_not
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, RunView, breach, no_data, param
from grpo_watch.engine.records import MetricRow, Progress, Reading, RunConfig

LARGEST_DATASET = 1 << 31
"""Larger datasets are not looked for."""


def likely_cause(
    plan: BatchPlan | PromptPlan, printed: int, known: Callable[[str], bool], *, replaces_batch: bool = False
) -> str | None:
    """What gives exactly ``printed``: ``num_iterations = 2``, ``dataset_size = 57 to 64``; None where nothing does.

    A setting that is not known comes first, with the one per-device batch that a framework puts in by itself
    (``replaces_batch``); what the run's own configuration says is not doubted. The dataset's size, which filters
    and splits change, is what is left.
    """
    candidates: list[tuple[str, float]] = []
    if isinstance(plan, BatchPlan):
        candidates += [("per_device_train_batch_size", plan.num_generations)] if replaces_batch else []
        candidates += [] if known("num_iterations") else [("num_iterations", value) for value in range(1, 9)]
    for name, value in candidates:
        if _total(plan, name, value) == printed:
            return f"{name} = {value:g}"
    first, beyond = (_smallest(plan, total) for total in (printed, printed + 1))
    if first is None or beyond is None or first == beyond:
        return None
    return f"dataset_size = {first}" if beyond == first + 1 else f"dataset_size = {first} to {beyond - 1}"


def _total(plan: BatchPlan | PromptPlan, name: str, value: float) -> int | None:
    changes: dict[str, Any] = {name: value}
    return replace(plan, **changes).max_steps


def _smallest(plan: BatchPlan | PromptPlan, total: int) -> int | None:
    """The smallest dataset with at least ``total`` steps: more rows never make fewer."""
    low, high = 1, LARGEST_DATASET
    if (_total(plan, "dataset_size", high) or 0) < total:
        return None
    while low < high:
        middle = (low + high) // 2
        if (_total(plan, "dataset_size", middle) or 0) >= total:
            high = middle
        else:
            low = middle + 1
    return low


class MaxStepsMismatch(Detector):
    """Compares the total that the trainer printed with the prediction, once both are known."""

    reads = (RunConfig, Progress, MetricRow)
    share: float = param(0.01, "relative difference to tolerate", minimum=0, maximum=1)
    steps: int = param(1, "difference in steps to tolerate", minimum=0)

    def setup(self) -> None:
        """Nothing compared yet."""
        self.compared: int | None = None
        self.first_row = True

    def blind_because(self, run: RunView) -> str | None:
        """max_steps is set, the framework's arithmetic is unknown, or a setting is missing."""
        reason = why_not(run)
        if reason is None and not run.max_steps:
            return "the total number of steps is not logged"
        return reason

    def observe(self, record: RunConfig | Progress | MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge when a total arrives, or when the first row shows that the run has begun."""
        if isinstance(record, MetricRow):
            if not self.first_row:
                return SILENT
            self.first_row = False
        if run.max_steps == self.compared and not isinstance(record, RunConfig):
            return SILENT
        reason = self.blind_because(run)
        if reason is not None:
            return no_data(reason)
        self.compared = run.max_steps
        return self._judge(plan_of(run), run)

    def _judge(self, plan: Plan, run: RunView) -> Iterable[Reading]:
        total, predicted = run.max_steps or 0, plan.max_steps
        if predicted is None:
            return no_data(NotApplicable("the dataset is smaller than one generation batch"))
        if abs(total - predicted) <= max(self.steps, self.share * predicted):
            return QUIET
        cause = likely_cause(plan, total, run.known, replaces_batch=run.framework == "unsloth")
        evidence: dict[str, int | str] = {"max_steps": total, "predicted": predicted, "formula": plan.formula}
        why = ""
        if cause is not None:
            evidence["explained_by"] = cause
            why = f"; {cause} would explain it"
        return breach(
            value=float(total),
            threshold=float(predicted),
            message=f"the trainer plans {total} steps, but its settings give {predicted}{why}",
            evidence=evidence,
            immediate=True,
        )
