"""Compares two runs: the step from which they diverge, the metrics, and their other differences."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import isnan, nan, sqrt
from statistics import median
from typing import Any

from grpo_watch.advisories.judge import VERSION_OF
from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.metric_names import SETTINGS
from grpo_watch.engine.records import Setting, Severity
from grpo_watch.report.charts import superseded
from grpo_watch.report.check_document import RunReport, brief, episode
from grpo_watch.report.series import Series
from grpo_watch.safe_text import strict

WINDOW = 10
"""Rows per median; the median of ten independent rows scatters by 0.4 of their noise."""
FEWEST = 5
"""Common rows below which there is no verdict; if there are fewer than ten, all of them are the window."""
TIMES = 3.0
"""Multiple of the noise that a difference must exceed; seven standard errors of the median of ten independent rows."""
MAD = 1.4826
"""Median absolute deviation → standard deviation, of normal noise."""
MEAN_SIZE = 1.2533
"""Mean absolute deviation → standard deviation, of normal noise: √(π/2)."""
LEAST = 1e-6
"""Smaller differences relative to the values are rounding: float32 keeps seven digits."""


@dataclass(frozen=True, slots=True)
class StepColumn:
    """One metric of a run: ascending optimizer steps and as many values (NaN: no value)."""

    steps: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two columns diverge; steps are optimizer steps, None if they do not.

    ``differs`` is the first step with different values at all; ``step`` the first whose difference noise does not
    explain, with the values ``a`` and ``b`` there and the ``noise`` (a standard deviation) it was judged by.
    """

    rows: int
    differs: int | None
    step: int | None = None
    a: float | None = None
    b: float | None = None
    noise: float | None = None


def part(a: StepColumn, b: StepColumn, resolution: float = 0.0, *, exact: bool = False) -> Parting:
    """Compare two columns; ``resolution`` is the coarser printed digit.

    Two runs diverge if the median difference of ten consecutive common rows is more than three times the noise;
    the step is the first of those rows that lies that far off to the same side. The noise is the change of the
    difference from one common row to the next, over all common rows before (for the first ten: over themselves), as a
    standard deviation (1.4826 × median of the sizes of the changes / √2). So a drift is not noise, two runs that were
    equal so far diverge at the first lasting difference, and a single odd row is ignored.

    ``exact`` is for values that are set, not measured (a learning rate): without noise, any difference counts.
    """
    there = dict(zip(b.steps, b.values, strict=True))
    pairs = [(step, value, there.get(step, nan)) for step, value in zip(a.steps, a.values, strict=True)]
    rows = [row for row in pairs if not (isnan(row[1]) or isnan(row[2]))]
    difference = [right - left for _, left, right in rows]
    floor = [max(resolution, LEAST * max(abs(left), abs(right))) for _, left, right in rows]
    unequal = (row[0] for row, size, least in zip(rows, difference, floor, strict=True) if abs(size) > least)
    differs = next(unequal, None)
    window = min(WINDOW, len(rows))
    if differs is None or window < FEWEST:
        return Parting(len(rows), differs)
    noise = [0.0] * len(rows) if exact else noise_before(difference, window)
    limits = [max(least, TIMES * size) for least, size in zip(floor, noise, strict=True)]
    found = _first(difference, limits, window)
    if found is None:
        return Parting(len(rows), differs)
    begin, at = found
    return Parting(len(rows), differs, *rows[at], noise[begin])


def noise_before(difference: Sequence[float], window: int) -> list[float]:
    """The noise for judging each window of rows, at the window's first row."""
    sizes = [abs(after - before) for before, after in pairwise(difference)]
    known = [  # of the changes up to each row
        (MAD * spread or MEAN_SIZE * total / count) / sqrt(2)
        for count, (spread, total) in enumerate(zip(_running_medians(sizes), accumulate(sizes), strict=True), 1)
    ]
    # the last change that lies wholly before the row
    return [known[max(row - 2, window - 2)] for row in range(len(difference))]


