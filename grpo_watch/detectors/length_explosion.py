"""Completions grow far beyond the run's own length while reward falls or the length limit cuts them off."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from grpo_watch.core.course import MOST, Course, Sign, grown, named, shown
from grpo_watch.core.detector import QUIET, SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.evidence import number
from grpo_watch.core.records import MetricRow, Reading, Verdict


class LengthExplosion(Detector):
    """Longer answers with a rising reward are what reasoning runs are for: growth alone is never judged."""

    needs = (("completion_length_mean", "reward_mean"), ("completion_length_mean", "completion_truncated_ratio"))
    params = MappingProxyType({"times": Param(1.5, "multiple of the run's shortest mean length", minimum=1)})
    times: float

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries the mean length."""
        if number(record, "completion_length_mean") is None:
            return SILENT
        course = run.course
        length = course.length
        if length.mean is None:
            return no_data("too few rows with a length yet")
        if not grown(length, self.times):
            return QUIET
        signs = self._agreeing(course)
        if not signs:
            return QUIET
        message = f"completions grew from {length.lowest:.4g} to {length.mean:.4g} tokens; {named(signs)}"
        evidence = {
            "completion_length_mean": shown(length.mean),
            "shortest": shown(length.lowest),
            "completion_truncated_ratio": shown(course.truncated.mean),
            "reward_mean": shown(course.reward.mean),
        }
        threshold = self.times * length.lowest
        return (Reading(Verdict.BREACH, value=length.mean, threshold=threshold, message=message, evidence=evidence),)

    @staticmethod
    def _agreeing(course: Course) -> frozenset[Sign]:
        """Reward fell, or the limit cuts completions off without a gain in reward."""
        signs = {Sign.REWARD_FELL} if course.reward.fell(MOST) else set()
        if course.cut_off() and not course.reward.gained():
            signs.add(Sign.CUT_OFF)
        return frozenset(signs)
