"""The reward functions of a row, their weights in the total, and whether advantages agree with these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isfinite
from typing import NamedTuple

from grpo_watch.engine.metric_names import labelled, split_label
from grpo_watch.engine.records import GroupSummary, MetricRow
from grpo_watch.engine.window import plain_sum

ADVANTAGE = "advantage"


def weights_in(value: object) -> tuple[float, ...]:
    """The weights in a setting: numbers, or a text of numbers with spaces, commas or brackets; empty if it holds none.

    ``[1.0, -0.5]`` (YAML, JSON), ``"1.0 -0.5"`` (a command line) and ``0.5`` (one function) are weights; null, NaN,
    infinities and anything else are not.
    """
    if isinstance(value, str):
        parts: Sequence[object] = value.strip().strip("[]()").replace(",", " ").split()
    else:
        parts = value if isinstance(value, (list, tuple)) else (value,)
    try:
        found = tuple(float(part) for part in parts if not isinstance(part, bool))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return ()
    return found if len(found) == len(parts) and all(map(isfinite, found)) else ()


def spelled(value: object) -> str | None:
    """Weights as a setting holds them (``1 -0.5 0``); None if the value is no list of weights."""
    return " ".join(f"{weight:.12g}" for weight in weights_in(value)) or None


def names_of(group: GroupSummary) -> list[str]:
    """The dumped columns that are scores of a reward function."""
    return [name for name in group.rewards if not name.startswith(ADVANTAGE)]


def whole_columns(group: GroupSummary) -> dict[str, list[float]]:
    """The group's scores by function, and its advantages; empty if a value is missing or not finite."""
    found = {name: [score for score in scores if score is not None] for name, scores in group.rewards.items()}
    whole = all(len(scores) == group.size and all(map(isfinite, scores)) for scores in found.values())
    return found if whole else {}


def fit(groups: Sequence[GroupSummary], weights: Sequence[float]) -> bool:
    """Whether there is one weight for each function of every scored group."""
    scored = [names for group in groups if (names := names_of(group))]
    return bool(weights and scored) and all(len(names) == len(weights) for names in scored)


def weighed(groups: tuple[GroupSummary, ...], weights: Sequence[float]) -> tuple[GroupSummary, ...]:
    """The groups with scores multiplied by their weights, and without functions of weight 0.

    Weights that do not fit change nothing; nor do weights that are all 0, which leave no total.
    """
    if not fit(groups, weights) or not any(weights) or all(weight == 1.0 for weight in weights):
        return groups
    return tuple(replace(group, rewards=_times(group, weights)) if names_of(group) else group for group in groups)


def _times(group: GroupSummary, weights: Sequence[float]) -> Mapping[str, tuple[float | None, ...]]:
    columns = dict(group.rewards)
    for name, weight in zip(names_of(group), weights, strict=True):
        if weight == 0.0:
            del columns[name]
        else:
            columns[name] = tuple(None if score is None else weight * score for score in columns[name])
    return columns


TOTALS = ("total", "total_reward", "overall", "reward", "sum")
"""Names under which scripts log the weighted total beside its components."""

LAYOUTS = 64
"""Most layouts remembered (bounds memory if every row differs)."""


class RewardFunctionKeys(NamedTuple):
    """One reward function: the keys of its mean and its standard deviation, and its weight in the total."""

    name: str
    mean: str
    std: str
    weight: float = 1.0


class RewardFunctions:
    """Caches the functions of each layout (rows of one run have two or three), and the answer for the last row.

    One instance per run: several rules ask about the same row. ``weights`` are those of the run's settings, in the
    functions' order; empty if unset, which means 1 for each. Weights that don't match the number of functions belong to
    something else and are ignored.
    """

    __slots__ = ("_known", "_last", "_row", "weights")

    def __init__(self, weights: tuple[float, ...] = ()) -> None:
        self.weights = weights
        self._row: MetricRow | None = None
        self._last: tuple[RewardFunctionKeys, ...] = ()
        self._known: dict[tuple[str, ...], tuple[RewardFunctionKeys, ...]] = {}

    def of(self, row: MetricRow) -> tuple[RewardFunctionKeys, ...]:
        """The functions whose mean this row carries, in the row's order; totals are left out if there are others."""
        if row is self._row:
            return self._last
        layout = tuple(row.values)
        known = self._known.get(layout)
        if known is None:
            if len(self._known) >= LAYOUTS:
                self._known.clear()
            known = self._known[layout] = _found(row, self.weights)
        self._row, self._last = row, known
        return known

    def weigh(self, weights: tuple[float, ...]) -> None:
        """Set the weights of the functions."""
        if weights != self.weights:
            self.weights, self._row = weights, None
            self._known.clear()

    def weighed(self, groups: tuple[GroupSummary, ...]) -> tuple[GroupSummary, ...]:
        """Dumped groups with weighted scores."""
        return weighed(groups, self.weights)


def _found(row: MetricRow, weights: tuple[float, ...]) -> tuple[RewardFunctionKeys, ...]:
    names = [label for metric, label in map(split_label, row.values) if metric == "reward_function_mean" and label]
    parts = [name for name in names if name.lower() not in TOTALS] or names
    known = weights if len(weights) == len(parts) else (1.0,) * len(parts)
    return tuple(
        RewardFunctionKeys(name, labelled("reward_function_mean", name), labelled("reward_function_std", name), weight)
        for name, weight in zip(parts, known, strict=True)
    )


FLOAT = 1e-6
"""Rounding error of a sum of numbers near 1. Rows of 17 public runs agree to 7e-6 of their largest number; those of the
one whose weights are not all 1 differ by as much as the total."""
CLEAR = 0.01
"""Difference below which two advantages count as equal up to rounding."""


def contradicted(groups: Sequence[GroupSummary]) -> bool:
    """Whether the advantages contradict the sum of the scores as the total.

    In some group, a completion with the higher sum has the clearly lower advantage. Unlogged weights cause that, and so
    do advantages computed from more than rewards: the sums are then not reliable.
    """
    return any(_turned(group) for group in groups if group.prompts == 1)


def _turned(group: GroupSummary) -> bool:
    names, advantages = names_of(group), group.rewards.get(ADVANTAGE)
    if advantages is None or len(names) < 2:  # noqa: PLR2004  one function has one order
        return False
    scored = zip(*(group.rewards[name] for name in names), strict=True)
    known = sorted(
        (plain_sum(scores), advantage)
        for scores, advantage in zip(scored, advantages, strict=True)
        if advantage is not None and None not in scores
    )
    return any(
        high - low > FLOAT * max(1.0, abs(high)) and before - after > CLEAR
        for (low, before), (high, after) in pairwise(known)
    )
