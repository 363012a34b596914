"""The reward functions in rows and dumped groups: how they make up the total, and whether advantages follow them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from operator import gt, lt
from statistics import median
from typing import NamedTuple

from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import GroupSummary, MetricRow, Scalar
from grpo_watch.engine.reward_functions import ADVANTAGE, FLOAT, RewardFunctionKeys, whole_columns
from grpo_watch.engine.window import correlation, plain_sum, spread

CENTRED = 1e-3
"""Sum of a group's advantages, as a share of the sum of their sizes, that float32 and bfloat16 rounding can leave."""
NOISE = 0.01
"""Advantages smaller than this are rounding of equal rewards (6e-8 over TRL's 1e-4 was seen)."""
COMPARED = 256
"""Most completions of a group that are compared pairwise: a group of thousands held up all other runs."""
FLOAT32 = 6e-8
"""Relative rounding of a float32."""
MOST = 12
"""Most functions that are compared pairwise."""
SIGNED = 6
"""Most functions for which every choice of negative weights is tried; beyond, one function at a time."""
RARE = 0.02
"""Largest share of contrary pairs with which signs explain the order; correct dumps of real runs have none."""
UNSCALED = frozenset({"none", "batch", "false", "gdpo"})
"""Values of ``scale_rewards`` with which advantages are not divided by their group's deviation."""
_Scores = Sequence[float]


def by_group(scale: object) -> bool | None:
    """Whether ``scale_rewards`` divides advantages by their group's deviation; None if the setting is unknown."""
    return None if scale is None else str(scale).lower() not in UNSCALED


@dataclass(frozen=True, slots=True)
class AdvantageOrder:
    """How the advantages of a batch follow its rewards.

    In ``pairs`` of completions of one group, no function scores the better one lower and some function scores it
    higher; in ``against`` of them the advantages are contrary. In ``off_centre`` of ``groups`` they do not sum to 0.
    """

    pairs: int
    against: int
    groups: int
    off_centre: int


def order_of(groups: Sequence[GroupSummary]) -> AdvantageOrder:
    """How advantages follow rewards in the groups of one prompt whose scores are all known."""
    pairs = against = judged = off = 0
    for group in groups:
        advantages, functions = _known(group)
        if advantages is None or group.prompts != 1:
            continue
        judged += 1
        sizes = plain_sum(map(abs, advantages))
        allowed = CENTRED * sizes + _rounding(sizes, functions)
        off += sizes > NOISE * group.size and abs(plain_sum(advantages)) > allowed
        clear, turned = _pairs(advantages, functions)
        pairs, against = pairs + clear, against + turned
    return AdvantageOrder(pairs, against, judged, off)


def _rounding(sizes: float, functions: Sequence[_Scores]) -> float:
    """The float32 rounding in the sum of advantages whose sizes sum to ``sizes``, whatever they were divided by.

    Large rewards that differ little are centred with the rounding of the large ones.
    """
    totals = [plain_sum(scores) for scores in zip(*functions, strict=True)]
    mean = plain_sum(totals) / len(totals)
    apart = plain_sum(abs(total - mean) for total in totals)
    largest = max(plain_sum(map(abs, scores)) for scores in zip(*functions, strict=True))
    return len(totals) * largest * FLOAT32 * sizes / apart if apart > 0.0 else 0.0


def explained_by_signs(groups: Sequence[GroupSummary], least: int) -> bool:
    """Whether the advantages follow the rewards once some functions, but not all, have a negative weight.

    That separates a length punished by its weight from a lost order, which no signs restore. Negative weights of all
    functions, or of all that move, look like advantages of the wrong sign; so the other functions must differ in more
    pairs than may be contrary. At least ``least`` pairs are needed.
    """
    judged = [(advantages, functions) for advantages, functions in map(_known, groups) if advantages is not None]
    count = max((len(functions) for _, functions in judged), default=0)
    for negative in _negative(count):
        pairs = against = telling = 0
        for advantages, functions in judged:
            signed = [[-score for score in f] if at in negative else f for at, f in enumerate(functions)]
            clear, turned = _pairs(advantages, signed)
            pairs, against = pairs + clear, against + turned
            telling += _differing(signed, [f for at, f in enumerate(functions) if at not in negative])
        if pairs >= least and against <= RARE * pairs < telling:
            return True
    return False


def _negative(count: int) -> Iterator[tuple[int, ...]]:
    for size in range(1, count if count <= SIGNED else 2):
        yield from combinations(range(count), size)


