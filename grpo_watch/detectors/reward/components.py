"""The reward functions of a run's rows and their share in the total: windows, stretches of rows and their medians."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import combinations
from statistics import median
from typing import NamedTuple

from grpo_watch.detectors.reward.scored_groups import CancellingFunctions
from grpo_watch.detectors.shared.advantages import FLOAT
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow
from grpo_watch.engine.reward_functions import RewardFunctionKeys
from grpo_watch.engine.window import correlation, plain_sum, spread

LEAST_NOISE = 1e-3


class WindowMedian(NamedTuple):
    """``error`` is the standard error of ``middle``; ``floor`` the lowest value so far, at most 0."""

    middle: float
    error: float
    floor: float

    def above(self, other: WindowMedian, errors: float) -> bool:
        """Whether this block is higher than the other by so many standard errors."""
        return self.middle - other.middle > errors * max(self.error, other.error)


class WindowMedians:
    """The newest ``keep`` blocks of one series, and the values of the one that is being filled."""

    __slots__ = ("floor", "kept", "values")

    def __init__(self, keep: int) -> None:
        self.kept: deque[WindowMedian] = deque(maxlen=keep)
        self.values: list[float] = []
        self.floor = 0.0

    def close(self) -> None:
        """Make a block of the values so far; nothing where there are none."""
        if not self.values:
            return
        ordered = sorted(self.values)
        self.floor = min(self.floor, ordered[0])
        # 1.25 / sqrt(n): the standard error of a median of normal values
        error = 1.25 * max(spread(ordered), LEAST_NOISE) / len(ordered) ** 0.5
        self.kept.append(WindowMedian(median(ordered), error, self.floor))
        self.values = []

    def middles(self, back: int) -> list[float]:
        """The medians of the newest block and the ``back`` ones before it."""
        return [block.middle for block in list(self.kept)[-1 - back :]]


PRINTED = 5e-4
"""Largest share of a number that four significant digits leave out (transformers 5 prints four)."""
ODD = 0.1
"""Share of rows that do not add up from which the weights are not known; a repeated or torn row may be one."""
UNKNOWN = (
    "the total reward is not the sum of its functions, and no weights are known that make it so "
    "(--set reward_weights='1 -0.5 0', in the order of the functions)"
)
"""Why a rule is blind that needs to know what each function counts."""

Keys = Sequence[RewardFunctionKeys]


def scores_of(row: MetricRow, keys: Keys) -> list[float | None]:
    """The functions' means in a row."""
    return [number(row, key.mean) for key in keys]


class WeightedSums:
    """Over the rows so far, whether the logged total is the sum of the functions' means, each times its weight."""

    def __init__(self) -> None:
        self._rows = self._odd = 0

    def take(self, total: float, scores: Sequence[float], weights: Sequence[float]) -> None:
        """Account for a row that has the mean of every function."""
        parts = [weight * score for score, weight in zip(scores, weights, strict=True)]
        off = abs(total - plain_sum(parts))
        self._rows += 1
        self._odd += off > FLOAT + PRINTED * (abs(total) + plain_sum(map(abs, parts)))

    @property
    def wrong(self) -> bool:
        """Whether so many rows do not add up that the weights are not known."""
        return self._odd > ODD * self._rows


class ComponentWindows:
    """The newest ``rows`` totals, and scores times their weights, of rows that have the mean of every function."""

    def __init__(self, rows: int) -> None:
        self.rows, self.seen, self.sums = rows, 0, WeightedSums()
        self.total: deque[float] = deque(maxlen=rows)
        self._parts: dict[str, deque[float]] = {}

    def take(self, total: float, keys: Keys, scores: Sequence[float]) -> None:
        """Account for a row; there may be fewer scores than functions, the first ones."""
        if len(scores) == len(keys):
            self.sums.take(total, scores, [key.weight for key in keys])
        self.seen += 1
        self.total.append(total)
        for key, score in zip(keys, scores, strict=False):
            if key.name not in self._parts:
                self._parts[key.name] = deque(maxlen=self.rows)
            self._parts[key.name].append(key.weight * score)

    def cancelling(self, at_most: float, quiet: float, floor: float) -> CancellingFunctions | None:
        """The first two functions whose scores cancel from row to row; None where no two do.

        Args:
            at_most: the correlation of the two, at most.
            quiet: the spread of the total, at most, as a share of the smaller one's.
            floor: the spread from which a function is worth a look.
        """
        spreads = {name: spread(sorted(part)) for name, part in self._parts.items() if len(part) == self.rows}
        total = spread(sorted(self.total))
        moving = [name for name, value in spreads.items() if value >= max(floor, total / quiet)]
        for one, other in combinations(moving, 2):
            related = correlation(self._parts[one], self._parts[other])
            if related <= at_most:
                return CancellingFunctions(one, other, related, total / min(spreads[one], spreads[other]))
        return None


class ComponentMedians:
    """Blocks of rows of the total and of each function that counts; of a negative weight, with the score turned round.

    A function of weight 0 only measures: what it loses does not count in the reward.
    """

    def __init__(self, keep: int) -> None:
        self.keep, self.sums = keep, WeightedSums()
        self.total, self.parts = WindowMedians(keep), dict[str, WindowMedians]()
        self._turned: set[str] = set()

    def take(self, total: float, keys: Keys, scores: Sequence[float | None]) -> None:
        """Account for a row; a function without a score (None) is left out of it."""
        self.total.values.append(total)
        known = [score for score in scores if score is not None]
        if len(known) == len(keys):
            self.sums.take(total, known, [key.weight for key in keys])
        for key, score in zip(keys, scores, strict=True):
            if score is None or key.weight == 0.0:
                continue
            if key.name not in self.parts:
                self.parts[key.name] = WindowMedians(self.keep)
            if key.weight < 0.0:
                self._turned.add(key.name)
            self.parts[key.name].values.append(-score if key.weight < 0.0 else score)

    def close(self) -> None:
        """End a block."""
        for series in (self.total, *self.parts.values()):
            series.close()

    def whole(self, name: str) -> bool:
        """Whether the function has as many blocks as the total."""
        return len(self.parts[name].kept) == len(self.total.kept)

    def change(self, name: str, part: Sequence[float]) -> tuple[float, float, str]:
        """How a function got worse, as it is logged: before, now, and in words."""
        before, now = part[0], part[-1]
        if name not in self._turned:
            return before, now, f"{name} fell from {before:.3g} to {now:.3g}"
        return -before, -now, f"{name}, whose weight is negative, rose from {-before:.3g} to {-now:.3g}"
