"""Turns the rows of a run into the numbers that the charts of the report and of the status page draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from grpo_watch.core.diagnosis import Finding
from grpo_watch.core.names import split_label
from grpo_watch.core.records import Severity
from grpo_watch.runtime.thin import Flags, Floats, Integers, telling_rows

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


class Rows(Protocol):
    """The rows of one run: all of them, or thinned ones."""

    def __len__(self) -> int:
        """How many there are."""

    @property
    def metrics(self) -> Sequence[str]:
        """Names of all metrics that were logged, sorted."""

    @property
    def places(self) -> tuple[Integers, Integers]:
        """Attempt and optimizer step of each row, in the order in which they came."""

    def column(self, name: str) -> Floats:
        """The values of one metric, one for each row; NaN where there is none."""

    def odd_values(self, name: str) -> int:
        """How many values of a metric were logged as NaN or infinite."""


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
    """Columns over ascending places (steps, or times); what a restart threw away stands in columns of its own."""

    places: Integers | Floats
    columns: dict[str, Floats] = field(default_factory=dict)


def charts(rows: Rows, points: int = POINTS, times: Floats | None = None) -> list[dict[str, Any]]:
    """The charts of a run for which there is anything to draw, as JSON values.

    Each has ``title``, ``x`` (ascending: the drawn optimizer steps, or times in Unix seconds where the ``times`` of the
    rows are given), ``rows`` (how many there are to draw), ``lines`` (``name``, ``y`` with None where there is no
    value, ``faint`` for what a restart threw away, ``sparse``), and ``odd``, the count of values that are no numbers.
    """
    found = []
    for kind in KINDS:
        names = _logged(rows, kind.metrics) or _logged(rows, kind.instead)
        if names:
            table = tabulate(rows, names) if times is None else tabulate_by_time(rows, names, times)
            found.append(_chart(rows, kind.title, names, table, points))
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


def superseded(attempts: Integers, steps: Integers) -> Flags:
    """Whether a later attempt went back to each row's step or before it: what it computed was thrown away."""
    lost = np.zeros(len(steps), dtype=bool)
    for attempt in np.unique(attempts)[1:]:
        lost |= (attempts < attempt) & (steps >= steps[attempts == attempt].min())
    return lost


def _logged(rows: Rows, metrics: Sequence[str]) -> list[str]:
    """The metrics of a chart that the run has, each with its labelled ones."""
    found: list[str] = []
    for metric in metrics:
        matching = [name for name in rows.metrics if split_label(name)[0] == metric]
        alone = len(matching) == 1 and matching[0] != metric and found  # one reward function is the total
        found += [] if alone else matching[:FUNCTIONS]
    return found


def _chart(rows: Rows, title: str, names: Sequence[str], table: Table, points: int) -> dict[str, Any]:
    chosen = telling_rows(list(table.columns.values()), points)
    odd = sum(rows.odd_values(name) for name in names)
    lines = [_line(name, column[chosen], lost=name not in names) for name, column in table.columns.items()]
    places = table.places[chosen].tolist()
    return {"title": title, "x": places, "rows": len(table.places), "lines": lines, "odd": odd}


def tabulate(rows: Rows, names: Sequence[str]) -> Table:
    """The metrics by step; of several attempts at one step the newest counts.

    Of the first metric, what a restart threw away is kept in a column of its own.
    """
    attempts, places = rows.places
    lost = superseded(attempts, places)
    steps, inverse = np.unique(places, return_inverse=True)
    order = np.argsort(attempts, kind="stable")
    table = Table(steps)
    for name in names:
        values = rows.column(name)
        parts = {name: ~lost, f"{name} {LOST}": lost} if name == names[0] else {name: ~lost}
        for label, chosen in parts.items():
            given = order[chosen[order] & ~np.isnan(values[order])]
            if len(given) or label == name:
                column = np.full(len(steps), np.nan)
                column[inverse[given]] = values[given]
                table.columns[label] = column
    return table


def tabulate_by_time(rows: Rows, names: Sequence[str], times: Floats) -> Table:
    """The metrics over the time (Unix seconds) of each row that has one; all attempts follow each other."""
    moments, first = np.unique(times, return_index=True)
    known = ~np.isnan(moments)
    return Table(moments[known], {name: rows.column(name)[first[known]] for name in names})


def _line(name: str, column: Floats, *, lost: bool) -> dict[str, Any]:
    values = [None if np.isnan(value) else float(f"{value:.{DIGITS}g}") for value in column]
    given = sum(value is not None for value in values)
    return {"name": name, "y": values, "faint": lost, "sparse": given < SPARSE * len(values)}
