"""Whether groups whose texts are alike still teach: their rewards differ, or they are solved."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from grpo_watch.detectors.rollouts.copies import totals
from grpo_watch.engine.records import GroupSummary
from grpo_watch.engine.reward_functions import names_of

FLAT = 1e-3
"""Singular value, with each function's scores divided by their spread, below which a direction is rounding."""

Scores = tuple[float, ...]
"""What one completion got from each reward function, in their order."""


class GroupSignal:
    """Over the newest batches, the share of groups whose rewards differ, of those that are not solved.

    Solved are groups of which each text earns the best reward of the run, once rewards have differed at all: that they
    are alike is success, no harm. ``doubtful``: the total rewards are not known, so that any group may be solved. All
    can't be where their scores differ in every direction, because then no weights make their totals equal.
    """

    def __init__(self, batches: int) -> None:
        self._newest: deque[tuple[int, int]] = deque(maxlen=batches)
        self._scores: deque[AbstractSet[Scores]] = deque(maxlen=batches)
        self._lowest, self._highest = float("inf"), float("-inf")
        self.doubtful = False

    def take(
        self, earned: Sequence[AbstractSet[float]], *, doubtful: bool = False, scores: AbstractSet[Scores] = frozenset()
    ) -> None:
        """Account for a batch: the different total rewards of each group (none where no rewards were dumped).

        ``scores`` as ``barren_scores`` tells them.
        """
        self.doubtful |= doubtful
        self._scores.append(scores)
        known = [each for each in earned if each]
        if not known:
            return
        self._lowest = min(self._lowest, *map(min, known))
        self._highest = max(self._highest, *map(max, known))
        best = self._highest if self._lowest < self._highest else float("inf")
        differing = sum(len(each) > 1 for each in known)
        self._newest.append((differing, sum(len(each) > 1 or max(each) < best for each in known)))

    @property
    def share(self) -> float | None:
        """The share; 1 where all is or may be solved, None where no rewards are known."""
        if not self._newest:
            return None
        if self.doubtful:
            return 0.0 if all(self._scores) and not _may_earn_the_same(frozenset().union(*self._scores)) else 1.0
        differing, unsolved = (sum(each) for each in zip(*self._newest, strict=True))
        return differing / unsolved if unsolved else 1.0


def earned_by(groups: Sequence[GroupSummary]) -> tuple[frozenset[float], ...]:
    """The different total rewards of the completions of each group."""
    return tuple(frozenset(totals(group)) for group in groups)


def barren_scores(groups: Sequence[GroupSummary]) -> frozenset[Scores]:
    """The scores of each group by function, of groups whose completions all got the same; empty where one teaches.

    Empty as well where a score is missing or functions differ: then it says nothing.
    """
    found: set[Scores] = set()
    for group in groups:
        columns = [group.rewards[name] for name in names_of(group)]
        scores = set(zip(*columns, strict=True))
        if len(scores) != 1:
            return frozenset()
        (same,) = scores
        known = tuple(score for score in same if score is not None)
        if len(known) != len(columns) or any(len(each) != len(known) for each in found):
            return frozenset()
        found.add(known)
    return frozenset(found)


def _may_earn_the_same(scores: AbstractSet[Scores]) -> bool:
    """Whether some weights, not all 0, give all of these the same total: they lie in a plane."""
    if len({len(each) for each in scores}) != 1:
        return True
    import numpy as np  # noqa: PLC0415  10 MB of a daemon that mostly reads no such dump

    points = np.array(sorted(scores))
    points -= points.mean(axis=0)
    spread = points.std(axis=0)
    if len(points) <= points.shape[1] or not np.all(spread > 0.0) or not np.all(np.isfinite(spread)):
        return True
    return bool(np.linalg.matrix_rank(points / spread, tol=FLAT * np.sqrt(len(points))) < points.shape[1])
