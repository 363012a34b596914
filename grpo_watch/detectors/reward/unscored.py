"""Rewards that are no scores: NaN, None or infinity, or 0 for lack of an answer (a timeout)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

from grpo_watch.detectors.shared.generations import completions_per_row
from grpo_watch.detectors.shared.listed import listed
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import (
    CompletionSummary,
    EventKind,
    MetricRow,
    Reading,
    RunEvent,
    Scalar,
    Severity,
    Verdict,
)
from grpo_watch.engine.reward_functions import names_of
from grpo_watch.engine.traits import LikelyCause, WasteKind
from grpo_watch.engine.window import Window

SAID = "the framework reports that all reward functions returned None (or NaN) for a completion"


def finite(value: float | None) -> bool:
    """Whether a score is a finite number."""
    return value is not None and isfinite(value)


@dataclass(frozen=True, slots=True)
class MissingScores:
    """The function with the largest share of unscored completions among those it should have scored."""

    function: str
    unscored: int
    completions: int

    @property
    def share(self) -> float:
        """Unscored completions as a share (0…1)."""
        return self.unscored / self.completions


def worst_gaps(summary: CompletionSummary) -> MissingScores | None:
    """The worst function of a table; None if no scores were dumped.

    A group that one function leaves out entirely, and another one scores, belongs to another task and does not count.
    """
    unscored: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for group in summary.groups:
        columns = {name: group.rewards[name] for name in names_of(group)}
        scored = any(finite(score) for scores in columns.values() for score in scores)
        for name, scores in columns.items():
            missing = sum(not finite(score) for score in scores)
            if missing < len(scores) or not scored:
                unscored[name] += missing
                asked[name] += len(scores)
    found = [MissingScores(name, unscored[name], asked[name]) for name in asked if asked[name]]
    return max(found, key=lambda gaps: gaps.share, default=None)


TABLE = "completions"
"""Key of the alert about the completions table; the alert about rows has an empty key."""


class RewardNotFinite(Detector):
    """Rows: the total or all functions are not finite, or one that used to be. Tables: gaps inside one group."""

    explained_by = ("non-finite-metric",)
    wastes = WasteKind.STEPS
    holds_under_any_name = True

    reads = (MetricRow, RunEvent, CompletionSummary)
    needs = (("reward_mean",), ("completions",))
    rows: int = param(2, "consecutive rows needed for a warning; fewer are an info", minimum=1)
    used_to: int = param(10, "finite rows after which a single function's NaN is not a multi-task gap", minimum=1)
    never: int = param(20, "rows without any score from a function that are a warning", minimum=3)
    share: float = param(0.1, "share of unscored completions in a table that is a warning", 0, 1)

    def setup(self) -> None:
        """Start with no streak."""
        self.finite: Counter[str] = Counter()
        self.unscored: Counter[str] = Counter()  # rows without a score, of functions that never gave one
        self.reported: set[str] = set()
        self.ragged: set[str] = set()
        self.streak = 0
        self.key = ""  # gaps of the dumped tables, once one was read: the framework's own warnings are about these too

    def observe(self, record: MetricRow | RunEvent | CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge a train row, a dumped table, or the framework's own warning."""
        if isinstance(record, MetricRow):
            return self._row(record, run)
        if isinstance(record, CompletionSummary):
            return self._table(record)
        if record.kind is not EventKind.REWARD_NONE:
            return SILENT
        severity = Severity.INFO if self.streak + 1 < self.rows else None
        self.streak += self.streak == 0
        step, said = (record.step or 0) + 1, {"log": record.text[:200]}
        return breach(self.key, severity=severity, message=SAID, evidence=said, step=step)

    def _row(self, row: MetricRow, run: RunView) -> Iterable[Reading]:
        values = row.values
        keys = run.functions.of(row)
        if not keys and "reward_mean" not in values:
            return SILENT
        broken = {key.name: values[key.mean] for key in keys if not finite(values[key.mean])}
        scoring = [key.name for key in keys if key.name not in broken]
        for name in scoring:
            self.finite[name] += 1
        ended = [Reading(Verdict.OK, name) for name in scoring if name in self.reported] if self.reported else []
        if "reward_mean" in values and not finite(values["reward_mean"]):
            broken["the total"] = values["reward_mean"]
        if not broken:
            self.streak = 0
            return [*QUIET, *ended] if ended else QUIET
        if number(row, "reward_mean") is not None and self._multi_task(broken, len(keys)):
            return [*ended, *(self._never_scored(name) for name in broken if not self.finite[name])]
        self.streak += 1
        said: dict[str, Scalar] = {name: "null" if value is None else str(value) for name, value in broken.items()}
        message = "reward: " + listed(f"{name} is {value}" for name, value in said.items())
        severity = Severity.INFO if self.streak < self.rows else None
        said["rows"] = self.streak
        return breach(severity=severity, message=message, evidence=said)

    def _never_scored(self, name: str) -> Reading:
        """A breach for a function without a score on this row and on all before."""
        self.unscored[name] += 1
        rows = self.unscored[name]
        if rows < self.never:
            return Reading(Verdict.NO_DATA, name, message=NotYet(f"{name} has not returned a single score yet"))
        self.reported.add(name)
        why = "it returns None or NaN, or the completions that it is meant for never occur"
        message = f"{name} returned no score for any completion in {rows} rows: {why}"
        evidence: dict[str, Scalar] = {"function": name, "rows": rows}
        return Reading(Verdict.BREACH, name, message=message, evidence=evidence, immediate=True)

    def _multi_task(self, broken: dict[str, float | None], functions: int) -> bool:
        """Whether functions skip samples of other tasks, which they do from the start and in turns."""
        if functions <= len(broken):
            return False
        self.ragged |= {name for name in broken if self.finite[name] < self.used_to}
        return self.ragged >= broken.keys() and not any(v is not None and math.isinf(v) for v in broken.values())

    def _table(self, summary: CompletionSummary) -> Iterable[Reading]:
        worst = worst_gaps(summary)
        self.key = TABLE if worst is not None else self.key
        if worst is None or not worst.unscored:
            return SILENT if worst is None else (Reading(Verdict.OK, TABLE),)
        of = f"{worst.unscored} of {worst.completions}"
        return breach(
            TABLE,
            value=worst.share,
            threshold=self.share,
            severity=None if worst.share >= self.share else Severity.INFO,
            message=f"{worst.function} returned no finite score for {of} completions of one batch",
            evidence={"function": worst.function, "unscored": worst.unscored, "completions": worst.completions},
        )


