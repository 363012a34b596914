"""Many completions are empty: the model ends its turn with its first token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grpo_watch.detectors.shared.likely_causes import NO_TEXT
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import CompletionSummary, MetricRow, Reading, Scalar, Verdict
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.window import Window


class EmptyCompletions(Detector):
    """Counts empty texts in the dumps; without dumps, a mean length of one token shows the same."""

    explained_by = ("non-finite-metric", "stale-rollout-weights", "kl-explosion")
    wastes = WasteKind.STEPS
    likely_causes = NO_TEXT

    reads = (CompletionSummary, MetricRow)
    needs = (("completions",), ("completion_length_mean",))
    share: float = param(0.25, "share of empty completions that is a breach", 0, 1)
    batches: int = param(5, "batches (or generation rows) averaged", minimum=3)
    length: float = param(1.2, "mean length in tokens, including the end token, at which nearly all are empty", 1)

    def setup(self) -> None:
        """Empty windows."""
        self.empty, self.lengths = Window(self.batches), Window(self.batches)

    def observe(self, record: CompletionSummary | MetricRow, run: RunView) -> Iterable[Reading]:
        """Take a batch, or a row's mean length."""
        if isinstance(record, CompletionSummary):
            return self._batch(record)
        length = number(record, "completion_length_mean")
        if length is None or len(self.empty):
            return SILENT
        return self._row(record, length, run)

    def _batch(self, summary: CompletionSummary) -> Iterable[Reading]:
        groups = summary.groups
        if not groups:
            return SILENT
        self.empty.push(sum(group.empty for group in groups) / sum(group.size for group in groups))
        share = self.empty.mean() or 0.0
        if not self.empty.full:
            return no_data(NotYet("too few batches yet"))
        if share < self.share:
            return QUIET
        evidence = {"empty_ratio": round(share, 4), "batches": len(self.empty)}
        return (_breach(f"{share:.0%} of the completions are empty", share, self.share, evidence),)

    def _row(self, row: MetricRow, length: float, run: RunView) -> Iterable[Reading]:
        cut = number(row, "completion_truncated_ratio") or 0.0
        if cut > 0 or run.number("max_completion_length") == 1:
            return QUIET  # one-token texts that are truncated, not ended
        self.lengths.push(length)
        median = self.lengths.median()
        if not self.lengths.full or median is None:
            return no_data(NotYet("too few generation rows yet"))
        if median > self.length:
            return QUIET
        evidence = {"completion_length_mean": round(median, 4), "rows": len(self.lengths)}
        return (_breach(f"completions have {median:.2g} tokens on average: only the end token", median, 0, evidence),)


def _breach(message: str, value: float, threshold: float, evidence: Mapping[str, Scalar]) -> Reading:
    return Reading(Verdict.BREACH, value=value, threshold=threshold, message=message, evidence=evidence)
