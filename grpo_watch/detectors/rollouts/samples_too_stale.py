"""Samples are older than the settings allow, or grow older and older: the trainer falls behind its rollouts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading
from grpo_watch.engine.traits import LikelyCause
from grpo_watch.engine.window import correlation, ranks

NEWEST = 5
"""Rows whose median is the age now; as many first ones are the run's own normal."""
STILL = 0.5
"""Rank correlation in the last third of the rows."""
QUEUE = LikelyCause("Generation is faster than training: fewer requests in flight, or a shorter queue.")
NO_SYNC = LikelyCause("The engine's version does not advance: look for the last weight sync in its log.")


class SamplesTooStale(Detector):
    """With a bound in the settings only what exceeds it counts: a queue that fills up to it is meant to.

    ``floor`` is verl's default bound; ``times`` and ``order`` are proposals: in healthy recorded runs the age stays, at
    0 (verl) and 1.2 (AsyncGRPO).
    """

    likely_causes = (QUEUE, NO_SYNC)
    dashboards = ("grpo-sampling-weights",)

    needs = (("sample_staleness_steps",),)
    rows: int = param(60, "newest rows over which the age must rise, where the settings name no bound", 30)
    floor: float = param(8.0, "age in policy updates below which a rise is none (verl's default bound)", 0)
    times: float = param(2.0, "multiple of the run's first age that a rise must reach", 1)
    order: float = param(0.8, "rank correlation of age and step from which the age rises", 0, 1)

    def setup(self) -> None:
        """No row yet."""
        self.ages: deque[float] = deque(maxlen=self.rows)
        self.first: float | None = None

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one row that carries the age of its samples."""
        age = number(record, "sample_staleness_steps")
        if age is None:
            return SILENT
        self.ages.append(age)
        if len(self.ages) < NEWEST:
            return no_data(NotYet("too few rows yet"))
        now = median(list(self.ages)[-NEWEST:])
        self.first = now if self.first is None else self.first
        bound = run.number("max_staleness")
        limit = max(self.floor, self.times * self.first) if bound is None else bound
        if now <= limit or (bound is None and not self._rising(run)):
            return QUIET
        than = f"{self.first:.3g} at first" if bound is None else f"above the configured bound of {bound:g}"
        message = f"samples are {now:.3g} policy updates old, {than}"
        evidence = {"sample_staleness_steps": round(now, 4), "first_age": self.first, "max_staleness": bound}
        return breach(value=now, threshold=limit, message=message, evidence=evidence)

    def _rising(self, run: RunView) -> bool:
        if len(self.ages) < self.rows or run.trend.reward.gained():
            return False
        ages, last = list(self.ages), self.rows // 3
        still = correlation(range(last), ranks(ages[-last:]))  # a queue that filled up is full by now
        return still >= STILL and correlation(range(self.rows), ranks(ages)) >= self.order
