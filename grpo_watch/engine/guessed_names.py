"""Which metrics of a run were read under a guessed name, and what may be concluded from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from grpo_watch.engine.detector import Detector
from grpo_watch.engine.metric_names import split_label
from grpo_watch.engine.records import Reading, RunConfig, Severity, Verdict
from grpo_watch.engine.trend import Trend

AGREE = 3
"""Signs of the trend at which wrong names are no explanation: that many metrics don't turn bad together by mistake."""


@dataclass(slots=True)
class GuessedNames:
    """Raw keys by channel and the canonical metrics that they were read as."""

    by_channel: dict[str, Mapping[str, str]] = field(default_factory=dict)
    metrics: frozenset[str] = frozenset()

    def take(self, config: RunConfig) -> None:
        """Take over what a channel's rows are read by."""
        if config.guessed is not None:
            self.by_channel[config.channel] = config.guessed
            self.metrics = frozenset(split_label(metric)[0] for metric in self.names().values())

    def names(self) -> dict[str, str]:
        """Every guessed raw key and its metric."""
        return {key: metric for names in self.by_channel.values() for key, metric in names.items()}

    def capped(self, reading: Reading, severity: Severity, detector: Detector, trend: Trend) -> Reading:
        """The reading, at most a warning where it rests on a guessed metric and too few other metrics agree."""
        critical = (reading.severity or severity) is Severity.CRITICAL and reading.verdict is Verdict.BREACH
        if not critical or detector.holds_under_any_name or not self._rests_on_guess(reading, detector):
            return reading
        return reading if len(trend.signs()) >= AGREE else replace(reading, severity=Severity.WARNING)

    def _rests_on_guess(self, reading: Reading, detector: Detector) -> bool:
        needed = {metric for alternative in detector.needs for metric in alternative}
        named = {split_label(name)[0] for name in reading.evidence}
        return not self.metrics.isdisjoint(needed | named)
