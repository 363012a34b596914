"""Several metrics drift in harmful directions at once, each too little for a rule of its own."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from grpo_watch.detectors.shared.likely_causes import CUT_IN_LOSS, RATES, UNHELD
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.metric_trend import LAST
from grpo_watch.engine.records import MetricRow, Reading, Severity, Tick
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.trend import ERRORS, GREW_FAR, LOSS, SHRANK_FAR, Trend, shown

CUT_FAR = 0.4
"""Truncated share that counts beside a flat reward. A healthy public run went from 0 to 0.3 at twice the length, at its
best reward; the runs that degraded with a flat reward cut off 0.5 and more."""
GREW, SHRANK = 2.0, 0.45
"""Multiples of the first length that count as grown and as shrunk."""
GREW_CUT, CUT_HALF = 1.5, 0.5
"""The multiple that counts as grown if the limit cuts off half of the completions, which hides further growth."""
ENTROPY_LOW, ENTROPY_HIGH = 0.4, 2.0
"""Low and high multiples of the first entropy. Solved runs go far below, with a reward that does not fall."""
LEAST_ENTROPY = 0.02
"""First entropy (nats per token) below which a fall is ignored (as in ``entropy-collapse``)."""
KL_TIMES, KL_FLOOR = 5.0, 0.5
"""Multiple of the least mean KL, and KL in nats per token, below which a rise is normal."""


class DriftSign(str, Enum):
    """One harmful direction, as a part of the message."""

    REWARD_FELL = "reward fell"
    REWARD_BELOW_START = "reward is below its start"
    CUT_OFF = "more completions are cut off"
    LENGTH_ROSE = "completions grew"
    LENGTH_FELL = "completions shrank"
    ENTROPY_FELL = "entropy fell"
    ENTROPY_ROSE = "entropy rose"
    KL_ROSE = "KL rose"


def drift(trend: Trend) -> frozenset[DriftSign]:
    """The signs that agree that a run degrades; empty if they don't.

    A fallen reward needs one other sign. Without it, and without a gain, these agree: growth with more completions cut
    off, unless the reward is above its start; completions far shorter at a reward below its start; two other signs at a
    reward below its start.
    """
    reward = trend.reward
    if reward.mean is None or reward.start is None:
        return frozenset()
    signs = _others(trend)
    if not signs:
        return signs
    if trend.reward_lost():
        return signs | {DriftSign.REWARD_FELL}
    if reward.gained():
        return frozenset()
    length = trend.length.ratio(trend.length.start)
    if signs >= {DriftSign.CUT_OFF, DriftSign.LENGTH_ROSE}:
        far = length >= GREW_FAR or (trend.truncated.mean or 0.0) >= CUT_FAR
        return signs if far and not trend.reward_above_start() else frozenset()
    enough = len(signs) > 1 or length <= SHRANK_FAR
    return signs | {DriftSign.REWARD_BELOW_START} if enough and trend.reward_below_start() else frozenset()


def _others(trend: Trend) -> frozenset[DriftSign]:
    length, entropy, kl, cut = trend.length, trend.entropy, trend.kl, trend.more_cut_off()
    hidden = cut and (trend.truncated.mean or 0.0) >= CUT_HALF
    judged = entropy.start is not None and entropy.start >= LEAST_ENTROPY
    found = (
        (DriftSign.CUT_OFF, cut),
        (DriftSign.LENGTH_ROSE, length.moved(GREW_CUT if hidden else GREW)),
        (DriftSign.LENGTH_FELL, length.moved(SHRANK)),
        (DriftSign.ENTROPY_FELL, judged and entropy.moved(ENTROPY_LOW)),
        (DriftSign.ENTROPY_ROSE, judged and entropy.moved(ENTROPY_HIGH)),
        (DriftSign.KL_ROSE, kl.mean is not None and kl.mean >= max(KL_FLOOR, KL_TIMES * kl.lowest)),
    )
    return frozenset([sign for sign, shows in found if shows])


class SlowDegradation(Detector):
    """The signs must hold for a share of the run, because means of a few noisy rows agree by chance now and then.

    At the end of a log the last rows suffice: each must lie far below the best, beside completions that shrank or grew,
    entropy or KL that moved. Two public runs of 19 and 24 rows ended three rows into such a fall. It is an info if more
    rows may come.
    """

    explained_by = (
        "non-finite-metric",
        "stale-rollout-weights",
        "reward-collapse",
        "kl-explosion",
        "entropy-explosion",
        "entropy-collapse",
        "length-explosion",
        "length-collapse",
        "completions-truncated",
    )
    wastes = WasteKind.STEPS
    likely_causes = (*RATES, UNHELD, CUT_IN_LOSS)

    reads = (MetricRow, Tick)
    needs = (
        ("reward_mean", "completion_length_mean"),
        ("reward_mean", "completion_truncated_ratio"),
        ("reward_mean", "entropy"),
        ("reward_mean", "kl_reference"),
    )
    rows: int = param(4, "rows in a row on which the signs agree, at least", minimum=1)
    share: float = param(0.08, "share of the run's rows on which they agree, at least", 0, 1)

    def setup(self) -> None:
        """Start with no signs."""
        self.held = 0

    def observe(self, record: MetricRow | Tick, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries the reward, or the last rows of a log that has ended."""
        if isinstance(record, Tick):
            signs = _others(run.trend)
            ended = run.log_ended(record)
            if not signs or ended is False or not run.trend.reward.ends_low(LOSS, ERRORS):
                return SILENT
            return self._breach(
                run, signs | {DriftSign.REWARD_FELL}, LAST, LAST, ends=Severity.WARNING if ended else Severity.INFO
            )
        if number(record, "reward_mean") is None:
            return SILENT
        if run.trend.reward.mean is None:
            return no_data(NotYet("too few rows with a reward so far"))
        signs = drift(run.trend)
        self.held = self.held + 1 if signs else 0
        needed = max(self.rows, self.share * run.trend.reward.rows)
        return QUIET if self.held < needed else self._breach(run, signs, self.held, needed)

    @staticmethod
    def _breach(
        run: RunView, signs: frozenset[DriftSign], held: int, needed: float, *, ends: Severity | None = None
    ) -> Iterable[Reading]:
        words = ", ".join(sign.value for sign in DriftSign if sign in signs)
        return breach(
            value=float(held),
            threshold=needed,
            message=f"the run degrades as its log ends: {words}"
            if ends is not None
            else f"the run degrades slowly: {words}",
            severity=ends,
            evidence=_evidence(run.trend),
            first_step=run.recent.step_back("reward_mean", held),
            immediate=ends is not None,
        )


def _evidence(trend: Trend) -> dict[str, float | None]:
    pairs = {
        "reward_mean": (trend.reward.mean, trend.reward.highest, "best_reward"),
        "completion_length_mean": (trend.length.mean, trend.length.start, "first_length"),
        "completion_truncated_ratio": (trend.truncated.mean, trend.truncated.lowest, "least_truncated_ratio"),
        "entropy": (trend.entropy.mean, trend.entropy.start, "first_entropy"),
        "kl_reference": (trend.kl.mean, trend.kl.lowest, "least_kl"),
    }
    evidence: dict[str, float | None] = {}
    for metric, (now, was, before) in pairs.items():
        if now is not None:
            evidence |= {metric: shown(now), before: shown(was)}
    return evidence
