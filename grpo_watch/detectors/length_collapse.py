"""Completions shrink to a fraction of the run's own length while reward falls or its spread is lost."""

from __future__ import annotations

from types import MappingProxyType

from grpo_watch.core.course import Course, Sign, Track
from grpo_watch.core.detector import Bounds, Param
from grpo_watch.core.length_change import LengthChange, reward_fell


class LengthCollapse(LengthChange):
    """Shorter answers that score as well are an improvement: shrinking alone is never judged."""

    needs = (("completion_length_mean", "reward_mean"),)
    params = MappingProxyType({"share": Param(0.3, "share of the run's longest mean length", 0, 1)})
    verb, extreme, also = "shrank", "longest", "reward_zero_std_ratio"
    share: float

    def changed(self, length: Track) -> bool:
        """At most ``share`` of the longest is left."""
        return length.ratio(length.highest) <= self.share

    def harmless(self, course: Course) -> Bounds | None:
        """Lengths that are not short even against a longest mean of twice the one so far."""
        high = 2 * course.length.highest
        low = self.share * high * (1.0 + 1e-9)
        return {"completion_length_mean": (low, high)} if course.length.within(low, high) else None

    def before(self, length: Track) -> tuple[float, float]:
        """The longest mean length."""
        return length.highest, self.share * length.highest

    def agreeing(self, course: Course) -> frozenset[Sign]:
        """Reward fell, or its spread is lost."""
        length = course.length
        spread = course.signs() & {Sign.SPREAD_LOST}
        return spread | reward_fell(course.reward, extreme=length.ratio(length.highest) <= self.share / 2)
