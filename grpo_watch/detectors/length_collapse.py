"""Completions shrink to a fraction of the run's own length while reward falls or its spread is lost."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from grpo_watch.core.course import Sign, named, shown
from grpo_watch.core.detector import QUIET, SILENT, Detector, Param, RunView, no_data
from grpo_watch.core.evidence import number
from grpo_watch.core.records import MetricRow, Reading, Verdict

AGREEING = frozenset({Sign.REWARD_FELL, Sign.SPREAD_LOST})


class LengthCollapse(Detector):
    """Shorter answers that score as well are an improvement: shrinking alone is never judged."""

    needs = (("completion_length_mean", "reward_mean"),)
    params = MappingProxyType({"share": Param(0.3, "share of the run's longest mean length", 0, 1)})
    share: float

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries the mean length."""
        if number(record, "completion_length_mean") is None:
            return SILENT
        course = run.course
        length = course.length
        if length.mean is None:
            return no_data("too few rows with a length yet")
        if length.mean > self.share * length.highest:
            return QUIET
        signs = course.signs() & AGREEING
        if not signs:
            return QUIET
        message = f"completions shrank from {length.highest:.4g} to {length.mean:.4g} tokens; {named(signs)}"
        evidence = {
            "completion_length_mean": shown(length.mean),
            "longest": shown(length.highest),
            "reward_zero_std_ratio": shown(course.silent.mean),
            "reward_mean": shown(course.reward.mean),
        }
        threshold = self.share * length.highest
        return (Reading(Verdict.BREACH, value=length.mean, threshold=threshold, message=message, evidence=evidence),)
