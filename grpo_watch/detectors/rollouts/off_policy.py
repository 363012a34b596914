"""Rollouts that don't match the trainer's policy: samples grow old, or the engine computes other probabilities."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from grpo_watch.detectors.shared.likely_causes import WEIGHTS
from grpo_watch.detectors.shared.logprob_gap import (
    GAPS,
    METRICS,
    GapByAge,
    GapTrend,
    LogprobGap,
    newest_gap,
    unexplained,
)
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading, Scalar, Severity, Verdict
from grpo_watch.engine.traits import LikelyCause, WasteKind
from grpo_watch.engine.trend import ENTROPY_HIGH
from grpo_watch.engine.window import Window, correlation, ranks

NEWEST = 5
"""Rows whose median is the current age; as many at the start are the run's own normal."""
STILL = 0.5
"""Least rank correlation over the last third of the rows for an age that still climbs."""
QUEUE = LikelyCause("Generation is faster than training: fewer requests in flight, or a shorter queue.")
NO_SYNC = LikelyCause("The engine's version does not advance: look for the last weight sync in its log.")


class SamplesTooStale(Detector):
    """Judges the age of samples; if the settings bound it, only ages above the bound, up to which a queue may fill.

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
        """Start with no rows."""
        self.ages: deque[float] = deque(maxlen=self.rows)
        self.newest = Window(NEWEST)

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one row that carries the age of its samples."""
        age = number(record, "sample_staleness_steps")
        if age is None:
            return SILENT
        self.ages.append(age)
        self.newest.push(age)
        if (first := self.newest.first) is None:
            return no_data(NotYet("too few rows yet"))
        now = self.newest.median() or 0.0
        bound = run.number("max_staleness")
        limit = max(self.floor, self.times * first) if bound is None else bound
        if now <= limit or (bound is None and not self._rising(run)):
            return QUIET
        than = f"{first:.3g} at first" if bound is None else f"above the configured bound of {bound:g}"
        message = f"samples are {now:.3g} policy updates old, {than}"
        evidence = {"sample_staleness_steps": round(now, 4), "first_age": first, "max_staleness": bound}
        return breach(value=now, threshold=limit, message=message, evidence=evidence)

    def _rising(self, run: RunView) -> bool:
        if len(self.ages) < self.rows or run.trend.reward.gained():
            return False
        ages, last = list(self.ages), self.rows // 3
        still = correlation(range(last), ranks(ages[-last:]))  # a filling queue is full by now
        return still >= STILL and correlation(range(self.rows), ranks(ages)) >= self.order


RATIO, SAMPLE, CHI2 = "importance_ratio_rollout", "effective_sample_rollout", "chi2_rollout"
ALL = (*(gap.metric for gap in GAPS), RATIO, SAMPLE, CHI2)
LOGGED = METRICS | {RATIO, SAMPLE, CHI2}


