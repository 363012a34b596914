"""Turns the reports of two runs into one answer: where they part, in what, and how else they differ."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from grpo_watch.advisories.judge import VERSION_OF
from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.metric_names import SETTINGS
from grpo_watch.engine.records import Setting, Severity
from grpo_watch.report.check_document import RunReport, brief, episode
from grpo_watch.report.series import Floats, Integers, Series
from grpo_watch.safe_text import strict

WINDOW = 10
"""Rows whose median counts; a median of ten independent rows scatters by 0.4 of their noise."""
FEWEST = 5
"""Common rows below which there is no verdict; with fewer than ten, all of them are the window."""
TIMES = 3.0
"""Noises that a difference must exceed; seven standard errors of the median of ten independent rows."""
MAD = 1.4826
"""Median absolute deviation → standard deviation, of normal noise."""
MEAN_SIZE = 1.2533
"""Mean absolute deviation → standard deviation, of normal noise: √(π/2)."""
LEAST = 1e-6
"""Differences below this share of the values are arithmetic: float32 keeps seven digits."""


@dataclass(frozen=True, slots=True)
class StepColumn:
    """One metric of a run: ascending optimizer steps and as many values (NaN: no value)."""

    steps: Integers
    values: Floats


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two columns part; steps are optimizer steps, None where they do not.

    ``differs`` is the first step with different values at all; ``step`` the first that noise does not explain, with the
    values ``a`` and ``b`` there and the ``noise`` (a standard deviation) it was judged by.
    """

    rows: int
    differs: int | None
    step: int | None = None
    a: float | None = None
    b: float | None = None
    noise: float | None = None


def part(a: StepColumn, b: StepColumn, resolution: float = 0.0, *, exact: bool = False) -> Parting:
    """Compare two columns; ``resolution`` is the coarser printed digit.

    Two runs have parted where the median difference of ten consecutive common rows is more than three times the noise;
    the step is the first of those rows that lies that far off to the same side. The noise is what the difference
    changes by from one common row to the next, over all common rows before (for the first ten: over themselves), as a
    standard deviation (1.4826 × median of the sizes of the changes / √2). So a drift is no noise, two runs that were
    equal so far part at the first lasting difference, and a single odd row parts nothing.

    ``exact`` is for what is set and not measured (a learning rate): there is no noise, any difference counts.
    """
    steps, of_a, of_b = np.intersect1d(a.steps, b.steps, return_indices=True)
    left, right = a.values[of_a], b.values[of_b]
    both = ~(np.isnan(left) | np.isnan(right))
    steps, left, right = steps[both], left[both], right[both]
    difference = right - left
    floor = np.maximum(resolution, LEAST * np.maximum(np.abs(left), np.abs(right)))
    unequal = np.flatnonzero(np.abs(difference) > floor)
    differs = int(steps[unequal[0]]) if len(unequal) else None
    window = min(WINDOW, len(steps))
    if differs is None or window < FEWEST:
        return Parting(len(steps), differs)
    noise = np.zeros(len(steps)) if exact else noise_before(difference, window)
    found = _first(difference, np.maximum(floor, TIMES * noise), window)
    if found is None:
        return Parting(len(steps), differs)
    begin, at = found
    return Parting(len(steps), differs, int(steps[at]), float(left[at]), float(right[at]), float(noise[begin]))


def noise_before(difference: Floats, window: int) -> Floats:
    """The noise by which each window of rows is judged, at the row that it begins with."""
    sizes = np.abs(np.diff(difference))
    spread = MAD * _running_medians(sizes)
    mean = MEAN_SIZE * np.cumsum(sizes) / np.arange(1, len(sizes) + 1)
    known = np.where(spread > 0, spread, mean) / np.sqrt(2)  # of the changes up to each
    before = np.arange(len(difference)) - 2  # the last change that lies wholly before the row
    result: Floats = known[np.maximum(before, window - 2)]
    return result


