"""Turns a pass rate and a group's size into the share of groups that teach nothing."""

from __future__ import annotations

LARGEST_GROUP = 1024
"""Beyond this no group is proposed: the pass rate is what has to change."""


def dead_share(pass_rate: float, group: int) -> float:
    """Share of groups whose answers are all right or all wrong, for rewards of 0 and 1 and independent answers.

    The chance that all of ``group`` answers pass or all fail, ``p^G + (1-p)^G``. Prompts differ in difficulty, which
    makes the true share higher: this is a lower bound for a mean pass rate.
    """
    return min(1.0, pass_rate**group + (1 - pass_rate) ** group)


def group_for(pass_rate: float, share: float) -> int | None:
    """The smallest group with at most ``share`` dead groups; None where none up to ``LARGEST_GROUP`` has."""
    return next((group for group in range(2, LARGEST_GROUP + 1) if dead_share(pass_rate, group) <= share), None)