class TrainRolloutMismatch(Detector):
    """Compares the median of each metric's newest rows with its documented threshold."""

    explained_by = ("non-finite-metric", "stale-rollout-weights", "samples-too-stale", "entropy-explosion")
    likely_causes = WEIGHTS
    dashboards = ("grpo-sampling-weights",)

    needs = tuple((metric,) for metric in ALL)
    rows: int = param(5, "rows in the median", minimum=3)
    scale: float = param(1.0, "factor on the thresholds of the gaps (higher for FP8 rollouts or MoE)", 0.1)
    ratio_low: float = param(0.1, "mean importance ratio after masking below which almost no signal is left", 0, 1)
    ratio_low_verl: float = param(0.5, "the same for verl, which logs it before masking", 0, 1)
    ratio_high: float = param(2.0, "mean importance ratio above which it fires (verl)", 1)
    sample: float = param(0.3, "effective sample size (a share) below which it fires (verl)", 0, 1)
    chi2: float = param(1.0, "chi-squared divergence per token above which it fires (verl)", 0)

    def setup(self) -> None:
        """Start with empty windows."""
        self.windows = {metric: Window(self.rows) for metric in ALL}
        self.entropy = Window(self.rows)
        self.by_age = GapByAge()

    def early_sign(self, run: RunView) -> Reading | None:
        """Hardly any token keeps its weight."""
        ratio = run.newest("importance_ratio_rollout")
        if ratio is None or ratio >= self.ratio_low:
            return None
        text = f"the mean importance ratio is {ratio:.2g}: trainer and rollout engine see different policies"
        return Reading(Verdict.BREACH, message=text, evidence={"importance_ratio_rollout": ratio})

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one row that carries a metric."""
        if LOGGED.isdisjoint(record.values):
            return SILENT
        entropy = number(record, "entropy")
        if entropy is not None:
            self.entropy.push(entropy)
        gap = newest_gap(record.values)
        if gap is not None:
            self.by_age.push(gap[1], number(record, "sample_staleness_steps"))
        for metric in LOGGED & record.values.keys():
            value = number(record, metric)
            if value is not None:
                self.windows[metric].push(value)
        medians = {metric: window.median() for metric, window in self.windows.items() if window.full}
        if not medians:
            return no_data(NotYet("too few rows yet"))
        found = dict(self._found({metric: value for metric, value in medians.items() if value is not None}, run))
        if not found:
            return QUIET
        evidence: dict[str, Scalar] = {metric: round(medians[metric] or 0.0, 6) for metric in found}
        why = self.by_age.words(self.scale * gap[0].limit) if gap is not None and gap[0].metric in found else ""
        return breach(message="; ".join(found.values()) + why, evidence=evidence)

    def _found(self, medians: Mapping[str, float], run: RunView) -> Iterator[tuple[str, str]]:
        entropy = self.entropy.median()
        for gap in GAPS:
            value = medians.get(gap.metric)
            over = 0.0 if value is None else value - gap.zero
            if over > self.scale * gap.limit and unexplained(gap, over, entropy):
                yield gap.metric, f"{gap.metric} is {over + gap.zero:.3g}, normal is below {gap.zero + gap.limit:g}"
        ratio, sample, chi2 = medians.get(RATIO, 1.0), medians.get(SAMPLE, 1.0), medians.get(CHI2, 0.0)
        calm = run.trend.entropy.ratio(run.trend.entropy.start) < ENTROPY_HIGH
        low, of = (self.ratio_low_verl, "") if run.framework == "verl" else (self.ratio_low, " after masking")
        if (ratio < low and calm) or ratio > self.ratio_high:
            yield RATIO, f"the mean importance ratio is {ratio:.3g}{of if ratio < 1 else ''}"
        if sample < self.sample:
            yield SAMPLE, f"the effective sample size is only {sample:.0%}"
        if chi2 > self.chi2:
            yield CHI2, f"the chi-squared divergence is {chi2:.3g} per token"


LOST = (
    "The engine lost its weights from one step to the next. Set vLLM's sleep level to 1 or reload the weights after "
    "waking; upgrade (ms-swift 3.12, TRL with PR #5313)."
)


class StaleRolloutWeights(Detector):
    """Looks for a gap that climbs as the policy learns, or leaps and stays."""

    wastes = WasteKind.STEPS
    likely_causes = WEIGHTS
    dashboards = ("grpo-sampling-weights",)

    needs = tuple((gap.metric,) for gap in GAPS)
    rows: int = param(20, "rows over which a climb is judged", minimum=10)
    climb: float = param(5.0, "multiple of the run's first gap that is a climb", minimum=2)
    order: float = param(0.8, "rank correlation of the gap with the summed learning rate that is a climb", 0, 1)
    leap: float = param(10.0, "multiple of the previous gaps that is a leap", minimum=2)
    leap_rows: int = param(3, "consecutive rows that make a leap", minimum=2)

    def setup(self) -> None:
        """Start with no gaps."""
        self.trend, self.entropy, self.by_age = GapTrend(self.rows), Window(5), GapByAge()

    def early_sign(self, run: RunView) -> Reading | None:
        """A gap as large as between different weights."""
        found = newest_gap(run.values)
        if found is None or found[1] < found[0].broken or not unexplained(*found, run.newest("entropy")):
            return None
        text = f"{found[0].metric} is as large as with other weights than the trainer's"
        return Reading(Verdict.BREACH, message=text, evidence={found[0].metric: run.newest(found[0].metric)})

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge a row that carries a gap."""
        if METRICS.isdisjoint(record.values):
            return SILENT
        entropy, found = number(record, "entropy"), newest_gap(record.values)
        if entropy is not None:
            self.entropy.push(entropy)
        if found is None:
            return SILENT
        self.by_age.push(found[1], number(record, "sample_staleness_steps"))
        return self._gap(*found, record.step, run)

    def _gap(self, gap: LogprobGap, value: float, step: int, run: RunView) -> Iterable[Reading]:
        learnt = run.learning.total if run.learning.rate_known else float(step)
        trend = self.trend
        trend.push(learnt, value, leap=self.leap, broken=gap.broken)
        leapt = trend.leapt >= self.leap_rows
        climbs = trend.climbs(self.climb, gap.floor, self.order)
        if not (leapt or climbs) or learnt <= 0 or not unexplained(gap, trend.newest, self.entropy.median()):
            return QUIET if trend.ready else no_data(NotYet("too few rows yet"))
        how, ages = ("leapt", "") if leapt else ("climbed as the policy learned,", self.by_age.ageing())
        return breach(
            value=trend.newest,
            threshold=gap.floor,
            message=f"{gap.metric} {how} from {trend.first:.2g} to {trend.newest:.2g}{ages}",
            evidence={gap.metric: round(trend.newest, 6), "at_first": round(trend.first, 6), "learnt": learnt},
            severity=Severity.CRITICAL if leapt or trend.newest >= gap.broken else Severity.WARNING,
            hint=LOST if leapt else "",
        )
