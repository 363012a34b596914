"""Consequences of batch settings and dataset: a refused batch, an unexpected number of steps, far fewer prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf
from typing import Any

from grpo_watch.detectors.shared.batch_plan import BatchPlan, Plan, PromptPlan, plan_of, why_not
from grpo_watch.detectors.shared.refusals import GROUP_OF_ONE, of_batch
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, RunView, breach, no_data, param
from grpo_watch.engine.record_parts import AdvisoryMet
from grpo_watch.engine.records import (
    EventKind,
    MetricRow,
    Progress,
    Reading,
    RunConfig,
    RunEvent,
    Severity,
    Tick,
    Verdict,
)
from grpo_watch.engine.run_view import finite
from grpo_watch.engine.traits import LikelyCause


class BatchNotDivisible(Detector):
    """Reads the text of the error; a run that logs rows has passed the check."""

    ends_run = True

    reads = (RunEvent, Tick)

    def observe(self, record: RunEvent | Tick, run: RunView) -> Iterable[Reading]:
        """Judge a configuration error of the log; a tick after rows is OK."""
        if isinstance(record, Tick):
            return QUIET if run.step else SILENT
        refusal = of_batch(record.text) if record.kind is EventKind.CONFIG_ERROR else None
        if refusal is None or GROUP_OF_ONE.search(record.text):
            return SILENT
        message = f"refused at start: {record.text}"[:300]
        evidence = {"error": record.text[:300]}
        return breach(message=message, evidence=evidence, immediate=True, hint=refusal.fix)


LARGEST_DATASET = 1 << 31
"""Larger datasets are not searched for."""


def likely_cause(
    plan: BatchPlan | PromptPlan, printed: int, known: Callable[[str], bool], *, replaces_batch: bool = False
) -> str | None:
    """The setting that gives exactly ``printed`` steps: ``num_iterations = 2``, ``dataset_size = 57 to 64``; or None.

    Tries first the per-device batch that a framework puts in by itself (``replaces_batch``), then settings that are not
    ``known``; known ones are not doubted. Last comes the dataset's size, which filters and splits change.
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
        """Start with nothing compared."""
        self.compared: int | None = None
        self.first_row = True

    def blind_because(self, run: RunView) -> str | None:
        """Blind if max_steps is set, the framework's arithmetic is unknown, or a setting is missing."""
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


BEFORE, AFTER = "rows_before_filter", "rows_after_filter"
LIMIT = LikelyCause(
    "max_prompt_length is {max_prompt_length}: longer prompts were left out.", bounds={"max_prompt_length": (1, inf)}
)
RAISES = LikelyCause(
    "Rows that raise are left out like long ones: look for 'Error processing one of the samples' in the log.",
    framework="verl",
)
COLUMNS = LikelyCause(
    "Rows that can't be converted are left out, and only the first ones say why: look for a traceback above this line.",
    framework="ms-swift",
)


class DatasetShrunk(Detector):
    """Compares the sizes that a log prints of its largest dataset.

    Half is a proposal: the six filters in three public logs of verl removed no row.
    """

    reads = (RunConfig,)
    likely_causes = (LIMIT, RAISES, COLUMNS)
    survives_attempts = True

    share: float = param(0.5, "share of the rows that the filter left, at which it fires", 0, 1)
    rows: int = param(50, "rows of a dataset from which it counts", 1)

    def setup(self) -> None:
        """Start with no sizes."""
        self.before: float | None = None
        self.largest = 0.0

    def blind_because(self, run: RunView) -> str | None:
        """Blind in most frameworks, which filter nothing; ms-swift prints nothing unless rows are lost."""
        return None if run.known(AFTER) else NotApplicable("no log prints that a filter left rows out")

    def observe(self, record: RunConfig, run: RunView) -> Iterable[Reading]:
        """Judge when the second size comes. A validation set is smaller, filtered later, and ignored."""
        printed = (record.settings.get(name) for name in (BEFORE, AFTER))
        before, after = (None if setting is None else finite(setting.value) for setting in printed)
        self.before = self.before if before is None else before
        if after is None or self.before is None:
            reason = self.blind_because(run)
            return no_data(reason) if reason else SILENT
        rows, left, self.before = self.before, after, None
        if rows < self.largest:
            return SILENT
        self.largest = rows
        key = f"{rows:.0f} rows"
        if rows < self.rows or left > self.share * rows:
            return (Reading(Verdict.OK, key),)
        text = f"a filter left {left:,.0f} of {rows:,.0f} rows of the dataset"
        evidence = {"share": round(left / rows, 4), "max_prompt_length": run.number("max_prompt_length")}
        return (Reading(Verdict.BREACH, key, left, self.share * rows, text, evidence, immediate=True),)


VERSION_OF = "package:"
"""Prefix of settings that hold a package's version."""


class KnownBug(Detector):
    """Reports each advisory that applies, under its id; advisories are judged by what configurations say."""

    reads = (RunConfig, AdvisoryMet)
    names_causes = True
    survives_attempts = True

    def setup(self) -> None:
        """Start with nothing known."""
        self.knows_version = False

    def observe(self, record: RunConfig | AdvisoryMet, run: RunView) -> Iterable[Reading]:
        """One alert per advisory; without any, no data and why none applies."""
        if isinstance(record, AdvisoryMet):
            return (_reading(record),)
        said = record.version or run.version or any(name.startswith(VERSION_OF) for name in record.settings)
        self.knows_version = self.knows_version or bool(said)
        known = NotApplicable("no advisory applies to the versions and settings that were read")
        return no_data(known if self.knows_version else "no package's version is known (--set framework_version=V)")


def _reading(bug: AdvisoryMet) -> Reading:
    if not bug.applies:
        return Reading(Verdict.OK, key=bug.id)
    return Reading(
        Verdict.BREACH,
        key=bug.id,
        severity=Severity(bug.severity),
        message=f"{bug.package} {bug.version}: {bug.title} ({bug.id})",
        evidence={
            "advisory": bug.id,
            "package": bug.package,
            "version": bug.version,
            "settings": bug.given,
            "explains": " ".join(bug.shows),
        },
        immediate=True,
        hint=f"{bug.fix} More: grpo-watch advisories {bug.id}.",
    )
