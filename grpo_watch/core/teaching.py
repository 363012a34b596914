"""Whether groups whose texts are alike still teach: their rewards differ, or they are solved."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from grpo_watch.core.copies import totals
from grpo_watch.core.records import GroupSummary


class Teaching:
    """Over the newest batches, the share of groups whose rewards differ, of those that are not solved.

    Solved are groups of which each text earns the best reward of the run, once rewards have differed at all: that they
    are alike is success, no harm. ``doubtful``: the total rewards are not known, so that any group may be solved.
    """

    def __init__(self, batches: int) -> None:
        self._newest: deque[tuple[int, int]] = deque(maxlen=batches)
        self._lowest, self._highest = float("inf"), float("-inf")
        self.doubtful = False

    def take(self, earned: Sequence[AbstractSet[float]], *, doubtful: bool = False) -> None:
        """Account for a batch: the different total rewards of each group (none where no rewards were dumped)."""
        self.doubtful |= doubtful
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
            return 1.0
        differing, unsolved = (sum(each) for each in zip(*self._newest, strict=True))
        return differing / unsolved if unsolved else 1.0


def earned_by(groups: Sequence[GroupSummary]) -> tuple[frozenset[float], ...]:
    """The different total rewards of the completions of each group."""
    return tuple(frozenset(totals(group)) for group in groups)
