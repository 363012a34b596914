"""The rollout engine does not hold the trainer's weights: the gap between them grows as the trainer learns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from grpo_watch.detectors.rollouts.engine_causes import WEIGHTS
from grpo_watch.detectors.rollouts.rollout_weights import RolloutWeights
from grpo_watch.detectors.shared.logprob_gap import GAPS, METRICS, GapTrend, LogprobGap, newest_gap, unexplained
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, Param, RunView, no_data
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import CheckpointDigest, MetricRow, Reading, Scalar, Severity, Verdict
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.window import Window

SEEN: Mapping[str, Scalar] = MappingProxyType({"from": "checksums of the engine's own weights"})


def judged(weights: RolloutWeights, digest: CheckpointDigest, syncs: int) -> Iterable[Reading]:
    """What the newest reading shows; so many syncs without a change, while the trainer's weights change, are proof."""
    engines = weights.engines.items()
    worst, engine = max(engines, key=lambda each: (len((each[1].unlike or ([], 0))[0]), each[1].unchanged))
    which: dict[str, Scalar] = {**SEEN, "engine": worst} if worst else dict(SEEN)
    same, (apart, compared) = engine.unchanged, engine.unlike or ([], 0)
    if apart:
        message = f"right after a sync, {len(apart)} of {compared} tensors of the engine differ from the trainer's"
        evidence: dict[str, Scalar] = {"differ": len(apart), "compared": compared, "first": apart[0]}
        return (Reading(Verdict.BREACH, message=message, evidence={**evidence, **which}, immediate=True),)
    if same < syncs:
        return _overdue(weights, syncs) or (SILENT if same else QUIET)
    message = f"the engine's weights did not change over {same} syncs although the trainer's did"
    evidence = {"syncs": same, "checkpoint": digest.path}
    since = engine.since
    return (Reading(Verdict.BREACH, message=message, evidence={**evidence, **which}, first_step=since, immediate=True),)


def _overdue(weights: RolloutWeights, syncs: int) -> Iterable[Reading]:
    """An engine with unknown sync times may be synced seldom: at most a warning."""
    for name, engine in weights.engines.items():
        if weights.overdue(engine, syncs):
            message = (
                f"the engine's weights have not changed for {engine.still} steps although the trainer's did; "
                f"before, they changed at least every {engine.rhythm} steps"
            )
            evidence: dict[str, Scalar] = {"steps": engine.still, "usual": engine.rhythm, **SEEN}
            return (
                Reading(
                    Verdict.BREACH,
                    message=message,
                    evidence={**evidence, "engine": name} if name else evidence,
                    severity=Severity.WARNING,
                    first_step=engine.moved_at,
                    immediate=True,
                ),
            )
    return ()


LOST = (
    "The engine lost its weights from one step to the next. Set vLLM's sleep level to 1 or reload the weights after "
    "waking; upgrade (ms-swift 3.12, TRL with PR #5313)."
)


class StaleRolloutWeights(Detector):
    """Looks for a gap that climbs as the policy learns or leaps and stays, and for engine weights that don't follow."""

    wastes = WasteKind.STEPS
    likely_causes = WEIGHTS
    dashboards = ("grpo-sampling-weights",)

    reads = (MetricRow, CheckpointDigest)
    needs = (*((gap.metric,) for gap in GAPS), ("rollout engine",))
    params = MappingProxyType(
        {
            "rows": Param(20, "rows over which a climb is judged", minimum=10),
            "climb": Param(5.0, "multiple of the run's first gap that is a climb", minimum=2),
            "order": Param(0.8, "rank correlation of the gap with the summed learning rate that is a climb", 0, 1),
            "leap": Param(10.0, "multiple of the previous gaps that is a leap", minimum=2),
            "leap_rows": Param(3, "consecutive rows that make a leap", minimum=2),
            "syncs": Param(2, "consecutive syncs without a change of the engine's weights that are proof", 1),
        }
    )
    rows: int
    climb: float
    order: float
    leap: float
    leap_rows: int
    syncs: int

    def setup(self) -> None:
        """Nothing known."""
        self.trend, self.entropy = GapTrend(self.rows), Window(5)
        self.weights = RolloutWeights()
        self.shown = {MetricRow: False, CheckpointDigest: False}

    def early_sign(self, run: RunView) -> Reading | None:
        """A gap as large as that of other weights."""
        found = newest_gap(run.values)
        if found is None or found[1] < found[0].broken or not unexplained(*found, run.newest("entropy")):
            return None
        text = f"{found[0].metric} is as large as with other weights than the trainer's"
        return Reading(Verdict.BREACH, message=text, evidence={found[0].metric: run.newest(found[0].metric)})

    def observe(self, record: MetricRow | CheckpointDigest, run: RunView) -> Iterable[Reading]:
        """Judge a row that carries a gap, or the engine's own weights; neither clears what the other one shows."""
        readings = tuple(self._judge(record, run))
        if readings:
            self.shown[type(record)] = any(reading.verdict is Verdict.BREACH for reading in readings)
        return SILENT if any(self.shown.values()) and not self.shown[type(record)] else readings

    def _judge(self, record: MetricRow | CheckpointDigest, run: RunView) -> Iterable[Reading]:
        if isinstance(record, CheckpointDigest):
            return self._weights(record)
        if METRICS.isdisjoint(record.values):
            return SILENT
        entropy, found = number(record, "entropy"), newest_gap(record.values)
        if entropy is not None:
            self.entropy.push(entropy)
        return SILENT if found is None else self._gap(*found, record.step, run)

    def _gap(self, gap: LogprobGap, value: float, step: int, run: RunView) -> Iterable[Reading]:
        learnt = run.learning.total if run.learning.rate_known else float(step)
        trend = self.trend
        trend.push(learnt, value, leap=self.leap, broken=gap.broken)
        leapt = trend.leapt >= self.leap_rows
        climbs = trend.climbs(self.climb, gap.floor, self.order)
        if not (leapt or climbs) or learnt <= 0 or not unexplained(gap, trend.newest, self.entropy.median()):
            return QUIET if trend.ready else no_data(NotYet("too few rows yet"))
        how = "leapt" if leapt else "climbed as the policy learned,"
        return (
            Reading(
                Verdict.BREACH,
                value=trend.newest,
                threshold=gap.floor,
                message=f"{gap.metric} {how} from {trend.first:.2g} to {trend.newest:.2g}",
                evidence={gap.metric: round(trend.newest, 6), "at_first": round(trend.first, 6), "learnt": learnt},
                severity=Severity.CRITICAL if leapt or trend.newest >= gap.broken else Severity.WARNING,
                hint=LOST if leapt else "",
            ),
        )

    def _weights(self, digest: CheckpointDigest) -> Iterable[Reading]:
        return judged(self.weights, digest, self.syncs) if self.weights.take(digest) else SILENT
