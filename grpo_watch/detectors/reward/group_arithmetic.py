"""What the advantages of a group say against its rewards: a baseline that is not the group's, impossible sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from math import isfinite, sqrt
from statistics import fmean, stdev

from grpo_watch.engine.records import GroupSummary
from grpo_watch.engine.reward_functions import ADVANTAGE, fit, names_of
from grpo_watch.engine.window import plain_sum

NOISE = 0.01
"""Size of advantages below which they are rounding of equal rewards (6e-8 over TRL's 1e-4 was seen)."""
CLOSE = 0.02
"""How far advantages may be from what the rewards give, as a share of the largest: bfloat16 keeps 0.4 %, and an epsilon
of 1e-4 beside a deviation of 0.01 takes 1 %."""
EPSILON = 1e-4
"""What TRL adds to a deviation before it divides by it."""
UNSCALED = frozenset({"none", "batch", "false", "gdpo"})
"""Values of ``scale_rewards`` with which advantages are not divided by their group's deviation."""


def by_group(scale: object) -> bool | None:
    """Whether ``scale_rewards`` divides advantages by the deviation of their group; None where it is not known."""
    return None if scale is None else str(scale).lower() not in UNSCALED


def bound(size: float) -> float:
    """The largest advantage, in size, of a group whose rewards are centred and divided by their deviation.

    One completion against all others: its distance from the mean is (G - 1) / G of the gap, the population's deviation
    sqrt(G - 1) / G of it. The sample's deviation is larger.
    """
    return sqrt(max(size - 1.0, 0.0))


class Arithmetic(Enum):
    """How the advantages of a group come from its rewards."""

    RIGHT = "right"
    MASKED_VOTE = "the baseline holds samples that are masked out of the loss"
    OTHER = "no baseline of this group gives them"
    UNCLEAR = "nothing shows"


def arithmetic(group: GroupSummary) -> Arithmetic:
    """Recompute: advantages that count are proportional to the distance of their rewards from the group's mean.

    That holds with any deviation or none, and for leave-one-out baselines (factor G / (G - 1)). ``None`` among the
    advantages is a sample that is masked out of the loss.
    """
    names, advantages = names_of(group), group.rewards.get(ADVANTAGE)
    if advantages is None or not names or group.prompts != 1:
        return Arithmetic.UNCLEAR
    columns = [[score for score in group.rewards[name] if score is not None] for name in names]
    if any(len(column) < group.size or not all(map(isfinite, column)) for column in columns):
        return Arithmetic.UNCLEAR
    totals = [plain_sum(scores) for scores in zip(*columns, strict=True)]
    counted = [(total, value) for total, value in zip(totals, advantages, strict=True) if value is not None]
    largest = max((abs(value) for _, value in counted), default=0.0)
    if largest < NOISE or not isfinite(largest):
        return Arithmetic.UNCLEAR
    everyone, valid = plain_sum(totals) / len(totals), plain_sum(total for total, _ in counted) / len(counted)
    if _proportional(counted, valid, largest):
        return Arithmetic.RIGHT
    if len(counted) < group.size and _proportional(counted, everyone, largest):
        return Arithmetic.MASKED_VOTE
    centred = abs(plain_sum(value for _, value in counted)) <= CLOSE * plain_sum(abs(value) for _, value in counted)
    mixed = not centred and len(counted) == group.size and _contrary(counted, everyone, largest)
    return Arithmetic.OTHER if mixed else Arithmetic.UNCLEAR


def by_function(group: GroupSummary, weights: Sequence[float]) -> bool:
    """Whether the advantages are GDPO's: each function's scores are standardised, then weighed and added up.

    The dump proves it where the settings do not say so; such advantages have no bound and another order than totals.
    """
    names = names_of(group)
    if len(names) < 2:  # noqa: PLR2004  one function has nothing to add
        return False
    each = weights if fit([group], weights) else (1.0,) * len(names)
    columns = {name: _standardised(group.rewards[name], weight) for name, weight in zip(names, each, strict=True)}
    return arithmetic(replace(group, rewards={**group.rewards, **columns})) is Arithmetic.RIGHT


def _standardised(scores: Sequence[float | None], weight: float) -> tuple[float | None, ...]:
    known = [score for score in scores if score is not None and isfinite(score)]
    spread = stdev(known) if len(known) > 1 else 0.0
    middle = fmean(known) if known else 0.0
    return tuple(None if score is None else weight * (score - middle) / (spread + EPSILON) for score in scores)


def _contrary(counted: Sequence[tuple[float, float]], mean: float, largest: float) -> bool:
    """Whether an advantage has the other sign than its total's distance from ``mean``, beyond rounding.

    Clipping, zeroing the negative ones and weighting by length keep the sign, though not the order.
    """
    farthest = max(abs(total - mean) for total, _ in counted)
    return any(
        (total - mean) * value < 0.0 and abs(total - mean) > CLOSE * farthest and abs(value) > CLOSE * largest
        for total, value in counted
    )


def _proportional(counted: Sequence[tuple[float, float]], mean: float, largest: float) -> bool:
    """Whether each advantage is one positive factor times the distance of its total from ``mean``."""
    squares = plain_sum((total - mean) ** 2 for total, _ in counted)
    factor = plain_sum((total - mean) * value for total, value in counted) / squares if squares > 0.0 else 0.0
    return factor > 0.0 and all(abs(value - factor * (total - mean)) <= CLOSE * largest for total, value in counted)
