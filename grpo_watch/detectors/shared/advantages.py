"""Whether the advantages of a batch contradict the sums of its scores."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from grpo_watch.engine.records import GroupSummary
from grpo_watch.engine.reward_functions import ADVANTAGE, names_of
from grpo_watch.engine.window import plain_sum

FLOAT = 1e-6
"""What rounding leaves of a sum of numbers near 1. Rows of 17 public runs agree to 7e-6 of their largest number; those
of the one whose weights are not all 1 differ by as much as the total."""
CLEAR = 0.01
"""Difference of two advantages below which it is rounding (see ``scored.NOISE``)."""


def contradicted(groups: Sequence[GroupSummary]) -> bool:
    """Whether advantages say that the total is another one than the sum of the scores.

    In some group a completion with the higher sum has the clearly lower advantage. Weights do that which are not said,
    as do advantages that are made of more than rewards: what the sums tell is then not to be relied on.
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
