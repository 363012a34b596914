"""Completions of one prompt repeat each other exactly: ranks share a seed, decoding is greedy, or the policy collapsed."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import MappingProxyType

from grpo_watch.core.detector import SILENT, Detector, Param, RunView
from grpo_watch.core.evidence import number
from grpo_watch.core.patterns import Layout, layout
from grpo_watch.core.records import (
    CompletionSummary,
    GroupSummary,
    MetricRow,
    Reading,
    Scalar,
    Severity,
    Stream,
    Tick,
    Verdict,
)

REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class _Batch:
    """What one dumped generation batch shows: its commonest pattern and how many of its groups have it."""

    step: int
    pattern: tuple[int, ...]
    layout: Layout
    alike: float
    groups: int
    repeated: float
    digest: str


class DuplicateCompletions(Detector):
    """Looks at groups of long enough, non-empty texts; joins the logged entropy of the same step to tell why."""

    reads = (CompletionSummary, MetricRow, Tick)
    needs = (("completions",),)
    params = MappingProxyType(
        {
            "min_characters": Param(12, "shorter texts may be equal by chance or by task", minimum=1),
            "alike": Param(0.9, "share of groups that must show the same pattern", 0, 1),
            "low_entropy": Param(0.1, "entropy (nats per token) below which equal texts are a collapse", minimum=0),
            "fallen_entropy": Param(0.5, "the same, as a share of the run's highest entropy so far", 0, 1),
            "batches": Param(3, "distinct batches needed when one is not proof", minimum=1),
            "many": Param(0.5, "share of repeated completions without a rule that is a warning", 0, 1),
        }
    )
    min_characters: int
    alike: float
    low_entropy: float
    fallen_entropy: float
    batches: int
    many: float

    def setup(self) -> None:
        """Empty join."""
        self.waiting: deque[_Batch] = deque(maxlen=REMEMBERED)
        self.entropy: deque[tuple[int, float]] = deque(maxlen=REMEMBERED)
        self.highest_entropy = 0.0
        self.reward: tuple[float, float] | None = None
        self.last_row = 0
        self.streak: list[_Batch] = []
        self.was_diverse = False

    def observe(self, record: CompletionSummary | MetricRow | Tick, run: RunView) -> Iterable[Reading]:
        """Take a batch, a row or the end of input; judge the batches whose row is there."""
        if isinstance(record, CompletionSummary):
            batch = self._summarise(record)
            if batch is not None:
                self.waiting.append(batch)
        elif isinstance(record, MetricRow):
            self._take(record)
        elif self.last_row:
            return SILENT
        return list(self._judge_ready(everything=isinstance(record, Tick)))

    def _take(self, row: MetricRow) -> None:
        if row.supplement and "entropy" not in row.values:
            return
        self.last_row = max(self.last_row, row.step)
        entropy = number(row, "entropy")
        if entropy is not None:
            self.entropy.append((row.step, entropy))
            self.highest_entropy = max(self.highest_entropy, entropy)

    def _summarise(self, summary: CompletionSummary) -> _Batch | None:
        if summary.stream is not Stream.TRAIN or not summary.complete:
            return None
        groups = [group for group in summary.groups if self._telling(group)]
        if not groups or len(groups) * 2 < len(summary.groups):
            return None
        (pattern, count), *_ = Counter(group.pattern for group in groups).most_common(1)
        size = sum(group.size for group in groups)
        repeated = sum(group.size - group.unique for group in groups)
        digest = "".join(group.digest for group in summary.groups)
        alike = count / len(groups)
        return _Batch(summary.step, pattern, layout(pattern), alike, len(groups), repeated / size, digest)

    def _telling(self, group: GroupSummary) -> bool:
        """Enough long, non-empty texts of one prompt."""
        long = sum(length >= self.min_characters for length in group.lengths)
        return group.size > 1 and group.prompts == 1 and group.empty == 0 and 2 * long >= group.size

    def _judge_ready(self, *, everything: bool) -> Iterator[Reading]:
        while self.waiting and (everything or self.waiting[0].step <= self.last_row):
            yield self._judge(self.waiting.popleft())

    def _judge(self, batch: _Batch) -> Reading:
        bad = batch.alike >= self.alike and batch.layout is not Layout.DISTINCT
        if not bad and batch.repeated < self.many:
            self.streak.clear()
            self.was_diverse = True
            return Reading(Verdict.OK, value=batch.repeated, step=batch.step)
        if self.streak and self.streak[-1].digest == batch.digest:
            return Reading(Verdict.NO_DATA, message="the same batch was dumped again", step=batch.step)
        self.streak.append(batch)
        entropy = next((value for step, value in reversed(self.entropy) if step <= batch.step), None)
        severity, kind = self._diagnose(batch, entropy)
        enough = len(self.streak) >= self.batches
        proof = batch.groups >= 2 and severity is Severity.CRITICAL  # noqa: PLR2004 - one group may repeat by chance
        if not (enough or proof):
            return Reading(Verdict.NO_DATA, message="repeated texts in too few batches yet", step=batch.step)
        return self._breach(batch, severity, kind, entropy)

    def _diagnose(self, batch: _Batch, entropy: float | None) -> tuple[Severity, str]:
        regular = batch.alike >= self.alike
        if regular and batch.layout in (Layout.STRIDE, Layout.ROUND_ROBIN, Layout.IRREGULAR):
            return Severity.CRITICAL, f"the same {batch.layout.value} pattern: ranks or engines share a seed"
        if self._low(entropy):
            return Severity.WARNING, "the policy collapsed to few texts (its entropy is low)"
        if not regular:
            return Severity.WARNING, "texts repeat without a rule: near-greedy sampling or a collapse"
        if entropy is None and self.was_diverse:
            return Severity.WARNING, "groups were diverse before: the policy collapsed, or sampling was switched"
        return Severity.CRITICAL, "one text per group at normal entropy: greedy decoding, or one seed per request"

    def _low(self, entropy: float | None) -> bool:
        return entropy is not None and (
            entropy < self.low_entropy or entropy < self.fallen_entropy * self.highest_entropy
        )

    def _breach(self, batch: _Batch, severity: Severity, kind: str, entropy: float | None) -> Reading:
        evidence: dict[str, Scalar] = {
            "pattern": str(batch.pattern),
            "layout": batch.layout.value,
            "groups": batch.groups,
            "groups_alike_ratio": round(batch.alike, 4),
            "repeated_ratio": round(batch.repeated, 4),
            "entropy": entropy,
        }
        distinct = len(set(batch.pattern))
        return Reading(
            Verdict.BREACH,
            value=batch.repeated,
            severity=severity,
            message=f"{distinct} distinct of {len(batch.pattern)} completions in {batch.alike:.0%} of the groups; {kind}",
            evidence=evidence,
            step=batch.step,
            first_step=self.streak[0].step,
            immediate=True,
        )