def _known(group: GroupSummary) -> tuple[list[float] | None, list[list[float]]]:
    """The advantages (None if incomplete) and the functions' scores of a group, complete columns only."""
    columns = whole_columns(group)
    functions = [column for name, column in columns.items() if name != ADVANTAGE]
    return (columns.get(ADVANTAGE) if functions else None), functions


def _pairs(advantages: _Scores, functions: Sequence[_Scores]) -> tuple[int, int]:
    """The pairs in which one completion has the higher rewards, and how many have advantages in the contrary order."""
    pairs = against = 0
    rows = islice(zip(advantages, zip(*functions, strict=True), strict=True), COMPARED)
    for (one, left), (other, right) in combinations(rows, 2):
        if left != right and (higher := _higher(left, right)):
            pairs += 1
            against += higher * (one - other) < 0
    return pairs, against


def _differing(functions: Sequence[_Scores], kept: Sequence[_Scores]) -> int:
    """Clear pairs in which one of the kept functions differs."""
    rows = zip(zip(*functions, strict=True), zip(*kept, strict=True), strict=False)  # none kept: nothing differs
    return sum(one != other and _higher(left, right) != 0 for (left, one), (right, other) in combinations(rows, 2))


def _higher(one: _Scores, other: _Scores) -> int:
    """1 if no function scores ``one`` lower and some function scores it higher: so does any weighted sum.

    -1 for ``other``, 0 if neither holds.
    """
    return any(map(gt, one, other)) - any(map(lt, one, other))


@dataclass(frozen=True, slots=True)
class CancellingFunctions:
    """Two functions that move against each other inside groups, or from row to row.

    ``left`` is the spread of their sum, as a share of the smaller one's.
    """

    one: str
    other: str
    correlation: float
    left: float

    def evidence(self) -> dict[str, Scalar]:
        """The values as evidence."""
        return {
            "components": f"{self.one}, {self.other}",
            "correlation": round(self.correlation, 3),
            "total_spread_share": round(self.left, 3),
        }


def cancelling(
    groups: Sequence[GroupSummary], at_most: float, quiet: float, floor: float
) -> CancellingFunctions | None:
    """The first pair of functions whose scores, less their group's mean, cancel; None if no pair does.

    Args:
        groups: those of one batch.
        at_most: the highest correlation of the two that counts.
        quiet: the largest spread of their sum that counts, as a share of the smaller one's.
        floor: the least root mean square inside groups of a function that is compared.
    """
    parts: dict[str, list[float]] = {}
    for name, offsets in _offsets(groups):
        parts.setdefault(name, []).extend(offsets)
    moving = {name: part for name, part in list(parts.items())[:MOST] if _size(part) >= floor}
    for one, other in combinations(moving, 2):
        left, right = moving[one], moving[other]
        if len(left) != len(right):
            continue
        related = correlation(left, right)
        share = _size([a + b for a, b in zip(left, right, strict=True)]) / min(_size(left), _size(right))
        if related <= at_most and share <= quiet:
            return CancellingFunctions(one, other, related, share)
    return None


def _offsets(groups: Sequence[GroupSummary]) -> Iterator[tuple[str, list[float]]]:
    """For each group and function whose scores are all numbers: the scores less the group's mean."""
    for group in groups:
        _, functions = _known(group)
        names = [name for name in group.rewards if name != ADVANTAGE]
        for name, scores in zip(names, functions, strict=False):
            mean = plain_sum(scores) / len(scores)
            yield name, [score - mean for score in scores]


def _size(values: Sequence[float]) -> float:
    """Root mean square."""
    return (plain_sum([value * value for value in values]) / len(values)) ** 0.5 if values else 0.0


LEAST_NOISE = 1e-3


class WindowMedian(NamedTuple):
    """A block's median; ``error`` is the standard error of ``middle``; ``floor`` the lowest value so far, at most 0."""

    middle: float
    error: float
    floor: float

    def above(self, other: WindowMedian, errors: float) -> bool:
        """Whether this block is higher than the other by more than ``errors`` standard errors."""
        return self.middle - other.middle > errors * max(self.error, other.error)


