"""The run's total of steps is not what its batch settings and dataset size give."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from grpo_watch.core.batch import BatchPlan, style_of
from grpo_watch.core.batch_cause import likely_cause
from grpo_watch.core.detector import ANY, QUIET, SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.records import MetricRow, Progress, Reading, RunConfig, Verdict

NEEDED = ("per_device_train_batch_size", "num_generations")
COUNTED_BY_TRL = frozenset({"trl", "ms-swift", "unsloth", "axolotl", "open-r1"})
"""Frameworks whose steps the Hugging Face trainer counts from TRL's sampler, or as it does."""


class MaxStepsMismatch(Detector):
    """Compares the total that the trainer printed with the prediction, once both are known."""

    reads = (RunConfig, Progress, MetricRow)
    params = MappingProxyType(
        {
            "share": Param(0.01, "relative difference that is tolerated", minimum=0, maximum=1),
            "steps": Param(1, "difference in steps that is tolerated", minimum=0),
        }
    )
    share: float
    steps: int

    def setup(self) -> None:
        """Nothing compared yet."""
        self.compared: int | None = None
        self.first_row = True

    def blind_because(self, run: RunView) -> str | None:
        """A total that was set, a framework whose arithmetic is not known, or a gap in the settings."""
        if (run.number("max_steps") or 0) > 0:
            return "max_steps is set, so the dataset does not decide the total"
        if run.framework not in COUNTED_BY_TRL:
            return "how this framework counts its steps is not known"
        lacking = [name for name in NEEDED if run.number(name) is None]
        if run.number("dataset_size") is None:
            lacking.insert(0, "dataset_size")
        if lacking:
            return f"say {', '.join(lacking)} (--set {lacking[0]}=…) to have the total of steps checked"
        if run.setting("dynamic_sample"):
            return "dynamic sampling draws prompts as it needs them"
        return None if run.max_steps else "the total of steps is not logged"

    def observe(self, record: RunConfig | Progress | MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge when a total arrives or a first row shows that the run has begun."""
        if isinstance(record, MetricRow):
            if not self.first_row:
                return SILENT
            self.first_row = False
            self.quiet_while = ANY
        if run.max_steps == self.compared and not isinstance(record, RunConfig):
            return SILENT
        why_not = self.blind_because(run)
        if why_not is not None:
            return no_data(why_not)
        self.compared = run.max_steps
        return self._judge(_plan(run), run)

    def _judge(self, plan: BatchPlan, run: RunView) -> Iterable[Reading]:
        total, predicted = run.max_steps or 0, plan.max_steps
        if predicted is None:
            return no_data("the dataset is smaller than one generation batch")
        if abs(total - predicted) <= max(self.steps, self.share * predicted):
            return QUIET
        cause = likely_cause(plan, total, run.known)
        evidence: dict[str, int | str] = {"max_steps": total, "predicted": predicted, "formula": plan.formula}
        why = ""
        if cause is not None:
            evidence["explained_by"] = f"{cause[0]} = {cause[1]:g}"
            why = f"; {evidence['explained_by']} would explain it"
        return (
            Reading(
                Verdict.BREACH,
                value=float(total),
                threshold=float(predicted),
                message=f"the trainer plans {total} steps, but its settings give {predicted}{why}",
                evidence=evidence,
                immediate=True,
            ),
        )


def _plan(run: RunView) -> BatchPlan:
    def whole(name: str, default: int = 1) -> int:
        value = run.number(name)
        return default if value is None or value < 1 else int(value)

    return BatchPlan(
        dataset_size=whole("dataset_size"),
        per_device_train_batch_size=whole("per_device_train_batch_size"),
        num_generations=whole("num_generations"),
        world_size=whole("world_size"),
        gradient_accumulation_steps=whole("gradient_accumulation_steps"),
        steps_per_generation=whole("steps_per_generation", 0) or None,
        generation_batch_size=whole("generation_batch_size", 0) or None,
        num_iterations=whole("num_iterations"),
        num_train_epochs=run.number("num_train_epochs") or 1.0,
        style=style_of(run.framework or "", None if run.framework == "unsloth" else run.version),
    )
