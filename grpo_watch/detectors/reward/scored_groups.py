"""What the scores of a dumped batch say inside its groups: whether advantages follow rewards, what cancels what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from operator import gt, lt

from grpo_watch.engine.records import GroupSummary, Scalar
from grpo_watch.engine.reward_functions import ADVANTAGE
from grpo_watch.engine.window import correlation, plain_sum

CENTRED = 1e-3
"""Sum of a group's advantages, as a share of the sum of their sizes, that float32 and bfloat16 rounding can leave."""
NOISE = 0.01
"""Mean size of advantages below which they are rounding of equal rewards (6e-8 over TRL's 1e-4 was seen)."""
MOST = 12
"""Functions that are compared pairwise at most."""
SIGNED = 6
"""Functions of which every choice of negative weights is tried; of more, one at a time."""
RARE = 0.02
"""Share of pairs the other way round that weights with these signs leave; right dumps of real runs have none."""
_Scores = Sequence[float]


@dataclass(frozen=True, slots=True)
class AdvantageOrder:
    """How the advantages of a batch follow its rewards.

    Of ``pairs`` of completions of one group, one of which no function scores lower and one scores higher, ``against``
    have advantages the other way round; in ``off_centre`` of ``groups`` they do not sum to 0.
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
        off += sizes > NOISE * group.size and abs(plain_sum(advantages)) > CENTRED * sizes
        clear, turned = _pairs(advantages, functions)
        pairs, against = pairs + clear, against + turned
    return AdvantageOrder(pairs, against, judged, off)


def explained_by_signs(groups: Sequence[GroupSummary], least: int) -> bool:
    """Whether the advantages follow the rewards once some functions, but not all, have a negative weight.

    A length that is punished by its weight is so distinguished from a lost order, which no signs restore. All weights
    negative is what a wrong sign of the advantages looks like, and so are those of all functions that move: the others
    must differ in more pairs than may be the other way round. ``least`` pairs are needed.
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
    """Advantages and the functions' scores, where every one is a number."""
    columns = {name: [score for score in column if score is not None] for name, column in group.rewards.items()}
    if any(len(column) < group.size or not all(map(isfinite, column)) for column in columns.values()):
        return None, []
    functions = [column for name, column in columns.items() if name != ADVANTAGE]
    return (columns.get(ADVANTAGE) if functions else None), functions


def _pairs(advantages: _Scores, functions: Sequence[_Scores]) -> tuple[int, int]:
    """Pairs one of which has the higher rewards, and how many of them have advantages the other way round."""
    pairs = against = 0
    for (one, left), (other, right) in combinations(zip(advantages, zip(*functions, strict=True), strict=True), 2):
        if left != right and (higher := _higher(left, right)):
            pairs += 1
            against += higher * (one - other) < 0
    return pairs, against


def _differing(functions: Sequence[_Scores], kept: Sequence[_Scores]) -> int:
    """Clear pairs in which one of the kept functions differs."""
    rows = zip(zip(*functions, strict=True), zip(*kept, strict=True), strict=False)  # none kept: nothing differs
    return sum(one != other and _higher(left, right) != 0 for (left, one), (right, other) in combinations(rows, 2))


def _higher(one: _Scores, other: _Scores) -> int:
    """1 where every function scores the one at least as high, and one of them higher: then so does any weighted sum.

    -1 where it is the other way round, 0 where neither holds.
    """
    return any(map(gt, one, other)) - any(map(lt, one, other))


@dataclass(frozen=True, slots=True)
class CancellingFunctions:
    """Two functions that move against each other inside groups.

    ``left`` is the spread of their sum, as a share of the smaller one's.
    """

    one: str
    other: str
    correlation: float
    left: float

    def evidence(self) -> dict[str, Scalar]:
        """The numbers behind it."""
        return {
            "components": f"{self.one}, {self.other}",
            "correlation": round(self.correlation, 3),
            "total_spread_share": round(self.left, 3),
        }


def cancelling(
    groups: Sequence[GroupSummary], at_most: float, quiet: float, floor: float
) -> CancellingFunctions | None:
    """The first pair of functions whose scores, less their group's mean, cancel; None where none does.

    Args:
        groups: those of one batch.
        at_most: the correlation of the two, at most.
        quiet: the spread of their sum, at most, as a share of the smaller one's.
        floor: the root mean square inside groups from which a function is worth a look.
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
    """Per group and function the scores less the group's mean, where all are numbers."""
    for group in groups:
        _, functions = _known(group)
        names = [name for name in group.rewards if name != ADVANTAGE]
        for name, scores in zip(names, functions, strict=False):
            mean = plain_sum(scores) / len(scores)
            yield name, [score - mean for score in scores]


def _size(values: Sequence[float]) -> float:
    """Root mean square."""
    return (plain_sum([value * value for value in values]) / len(values)) ** 0.5 if values else 0.0
