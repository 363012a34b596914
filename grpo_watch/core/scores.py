"""Counts the completions of a dumped table that a reward function left without a finite score."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isfinite

from grpo_watch.core.records import CompletionSummary


def finite(value: float | None) -> bool:
    """Whether a score is a number."""
    return value is not None and isfinite(value)


@dataclass(frozen=True, slots=True)
class Gaps:
    """The function with the largest share of unscored completions, of those that it should have scored."""

    function: str
    unscored: int
    completions: int

    @property
    def share(self) -> float:
        """Unscored completions as a share (0…1)."""
        return self.unscored / self.completions


def worst_gaps(summary: CompletionSummary) -> Gaps | None:
    """The worst function of a table; None where no function scored anything.

    A group that one of several functions leaves out as a whole belongs to another task and does not count.
    """
    unscored: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for group in summary.groups:
        for name, scores in group.rewards.items():
            missing = sum(not finite(score) for score in scores)
            if missing < len(scores) or len(group.rewards) == 1:
                unscored[name] += missing
                asked[name] += len(scores)
    found = [Gaps(name, unscored[name], asked[name]) for name in asked if asked[name]]
    return max(found, key=lambda gaps: gaps.share, default=None)
