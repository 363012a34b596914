"""Completions grow far beyond the run's own length while reward falls or the length limit cuts them off."""

from __future__ import annotations

from types import MappingProxyType

from grpo_watch.core.course import Course, Sign, Track, grown
from grpo_watch.core.detector import Param
from grpo_watch.core.length_change import LengthChange, reward_fell


class LengthExplosion(LengthChange):
    """Longer answers with a rising reward are what reasoning runs are for: growth alone is never judged."""

    needs = (("completion_length_mean", "reward_mean"), ("completion_length_mean", "completion_truncated_ratio"))
    params = MappingProxyType({"times": Param(1.5, "multiple of the run's shortest mean length", minimum=1)})
    verb, extreme, also = "grew", "shortest", "completion_truncated_ratio"
    times: float

    def changed(self, length: Track) -> bool:
        """``times`` the shortest, and no shorter than at the start."""
        return grown(length, self.times)

    def before(self, length: Track) -> tuple[float, float]:
        """The shortest mean length."""
        return length.lowest, self.times * length.lowest

    def agreeing(self, course: Course) -> frozenset[Sign]:
        """Reward fell, or the limit cuts completions off without a gain in reward."""
        fell = reward_fell(course.reward, extreme=grown(course.length, 2 * self.times))
        return fell | {Sign.CUT_OFF} if course.cut_off() and not course.reward.gained() else fell
