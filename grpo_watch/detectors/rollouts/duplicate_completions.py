"""Completions of one prompt repeat exactly: ranks share a seed, decoding is greedy, or the policy collapsed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf
from types import MappingProxyType

from grpo_watch.detectors.rollouts.copies import BatchCopies, copies_in
from grpo_watch.detectors.rollouts.copy_causes import COPIES, CopyCause, CopyLimits, cause_of, proven, sampled
from grpo_watch.detectors.rollouts.copy_history import CopyHistory
from grpo_watch.engine.detector import SILENT, Detector, NotYet, Param, RunView, no_data
from grpo_watch.engine.records import CompletionSummary, MetricRow, Reading, Tick, Verdict
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.window import BATCHES_AHEAD

UNSURE = 1.0
"""Entropy (nats per token) from which a policy does not write one text again and again."""
SHORT = "the dumped texts are too short, empty, or not in groups"


class DuplicateCompletions(Detector):
    """Joins each dumped batch with the entropy of its step, which tells greedy decoding from a collapse."""

    explained_by = ("non-finite-metric", "entropy-collapse")
    wastes = WasteKind.STEPS
    likely_causes = COPIES
    dashboards = ("grpo-sampling-weights",)

    reads = (CompletionSummary, MetricRow, Tick)
    needs = (("completions",),)
    survives_attempts = True
    params = MappingProxyType(
        {
            "min_characters": Param(12, "length below which texts may be equal by chance or by task", minimum=1),
            "alike": Param(0.9, "share of groups that must have the same pattern", 0, 1),
            "low_entropy": Param(0.1, "entropy (nats per token) below which equal texts are a collapse", minimum=0),
            "fallen_entropy": Param(0.5, "the same, as a share of the run's highest entropy so far", 0, 1),
            "batches": Param(3, "distinct batches needed if one is not enough proof", minimum=1),
            "template": Param(64, "length below which texts may be answers in tags that repeat by chance", minimum=1),
            "many": Param(0.5, "share of repeated completions without a common pattern that is a warning", 0, 1),
        }
    )
    min_characters: int
    alike: float
    low_entropy: float
    fallen_entropy: float
    batches: int
    template: int
    many: float

    def setup(self) -> None:
        """No batch is waiting for its row."""
        self.waiting: deque[BatchCopies] = deque(maxlen=BATCHES_AHEAD)
        self.history, self.attempt = CopyHistory(), 1
        self.unproven: Reading | None = None

    def early_sign(self, run: RunView) -> Reading | None:  # noqa: ARG002
        """Copies in the newest batch that chance or the task may explain until more batches have them."""
        return self.unproven

    def observe(self, record: CompletionSummary | MetricRow | Tick, run: RunView) -> Iterable[Reading]:
        """Take a batch, a row or the end of input; judge the batches whose row has come."""
        if run.attempt > self.attempt:  # keeps that groups were diverse before
            self.attempt = run.attempt
            self.history.end_streak()
        if isinstance(record, CompletionSummary):
            record = replace(record, groups=run.functions.weighed(record.groups))
            batch = copies_in(record, self.min_characters)
            if batch is None:
                return no_data(SHORT)
            self.waiting.append(batch)
        if not self.waiting:
            return SILENT
        reached = inf if isinstance(record, Tick) and not run.step else run.step
        return [self._judge(batch, run) for batch in self._ready(reached)]

    def _ready(self, reached: float) -> Iterator[BatchCopies]:
        while self.waiting and self.waiting[0].step <= reached:
            yield self.waiting.popleft()

    def _judge(self, batch: BatchCopies, run: RunView) -> Reading:
        self.unproven = None
        limits, entropies = CopyLimits(self.alike, self.batches, self.template, self.many), run.trend.entropy_by_step
        entropy = entropies.at(batch.step)
        fallen = entropy is not None and entropy < self.fallen_entropy * entropies.highest(batch.step)
        low = None if entropy is None else fallen or entropy < self.low_entropy
        unsure = entropy is not None and entropy >= UNSURE and not low
        certain = unsure and self.history.never_one_text and batch.impossible(entropy or 0.0, self.alike)
        if batch.short and not certain:
            return Reading(Verdict.NO_DATA, message=SHORT, step=batch.step)
        scattered = not low and batch.scattered(self.alike, self.template)
        if not (batch.regular(self.alike) or scattered or batch.repeated >= self.many):
            self.history.take_diverse(batch)
            return Reading(Verdict.OK, value=batch.repeated, step=batch.step)
        self.history.extend(batch, self.alike)
        cause = cause_of(batch, self.history, limits, low=low, fallen=fallen, certain=certain)
        if cause is None:
            return Reading(Verdict.OK, value=batch.repeated, step=batch.step)
        if not certain and not proven(cause, batch, self.history, limits, low=low):
            if self.history.alike >= self.batches:
                return Reading(Verdict.OK, value=batch.repeated, step=batch.step)
            self.unproven = Reading(Verdict.BREACH, message=batch.says(), evidence=batch.evidence())
            waits = NotYet("repeated texts in too few distinct batches yet")
            return Reading(Verdict.NO_DATA, message=waits, step=batch.step)
        return self._breach(batch, sampled(cause, run), entropy)

    def _breach(self, batch: BatchCopies, cause: CopyCause, entropy: float | None) -> Reading:
        return Reading(
            Verdict.BREACH,
            value=batch.repeated,
            severity=cause.severity,
            message=f"{batch.says()}: {cause.says}",
            hint=cause.hint,
            evidence={**batch.evidence(), "entropy": entropy},
            step=batch.step,
            first_step=self.history.first_step,
            immediate=True,
        )
