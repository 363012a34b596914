"""Turns the thinned rows of a run into the sparklines of the overview: a few small numbers for each metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_watch.report.charts import ThinnedColumns, superseded

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
class Sparkline:
    """``x`` and ``y`` from 0 to ``LEVELS``, over the run's steps and from ``low`` to ``high``; ``last``: the newest."""

    metric: str
    x: Sequence[int]
    y: Sequence[int]
    low: float
    high: float
    last: float


def sparks(rows: ThinnedColumns) -> dict[str, Sparkline]:
    """The sparkline of each of ``SHOWN`` that was logged; ``unique`` is 1 less the share of repeats."""
    found = {}
    lost = superseded(rows.attempts, rows.steps)
    for name, metrics in SHOWN:
        metric = next((metric for metric in metrics if metric in rows.columns), None)
        if metric is not None:
            given = [
                (step, max(-MOST, min(1.0 - value if name == "unique" else value, MOST)))
                for step, value, thrown in zip(rows.steps, rows.columns[metric], lost, strict=True)
                if value is not None and not thrown
            ]
            if given:
                found[name] = _spark(metric, given, min(rows.steps), max(rows.steps))
    return found


def _spark(metric: str, given: Sequence[tuple[int, float]], begin: int, end: int) -> Sparkline:
    values = [value for _, value in given]
    low, high = min(values), max(values)
    shown = [given[at] for at in _telling(values)]
    flat = LEVELS // 2 if low else 0
    across, up = LEVELS / max(1, end - begin), LEVELS / (high - low) if high > low else 0.0
    return Sparkline(
        metric,
        [round((step - begin) * across) for step, _ in shown],
        [round((value - low) * up) if up else flat for _, value in shown],
        low,
        high,
        values[-1],
    )


def _telling(values: Sequence[float]) -> list[int]:
    """The first place and the last, and of each of equal stretches those of its lowest and highest value."""
    width = max(1, -(-2 * len(values) // (POINTS - 2)))
    stretches = [range(at, min(at + width, len(values))) for at in range(0, len(values), width)]
    ends = {end(stretch, key=values.__getitem__) for stretch in stretches for end in (min, max)}
    return sorted({0, len(values) - 1} | ends)
