"""Finds the reward functions of a row: which labelled keys it carries, looked up once per set of keys."""

from __future__ import annotations

from typing import NamedTuple

from grpo_watch.core.names import labelled, split_label
from grpo_watch.core.records import MetricRow

TOTALS = ("total", "total_reward", "overall", "reward", "sum")
"""Names under which scripts log the weighted total beside its components: not a component of itself."""

LAYOUTS = 64
"""Layouts remembered at most (bounds memory where each row differs)."""


class FunctionKeys(NamedTuple):
    """One reward function and the keys of its mean and its standard deviation."""

    name: str
    mean: str
    std: str


class RewardFunctions:
    """Remembers the functions of each layout (rows of one run have two or three), and the answer for the last row.

    One instance per run: several rules ask about the same row.
    """

    __slots__ = ("_known", "_last", "_row")

    def __init__(self) -> None:
        self._row: MetricRow | None = None
        self._last: tuple[FunctionKeys, ...] = ()
        self._known: dict[tuple[str, ...], tuple[FunctionKeys, ...]] = {}

    def of(self, row: MetricRow) -> tuple[FunctionKeys, ...]:
        """The functions whose mean this row carries, in the row's order; totals are left out where others exist."""
        if row is self._row:
            return self._last
        layout = tuple(row.values)
        known = self._known.get(layout)
        if known is None:
            if len(self._known) >= LAYOUTS:
                self._known.clear()
            known = self._known[layout] = _found(row)
        self._row, self._last = row, known
        return known


def _found(row: MetricRow) -> tuple[FunctionKeys, ...]:
    names = [label for metric, label in map(split_label, row.values) if metric == "reward_function_mean" and label]
    parts = [name for name in names if name.lower() not in TOTALS] or names
    return tuple(
        FunctionKeys(name, labelled("reward_function_mean", name), labelled("reward_function_std", name))
        for name in parts
    )