def _running_medians(values: Sequence[float]) -> Iterator[float]:
    ordered: list[float] = []
    for at, value in enumerate(values):
        insort(ordered, value)
        yield (ordered[at // 2] + ordered[(at + 1) // 2]) / 2


def _first(difference: Sequence[float], limits: Sequence[float], window: int) -> tuple[int, int] | None:
    """The first window whose median exceeds its limit, and the first of its rows beyond it on the same side."""
    for begin in range(len(difference) - window + 1):
        rows = difference[begin : begin + window]
        middle = median(rows)
        if abs(middle) > limits[begin]:
            beyond = (at for at, size in enumerate(rows, begin) if (size if middle > 0 else -size) > limits[begin])
            return begin, next(beyond)
    return None


SCHEMA = "grpo-watch/diff/1"
EXACT = frozenset({"learning_rate", "epoch"})
"""Metrics that are set, not measured: they have no noise."""
LISTED = frozenset({"step_seconds", "step_seconds_average", "memory_gib", "tokens_seen"})
"""Metrics that are compared but never count: they depend on the machine, or accumulate the noise of another metric."""


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """One metric in both runs; ``parting`` is None if only one has it, ``lacking`` then names the other (a, b)."""

    name: str
    parting: Parting | None
    lacking: str | None = None

    @property
    def counted(self) -> bool:
        """Whether the runs diverge if this metric does."""
        return self.name not in LISTED

    @property
    def judged(self) -> bool:
        """Whether there were enough common rows for a verdict."""
        return self.parting is not None and (self.parting.rows >= FEWEST or self.parting.step is not None)

    @property
    def status(self) -> str:
        """``parted``, ``differs`` (explained by noise), ``same``, ``only-a``, ``only-b`` or ``too-few`` common rows."""
        if self.parting is None:
            return "only-a" if self.lacking == "b" else "only-b"
        if not self.judged:
            return "too-few"
        if self.parting.step is not None:
            return "parted"
        return "same" if self.parting.differs is None else "differs"


@dataclass(frozen=True, slots=True)
class LoneFinding:
    """A finding of only one of the runs (a, b); ``counted`` if the other run reached its step too."""

    of: str
    finding: Finding
    counted: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side. ``steps`` are the optimizer steps both logged; ``step`` is where they diverge."""

    a: RunReport
    b: RunReport
    steps: tuple[int, ...]
    metrics: tuple[ComparedMetric, ...]
    settings: Mapping[str, tuple[Setting | None, Setting | None]]
    findings: tuple[LoneFinding, ...]

    @property
    def parted(self) -> list[ComparedMetric]:
        """The metrics that diverge, by step; those that do not count last."""
        found = [(metric, metric.parting.step) for metric in self.metrics if metric.parting]
        parted = [(not metric.counted, step, metric.name, metric) for metric, step in found if step is not None]
        return [metric for *_, metric in sorted(parted, key=lambda each: each[:3])]

    @property
    def step(self) -> int | None:
        """The first step at which the runs diverge; None if they do not."""
        parted = [m.parting.step for m in self.metrics if m.counted and m.parting and m.parting.step is not None]
        parted += [lone.finding.first_step for lone in self.findings if lone.counted]
        return min(parted, default=None)

    @property
    def verdict(self) -> str:
        """``same``, ``parted`` or ``not-evaluable``."""
        if self.step is not None:
            return "parted"
        return "same" if any(metric.judged and metric.counted for metric in self.metrics) else "not-evaluable"


def compare(a: RunReport, b: RunReport) -> Comparison:
    """Compare two reports that carry their series, step by step; of several attempts the newest counts."""
    left, right = RunColumns(a.series or Series()), RunColumns(b.series or Series())
    steps = tuple(sorted({*left.steps} & {*right.steps}))
    names = sorted(left.names | right.names)
    metrics = tuple(_metric(name, left, right) for name in names)
    return Comparison(a, b, steps, metrics, dict(_settings(a, b)), tuple(_findings(a, b, steps[-1] if steps else -1)))


class RunColumns:
    """The series of one run as columns by step, without rows discarded by a restart."""

    def __init__(self, series: Series) -> None:
        attempts, steps = series.places
        kept = [row for row, lost in enumerate(superseded(attempts, steps)) if not lost]
        self.series, self._kept = series, sorted(kept, key=lambda row: (steps[row], attempts[row]))
        self.steps = [steps[row] for row in self._kept]
        self.names = {
            name for name in series.metrics if series.odd_values(name) or not all(map(isnan, self.values(name)))
        }

    def values(self, name: str) -> list[float]:
        """The metric's values, in the order of ``steps``."""
        column = self.series.column(name)
        return [column[row] for row in self._kept]

    def column(self, name: str) -> StepColumn:
        """The metric by step."""
        return StepColumn(self.steps, self.values(name))

    def value(self, name: str, step: int) -> float:
        """The metric at a step that the run logged."""
        return self.values(name)[bisect_left(self.steps, step)]

    def odd(self, name: str) -> set[int]:
        """The steps at which the metric was NaN or infinite."""
        odd = set(self.series.odd_rows(name))
        return {step for row, step in zip(self._kept, self.steps, strict=True) if row in odd}


def _metric(name: str, a: RunColumns, b: RunColumns) -> ComparedMetric:
    if name not in a.names or name not in b.names:
        return ComparedMetric(name, None, "b" if name in a.names else "a")
    resolution = max(a.series.resolution or 0.0, b.series.resolution or 0.0)
    found = part(a.column(name), b.column(name), resolution, exact=name in EXACT)
    common = {*a.steps} & {*b.steps}
    odd = min((a.odd(name) ^ b.odd(name)) & common, default=None)
    if odd is None or (found.step is not None and found.step <= odd):
        return ComparedMetric(name, found)
    values = [column.value(name, odd) for column in (a, b)]
    return ComparedMetric(name, Parting(found.rows, min(found.differs or odd, odd), odd, values[0], values[1], 0.0))


def _settings(a: RunReport, b: RunReport) -> Iterator[tuple[str, tuple[Setting | None, Setting | None]]]:
    """Settings with different values, in the order of the canonical list."""
    left, right = a.snapshot.config, b.snapshot.config
    for name in [*SETTINGS, *sorted((left.keys() | right.keys()) - SETTINGS.keys())]:
        pair = left.get(name), right.get(name)
        values = [setting.value if setting else None for setting in pair]
        unknown = name.startswith(VERSION_OF) and None in pair  # from a file that only one of them has
        if values[0] != values[1] and not unknown:
            yield name, pair


def _findings(a: RunReport, b: RunReport, last: int) -> Iterator[LoneFinding]:
    """Findings worth a look that only one run has, by their first step."""
    sides = {"a": a.snapshot.findings, "b": b.snapshot.findings}
    rules = {side: {(each.rule, each.key) for each in findings} for side, findings in sides.items()}
    lone = [
        LoneFinding(side, each, each.first_step <= last)
        for side, findings in sides.items()
        for each in findings
        if (each.rule, each.key) not in rules["b" if side == "a" else "a"] and each.severity is not Severity.INFO
    ]
    yield from sorted(lone, key=lambda each: (each.finding.first_step, each.of, each.finding.rule))


def document(comparison: Comparison) -> dict[str, Any]:
    """The JSON document of ``diff`` (schema ``grpo-watch/diff/1``); holds strict JSON values only."""
    return {
        "schema": SCHEMA,
        "verdict": comparison.verdict,
        "parted_step": comparison.step,
        "common_steps": {
            "count": len(comparison.steps),
            "first": comparison.steps[0] if comparison.steps else None,
            "last": comparison.steps[-1] if comparison.steps else None,
        },
        "runs": {"a": brief(comparison.a.snapshot), "b": brief(comparison.b.snapshot)},
        "metrics": [_metric_document(metric) for metric in comparison.metrics],
        "settings": [
            {"setting": name, "a": _setting(pair[0]), "b": _setting(pair[1])}
            for name, pair in comparison.settings.items()
        ],
        "findings": [_finding(lone) for lone in comparison.findings],
    }


def _metric_document(metric: ComparedMetric) -> dict[str, Any]:
    found = metric.parting or Parting(0, None)
    return {
        "metric": metric.name,
        "status": metric.status,
        "counted": metric.counted,
        "rows": found.rows,
        "differs_step": found.differs,
        "parted_step": found.step,
        "a": strict(found.a),
        "b": strict(found.b),
        "noise": found.noise,
    }


def _setting(setting: Setting | None) -> dict[str, Any] | None:
    return None if setting is None else {"value": strict(setting.value), "origin": setting.origin}


def _finding(lone: LoneFinding) -> dict[str, Any]:
    finding = lone.finding
    details = {"summary": finding.summary, "caused_by": finding.caused_by}
    return {"only_in": lone.of, "counted": lone.counted, **episode(finding), **details}
