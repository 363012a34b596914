"""Turns the series of a run into the numbers that a page's charts draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grpo_watch.core.diagnosis import Finding
from grpo_watch.core.names import split_label
from grpo_watch.core.records import Severity
from grpo_watch.report.series import Floats, Integers, Series
from grpo_watch.report.thin import telling_rows

POINTS = 700
"""Steps that one chart shows at most; a line is a few hundred pixels wide."""
FUNCTIONS = 6
"""Reward functions drawn beside the total."""
DIGITS = 5
"""Significant digits of a drawn number."""
LOST = "before the restart"
"""What a restart threw away, in the legend."""
SPARSE = 0.5
"""A line with values in fewer of its rows than this is drawn with points, joined over the gaps."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One chart: its title and the metrics it may show; ``instead`` stand in where none of these was logged."""

    title: str
    metrics: tuple[str, ...]
    instead: tuple[str, ...] = ()


KINDS = (
    Kind("Reward", ("reward_mean", "reward_function_mean")),
    Kind(
        "Reward spread, and share of groups without any",
        ("reward_group_std", "reward_zero_std_ratio"),
        ("reward_batch_std",),
    ),
    Kind("KL to the reference", ("kl_reference",)),
    Kind("Entropy", ("entropy",)),
    Kind("Completion length (tokens)", ("completion_length_mean", "completion_length_min", "completion_length_max")),
    Kind("Completions cut off or repeated (share)", ("completion_truncated_ratio", "completion_duplicate_ratio")),
    Kind("Gradient norm", ("grad_norm",)),
    Kind("Learning rate", ("learning_rate",)),
    Kind("Tensors that changed since the checkpoint before (share)", ("parameters_changed_ratio",)),
    Kind("Trainer against rollout engine", ("logprob_gap_rollout", "probability_gap_rollout", "kl_rollout")),
)


@dataclass(slots=True)
class Table:
    """Columns over ascending steps; what was thrown away by a restart stands in columns of its own."""

    steps: Integers
    columns: dict[str, Floats] = field(default_factory=dict)


def charts(series: Series, points: int = POINTS) -> list[dict[str, Any]]:
    """The charts of a run for which there is anything to draw, as JSON values.

    Each has ``title``, ``x`` (the drawn optimizer steps, ascending), ``rows`` (how many steps there are), ``lines``
    (``name``, ``y`` with None where there is no value, ``faint`` for what a restart threw away, ``sparse``), and
    ``odd``, the count of values that are no numbers.
    """
    found = []
    for kind in KINDS:
        names = _logged(series, kind.metrics) or _logged(series, kind.instead)
        if names:
            found.append(_chart(series, kind.title, names, points))
    return found


def bands(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """The stretches of steps that alerts worth a look cover, those last that nothing explains."""
    return [
        {
            "rule": finding.rule,
            "severity": finding.severity.value,
            "first": finding.first_step,
            "fired": finding.fired_step,
            "resolved": finding.resolved_step,
            "explained": finding.caused_by is not None,
        }
        for finding in sorted(findings, key=lambda each: each.caused_by is None)
        if finding.severity is not Severity.INFO
    ]


def _logged(series: Series, metrics: Sequence[str]) -> list[str]:
    """The metrics of a chart that the run has, each with its labelled ones."""
    found: list[str] = []
    for metric in metrics:
        matching = [name for name in series.metrics if split_label(name)[0] == metric]
        alone = len(matching) == 1 and matching[0] != metric and found  # one reward function is the total
        found += [] if alone else matching[:FUNCTIONS]
    return found


def _chart(series: Series, title: str, names: Sequence[str], points: int) -> dict[str, Any]:
    table = tabulate(series, names)
    rows = telling_rows(list(table.columns.values()), points)
    odd = sum(len(series.odd.get(name, ())) for name in names)
    lines = [_line(name, column[rows], lost=name not in names) for name, column in table.columns.items()]
    steps = table.steps[rows].tolist()
    return {"title": title, "x": steps, "rows": len(table.steps), "lines": lines, "odd": odd}


def tabulate(series: Series, names: Sequence[str]) -> Table:
    """The metrics by step; of several attempts at one step the newest counts.

    Of the first metric, what a restart threw away is kept in a column of its own.
    """
    attempts, places = series.places
    lost = series.superseded()
    steps, inverse = np.unique(places, return_inverse=True)
    order = np.argsort(attempts, kind="stable")
    table = Table(steps)
    for name in names:
        values = series.column(name)
        parts = {name: ~lost, f"{name} {LOST}": lost} if name == names[0] else {name: ~lost}
        for label, chosen in parts.items():
            rows = order[chosen[order] & ~np.isnan(values[order])]
            if len(rows) or label == name:
                column = np.full(len(steps), np.nan)
                column[inverse[rows]] = values[rows]
                table.columns[label] = column
    return table


def _line(name: str, column: Floats, *, lost: bool) -> dict[str, Any]:
    values = [None if np.isnan(value) else float(f"{value:.{DIGITS}g}") for value in column]
    given = sum(value is not None for value in values)
    return {"name": name, "y": values, "faint": lost, "sparse": given < SPARSE * len(values)}