class WindowMedians:
    """The newest ``keep`` blocks of one series, and the values of the block being filled."""

    __slots__ = ("floor", "kept", "values")

    def __init__(self, keep: int) -> None:
        self.kept: deque[WindowMedian] = deque(maxlen=keep)
        self.values: list[float] = []
        self.floor = 0.0

    def close(self) -> None:
        """End the current block, if it has values."""
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
"""Largest share of a number that four significant digits lose (transformers 5 prints four)."""
ODD = 0.1
"""Share of rows that do not add up above which the weights are unknown; a repeated or torn row may not add up."""
UNKNOWN = (
    "the total reward is not the sum of its functions, and no weights are known that make it so "
    "(--set reward_weights='1 -0.5 0', in the order of the functions)"
)
"""Why a rule that needs each function's weight is blind."""

Keys = Sequence[RewardFunctionKeys]


def scores_of(row: MetricRow, keys: Keys) -> list[float | None]:
    """The functions' means in a row; None for those it lacks."""
    return [number(row, key.mean) for key in keys]


class WeightedSums:
    """Checks over the rows so far whether the logged total is the weighted sum of the functions' means."""

    def __init__(self) -> None:
        self._rows = self._odd = 0

    def add_row(self, total: float, scores: Sequence[float], weights: Sequence[float]) -> None:
        """Take a row that has the mean of every function."""
        parts = [weight * score for score, weight in zip(scores, weights, strict=True)]
        off = abs(total - plain_sum(parts))
        self._rows += 1
        self._odd += off > FLOAT + PRINTED * (abs(total) + plain_sum(map(abs, parts)))

    @property
    def wrong(self) -> bool:
        """Whether so many rows do not add up that the weights must be unknown."""
        return self._odd > ODD * self._rows


class ComponentWindows:
    """The newest ``rows`` totals and weighted scores of rows that have the mean of every function."""

    def __init__(self, rows: int) -> None:
        self.rows, self.seen, self.sums = rows, 0, WeightedSums()
        self.total: deque[float] = deque(maxlen=rows)
        self._parts: dict[str, deque[float]] = {}

    def add_row(self, total: float, keys: Keys, scores: Sequence[float]) -> None:
        """Take a row; ``scores`` may cover only the first functions."""
        if len(scores) == len(keys):
            self.sums.add_row(total, scores, [key.weight for key in keys])
        self.seen += 1
        self.total.append(total)
        for key, score in zip(keys, scores, strict=False):
            if key.name not in self._parts:
                self._parts[key.name] = deque(maxlen=self.rows)
            self._parts[key.name].append(key.weight * score)

    def cancelling(self, at_most: float, quiet: float, floor: float) -> CancellingFunctions | None:
        """The first two functions whose scores cancel from row to row; None if no two do.

        Args:
            at_most: the highest correlation of the two that counts.
            quiet: the largest spread of the total that counts, as a share of the smaller one's.
            floor: the least spread of a function that is compared.
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
    """Blocks of rows of the total and of each function with a weight; scores of negative weight are negated.

    A function of weight 0 only measures: its falls don't count in the reward.
    """

    def __init__(self, keep: int) -> None:
        self.keep, self.sums = keep, WeightedSums()
        self.total, self.parts = WindowMedians(keep), dict[str, WindowMedians]()
        self._turned: set[str] = set()

    def add_row(self, total: float, keys: Keys, scores: Sequence[float | None]) -> None:
        """Take a row; functions without a score (None) are left out."""
        self.total.values.append(total)
        known = [score for score in scores if score is not None]
        if len(known) == len(keys):
            self.sums.add_row(total, known, [key.weight for key in keys])
        for key, score in zip(keys, scores, strict=True):
            if score is None or key.weight == 0.0:
                continue
            if key.name not in self.parts:
                self.parts[key.name] = WindowMedians(self.keep)
            if key.weight < 0.0:
                self._turned.add(key.name)
            self.parts[key.name].values.append(-score if key.weight < 0.0 else score)

    def close(self) -> None:
        """End the current block of every series."""
        for series in (self.total, *self.parts.values()):
            series.close()

    def whole(self, name: str) -> bool:
        """Whether the function has as many blocks as the total."""
        return len(self.parts[name].kept) == len(self.total.kept)

    def change(self, name: str, part: Sequence[float]) -> tuple[float, float, str]:
        """How a function got worse, in logged values: before, now, and in words."""
        before, now = part[0], part[-1]
        if name not in self._turned:
            return before, now, f"{name} fell from {before:.3g} to {now:.3g}"
        return -before, -now, f"{name}, whose weight is negative, rose from {-before:.3g} to {-now:.3g}"
