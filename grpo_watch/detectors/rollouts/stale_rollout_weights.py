"""The rollout engine does not hold the trainer's weights: the gap between them grows as the trainer learns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from grpo_watch.detectors.shared.checkpoint_history import CheckpointHistory, changed, comparable, in_same_form
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
from grpo_watch.engine.records import (
    TRAINED,
    CheckpointDigest,
    CheckpointKind,
    MetricRow,
    Reading,
    Scalar,
    Severity,
    TensorDigest,
    Verdict,
)
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.window import Window


def side_by_side(
    trainer: Mapping[str, TensorDigest], engine: Mapping[str, TensorDigest]
) -> Mapping[str, tuple[str, str]]:
    """The checksums of what both hold, the trainer's and the engine's, by the engine's name.

    Tensors of one name, data type and shape. Anything else (what the engine has fused, another precision, an adapter,
    shards) is passed over.
    """
    return {name: (trainer[name].checksum, engine[name].checksum) for name in in_same_form(trainer, engine)}


APART = 8
"""Steps of which a digest waits for that of the other side."""


@dataclass(slots=True)
class RolloutEngine:
    """What is known of one engine.

    ``unchanged``: syncs in a row, ``since`` a step, after which its weights were the same although the trainer's had
    changed. ``unlike``: tensors (of so many compared) in which it wrongly differs from the trainer right after a sync;
    None while nothing can be compared, or no tensor was ever the same (it may lay its weights out otherwise).
    ``same``: tensors that were the same once; ``pairs``: both checksums of each when they were compared last.
    """

    last: int = 0
    unchanged: int = 0
    since: int = 0
    unlike: tuple[list[str], int] | None = None
    same: set[str] = field(default_factory=set)
    pairs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    said: CheckpointHistory = field(default_factory=CheckpointHistory)
    synced: CheckpointHistory = field(default_factory=CheckpointHistory)


class RolloutWeights:
    """Follows each engine by its own digests, and all of them by the trainer's.

    An engine is forgotten when another has been read twice since: its process has ended.
    """

    def __init__(self) -> None:
        self._history = CheckpointHistory()
        self._trainer: dict[int, CheckpointDigest] = {}
        self._waiting: dict[tuple[int, str], CheckpointDigest] = {}
        self.engines: dict[str, RolloutEngine] = {}
        self._moved_at = 0

    def take(self, digest: CheckpointDigest) -> bool:
        """Account for a digest of either side; whether it says something about an engine."""
        if digest.problems or digest.kind is CheckpointKind.FROZEN:
            return False
        if digest.kind in TRAINED:
            self._progress(digest)
            return digest.kind is CheckpointKind.PROBE and self._arrived(digest)
        engine = self.engines.setdefault(digest.engine, RolloutEngine())
        compared = digest.synced and self._await(digest)
        return self._follow(engine, digest) or compared

    def _progress(self, digest: CheckpointDigest) -> None:
        before = self._history.before(digest)
        if before is not None and changed(before, digest, comparable(before, digest)):
            self._moved_at = digest.step

    def _arrived(self, digest: CheckpointDigest) -> bool:
        """What the trainer holds in memory: engines that were just synced at that step may wait for it."""
        self._trainer[digest.step] = digest
        while len(self._trainer) > APART:
            del self._trainer[min(self._trainer)]
        waiting = [key for key in self._waiting if key[0] == digest.step]
        compared = [self._compare(digest, self._waiting.pop(key)) for key in waiting]
        return any(compared)

    def _await(self, digest: CheckpointDigest) -> bool:
        trainer = self._trainer.get(digest.step)
        if trainer is not None:
            return self._compare(trainer, digest)
        self._waiting[digest.step, digest.engine] = digest
        while len({step for step, _ in self._waiting}) > APART:
            del self._waiting[min(self._waiting)]
        return False

    def _compare(self, trainer: CheckpointDigest, digest: CheckpointDigest) -> bool:
        """Hold an engine that was just synced against what was read in memory at the same step."""
        engine = self.engines.setdefault(digest.engine, RolloutEngine())
        pairs, before = side_by_side(trainer.tensors, digest.tensors), engine.pairs
        engine.same.update(name for name, (own, theirs) in pairs.items() if own == theirs)
        wrong = [name for name, pair in pairs.items() if _wrong(pair, before.get(name), same=name in engine.same)]
        engine.pairs, engine.unlike = pairs, (wrong, len(pairs)) if engine.same else None
        return bool(engine.same and pairs)

    def _follow(self, engine: RolloutEngine, digest: CheckpointDigest) -> bool:
        before, engine.last = engine.said.before(digest), digest.step
        if before is not None:
            for name in [name for name, other in self.engines.items() if other.last < before.step]:
                del self.engines[name]
        if not digest.synced:
            return False
        previous = engine.synced.before(digest)
        if previous is None:
            return False
        if changed(previous, digest, comparable(previous, digest)):
            engine.unchanged = 0
        elif self._moved_at > previous.step:
            engine.since = engine.since if engine.unchanged else previous.step
            engine.unchanged += 1
        else:
            return False
        return True


def _wrong(pair: tuple[str, str], before: tuple[str, str] | None, *, same: bool) -> bool:
    """Whether a tensor that differs should not.

    It should not if it was the ``same`` once, nor if it stayed over a sync though the trainer's changed. One that never
    was the same and follows is held in another form: engines rearrange some weights in place.
    """
    own, theirs = pair
    if own == theirs:
        return False
    return same or (before is not None and before[0] != own and before[1] == theirs)


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
        return breach(message=message, evidence={**evidence, **which}, immediate=True)
    if same < syncs:
        return SILENT if same else QUIET
    message = f"the engine's weights did not change over {same} syncs although the trainer's did"
    evidence = {"syncs": same, "checkpoint": digest.path}
    since = engine.since
    return breach(message=message, evidence={**evidence, **which}, first_step=since, immediate=True)


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
    rows: int = param(20, "rows over which a climb is judged", minimum=10)
    climb: float = param(5.0, "multiple of the run's first gap that is a climb", minimum=2)
    order: float = param(0.8, "rank correlation of the gap with the summed learning rate that is a climb", 0, 1)
    leap: float = param(10.0, "multiple of the previous gaps that is a leap", minimum=2)
    leap_rows: int = param(3, "consecutive rows that make a leap", minimum=2)
    syncs: int = param(2, "consecutive syncs without a change of the engine's weights that are proof", 1)

    def setup(self) -> None:
        """Nothing known."""
        self.trend, self.entropy, self.by_age = GapTrend(self.rows), Window(5), GapByAge()
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

    def _weights(self, digest: CheckpointDigest) -> Iterable[Reading]:
        return judged(self.weights, digest, self.syncs) if self.weights.take(digest) else SILENT