SLOW = LikelyCause("The verifier is slower than its timeout under load: raise the timeout or start fewer at a time.")
DOWN = LikelyCause("The sandbox or judge does not answer: call it by hand with one of the failing completions.")


class RewardErrors(Detector):
    """Counts log lines about failed reward calls against the completions of a step.

    The share is a proposal: no healthy recorded run has such a line.
    """

    likely_causes = (SLOW, DOWN)

    needs = (("reward_failures",),)
    share: float = param(0.2, "share of a step's completions whose reward failed that is a breach", 0, 1)
    rows: int = param(10, "rows in the median", minimum=1)

    def setup(self) -> None:
        """Start with no rows."""
        self.failed = Window(self.rows)

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one row with a reward; once failures were seen, a row that logs none counts as 0."""
        failed = number(record, "reward_failures")
        scored = "reward_mean" in record.values and run.seen("reward_failures")
        if failed is None and not scored:
            return SILENT
        if run.evaluated == record.step:
            return no_data(NotApplicable("the lines before an evaluation's row may be the evaluation's"))
        self.failed.push(failed or 0.0)
        completions = completions_per_row(run)
        if completions is None:
            return no_data("how many completions a step has is not known: set generation_batch_size")
        if not self.failed.full:
            return no_data(NotYet("too few rows yet"))
        share = min(1.0, (self.failed.median() or 0.0) / completions)
        if share < self.share or run.trend.reward_does_well():
            return QUIET
        message = f"the rewards of {share:.0%} of the completions failed and counted as 0 (median of {self.rows} rows)"
        evidence = {"reward_failures": self.failed.median(), "rows": self.rows, "completions_per_row": completions}
        return breach(value=share, threshold=self.share, message=message, evidence=evidence)
