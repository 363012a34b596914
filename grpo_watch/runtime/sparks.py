"""Turns the thinned rows of a run into the sparklines of the overview: a few small numbers for each metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grpo_watch.runtime.charts import superseded
from grpo_watch.runtime.thin import Floats, Integers, telling_rows
from grpo_watch.runtime.thinned import Thinned

POINTS = 40
LEVELS = 63
"""Points of a sparkline, and the greatest of its numbers across and up."""
MOST = 1e300
"""Beyond it, the difference of two numbers may be none."""
SHOWN = (
    ("reward", ("reward_mean",)),
    ("kl", ("kl_reference",)),
    ("spread", ("reward_group_std", "reward_batch_std")),
    ("unique", ("completion_duplicate_ratio",)),
    ("entropy", ("entropy",)),
    ("truncated", ("completion_truncated_ratio",)),
)
"""What is shown, and the metric that it is drawn from: the first that was logged."""
DRAWN = tuple(metric for _, metrics in SHOWN for metric in metrics)


@dataclass(frozen=True, slots=True)
class Spark:
    """``x`` and ``y`` from 0 to ``LEVELS``, over the run's steps and from ``low`` to ``high``; ``last``: the newest."""

    metric: str
    x: Sequence[int]
    y: Sequence[int]
    low: float
    high: float
    last: float


def sparks(rows: Thinned) -> dict[str, Spark]:
    """The sparkline of each of ``SHOWN`` that was logged; ``unique`` is 1 less the share of repeats."""
    found = {}
    attempts, steps = rows.places
    lost = superseded(attempts, steps)
    for name, metrics in SHOWN:
        metric = next((metric for metric in metrics if metric in rows.columns), None)
        if metric is not None:
            values = rows.column(metric)
            values[lost] = np.nan
            spark = _spark(metric, 1.0 - values if name == "unique" else values, steps)
            if spark is not None:
                found[name] = spark
    return found


def _spark(metric: str, values: Floats, steps: Integers) -> Spark | None:
    values = np.clip(values, -MOST, MOST)
    given = np.flatnonzero(~np.isnan(values))
    if not len(given):
        return None
    chosen = given[telling_rows([values[given]], POINTS)]
    shown = values[chosen]
    low, high = float(shown.min()), float(shown.max())
    begin, end = int(steps.min()), int(steps.max())
    across = np.rint((steps[chosen] - begin) * (LEVELS / max(1, end - begin))).astype(int)
    up = (
        np.rint((shown - low) * (LEVELS / (high - low)))
        if high > low
        else np.full(len(shown), LEVELS // 2 * (low != 0))
    )
    return Spark(metric, across.tolist(), up.astype(int).tolist(), low, high, float(shown[-1]))