def _running_medians(values: Floats) -> Floats:
    """The median of all values up to each."""
    ordered: list[float] = []
    medians = np.empty(len(values))
    for at, value in enumerate(values.tolist()):
        insort(ordered, value)
        medians[at] = (ordered[at // 2] + ordered[(at + 1) // 2]) / 2
    return medians


def _first(difference: Floats, limits: Floats, window: int) -> tuple[int, int] | None:
    """The first window whose median is beyond its limit, and the first of its rows that is, to the same side."""
    medians = np.median(np.lib.stride_tricks.sliding_window_view(difference, window), axis=1)
    beyond = np.flatnonzero(np.abs(medians) > limits[: len(medians)])
    if not len(beyond):
        return None
    begin = int(beyond[0])
    side = np.sign(medians[begin]) * difference[begin : begin + window]
    return begin, begin + int(np.flatnonzero(side > limits[begin])[0])


SCHEMA = "grpo-watch/diff/1"
EXACT = frozenset({"learning_rate", "epoch"})
"""Metrics that are set and not measured: they have no noise."""
LISTED = frozenset({"step_seconds", "step_seconds_average", "memory_gib", "tokens_seen"})
"""Metrics that are compared but never count: they depend on the machine, or add up the noise of another metric."""


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """One metric in both runs; ``parting`` is None where only one has it, ``lacking`` then names the other (a, b)."""

    name: str
    parting: Parting | None
    lacking: str | None = None

    @property
    def counted(self) -> bool:
        """Whether the runs part where this metric parts."""
        return self.name not in LISTED

    @property
    def judged(self) -> bool:
        """Whether there were enough common rows for a verdict."""
        return self.parting is not None and (self.parting.rows >= FEWEST or self.parting.step is not None)

    @property
    def status(self) -> str:
        """``parted``, ``differs`` (noise explains it), ``same``, ``only-a``, ``only-b`` or ``too-few`` common rows."""
        if self.parting is None:
            return "only-a" if self.lacking == "b" else "only-b"
        if not self.judged:
            return "too-few"
        if self.parting.step is not None:
            return "parted"
        return "same" if self.parting.differs is None else "differs"


@dataclass(frozen=True, slots=True)
class LoneFinding:
    """A finding that only one of the runs (a, b) has; ``counted`` where the other run has come to its step too."""

    of: str
    finding: Finding
    counted: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, side by side. ``steps`` are the optimizer steps that both logged; ``step`` is where they part."""

    a: RunReport
    b: RunReport
    steps: tuple[int, ...]
    metrics: tuple[ComparedMetric, ...]
    settings: Mapping[str, tuple[Setting | None, Setting | None]]
    findings: tuple[LoneFinding, ...]

    @property
    def parted(self) -> list[ComparedMetric]:
        """The metrics that part, those first that part first; those that do not count last."""
        found = [(metric, metric.parting.step) for metric in self.metrics if metric.parting]
        parted = [(not metric.counted, step, metric.name, metric) for metric, step in found if step is not None]
        return [metric for *_, metric in sorted(parted, key=lambda each: each[:3])]

    @property
    def step(self) -> int | None:
        """The first step at which they part; None where they do not."""
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
    steps = tuple(np.intersect1d(left.steps, right.steps).tolist())
    names = sorted(left.names | right.names)
    metrics = tuple(_metric(name, left, right) for name in names)
    return Comparison(a, b, steps, metrics, dict(_settings(a, b)), tuple(_findings(a, b, steps[-1] if steps else -1)))


class RunColumns:
    """The series of one run as columns by step, without what a restart threw away."""

    def __init__(self, series: Series) -> None:
        attempts, steps = series.places
        kept = np.flatnonzero(~series.superseded())
        self.series, self._kept = series, kept[np.lexsort((attempts[kept], steps[kept]))]
        self.steps = steps[self._kept]
        self.names = {name for name in series.metrics if name in series.odd or not np.isnan(self.values(name)).all()}

    def values(self, name: str) -> Floats:
        """The metric's values, in the order of ``steps``."""
        chosen: Floats = self.series.column(name)[self._kept]
        return chosen

    def column(self, name: str) -> StepColumn:
        """The metric by step."""
        return StepColumn(self.steps, self.values(name))

    def value(self, name: str, step: int) -> float:
        """The metric at a step that the run logged."""
        return float(self.values(name)[np.searchsorted(self.steps, step)])

    def odd(self, name: str) -> set[int]:
        """The steps at which it was logged as NaN or infinite."""
        chosen = np.isin(self._kept, self.series.odd.get(name, []))
        return set(self.steps[chosen].tolist())


def _metric(name: str, a: RunColumns, b: RunColumns) -> ComparedMetric:
    if name not in a.names or name not in b.names:
        return ComparedMetric(name, None, "b" if name in a.names else "a")
    resolution = max(a.series.resolution or 0.0, b.series.resolution or 0.0)
    found = part(a.column(name), b.column(name), resolution, exact=name in EXACT)
    common = set(a.steps.tolist()) & set(b.steps.tolist())
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
        unknown = name.startswith(VERSION_OF) and None in pair  # read from a file that only one of them has
        if values[0] != values[1] and not unknown:
            yield name, pair


def _findings(a: RunReport, b: RunReport, last: int) -> Iterator[LoneFinding]:
    """Findings worth a look that only one has, by their first step."""
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
