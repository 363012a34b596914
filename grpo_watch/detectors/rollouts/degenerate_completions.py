"""Degenerate completions: empty ones; loops, runs of one character, or scraps of many scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from grpo_watch.detectors.rollouts.copies import shown
from grpo_watch.detectors.shared.likely_causes import NO_TEXT, WEIGHTS
from grpo_watch.detectors.shared.logprob_gap import GAPS
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import CompletionSummary, GroupSummary, MetricRow, Reading, Scalar, Severity, Verdict
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.trend import MOST
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
        """Start with empty windows."""
        self.empty, self.lengths = Window(self.batches), Window(self.batches)

    def observe(self, record: CompletionSummary | MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge a batch, or a row's mean length."""
        if isinstance(record, CompletionSummary):
            return self._batch(record)
        length = number(record, "completion_length_mean")
        if length is None or self.empty.values:
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
            return QUIET  # truncated one-token texts, not ended ones
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


LOST_WEIGHTS = (
    "Sudden garbage points at the engine's weights: set vLLM's sleep level to 1, reload the weights "
    "after waking, and upgrade (ms-swift 3.12, TRL with PR #5313); compare with `model.generate` of the trainer."
)


def levels(run: RunView) -> dict[str, float]:
    """The newest reward and gaps to the engine; only those that are logged."""
    newest = {metric: run.newest(metric) for metric in ("reward_mean", *(gap.metric for gap in GAPS))}
    return {metric: value for metric, value in newest.items() if value is not None}


def engine_agrees(calm: Mapping[str, float], run: RunView) -> bool:
    """Whether since ``calm`` a gap rose to that of other weights, or most of the reward was lost.

    Tables of zeros that earn well are intended, however suddenly they come.
    """
    now = levels(run)
    gaps = (gap for gap in GAPS if gap.metric in now)
    leapt = any(now[gap.metric] - calm.get(gap.metric, gap.zero) >= gap.broken for gap in gaps)
    return leapt or _lost(calm.get("reward_mean"), now.get("reward_mean")) or run.trend.reward.fell(MOST)


def _lost(before: float | None, now: float | None) -> bool:
    """Whether most of a positive reward is gone."""
    return before is not None and now is not None and before > 0.0 and now <= (1.0 - MOST) * before


class GibberishCompletions(Detector):
    """Compares the share of degenerate texts in new train batches with the run's own first batches."""

    explained_by = (
        "non-finite-metric",
        "stale-rollout-weights",
        "kl-explosion",
        "entropy-explosion",
        "duplicate-completions",
        "entropy-collapse",
    )
    wastes = WasteKind.STEPS
    likely_causes = WEIGHTS[:-1]

    reads = (CompletionSummary,)
    needs = (("completions",),)
    share: float = param(0.3, "share of degenerate texts that is a breach if it has also risen by `rise`", 0, 1)
    rise: float = param(0.15, "required rise above the run's own first batches", 0, 1)
    always: float = param(0.6, "share that is a breach even from the start", 0, 1)
    cut: float = param(0.5, "truncated share that makes a breach from the start a warning (loops don't end)", 0, 1)
    batches: int = param(3, "number of batches in the judged median; the first ones are the baseline", minimum=2)

    def setup(self) -> None:
        """Start with empty windows."""
        self.recent = Window(self.batches)
        self.first: list[float] = []
        self.before = 1.0
        self.sound: int | None = None
        self.since: int | None = None
        self.calm: dict[str, float] = {}

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge one batch together with those before it."""
        groups = [group for group in record.groups if group.judged]
        texts = sum(group.judged or 0 for group in groups)
        if not texts:
            return no_data("the texts are too short to judge, or were not sampled") if record.groups else SILENT
        share = sum(map(_degenerate, groups)) / texts
        if share < self.share:
            self.before, self.sound, self.since, self.calm = share, record.step, None, levels(run)
        else:
            self.since = record.step if self.since is None else self.since
        return self._judge(share, groups, run)

    def _judge(self, share: float, groups: list[GroupSummary], run: RunView) -> Iterable[Reading]:
        self.recent.push(share)
        leapt = bool(self.first) and median(self.first) < self.rise and share >= self.share
        if len(self.first) < self.batches and not leapt:
            self.first.append(share)
        recent, first = self.recent.median() or 0.0, median(self.first)
        if not self.recent.full:
            return no_data(NotYet("too few batches yet"))
        risen = recent >= max(self.share, first + self.rise)
        if not risen and recent < self.always:
            return QUIET
        loops = sum(group.looping for group in groups) >= sum(group.scattered for group in groups)
        what = "loops or runs of one character" if loops else "scraps of many scripts"
        abrupt = risen and self.before < self.rise and min(self.recent.values) >= self.share
        cut = run.trend.truncated.mean or 0.0
        trend = self._trend(first, risen=risen, abrupt=abrupt)
        return breach(
            value=recent,
            threshold=self.share if risen else self.always,
            message=f"{recent:.0%} of the completions are {what}, {trend}",
            evidence={
                "degenerate_ratio": round(recent, 4),
                "at_first": round(first, 4),
                "truncated": round(cut, 4),
                "since_step": self.since,
                **shown(group for group in groups if _degenerate(group)),
            },
            severity=None if risen or cut >= self.cut else Severity.INFO,
            hint=LOST_WEIGHTS if abrupt and engine_agrees(self.calm, run) else "",
        )

    def _trend(self, first: float, *, risen: bool, abrupt: bool) -> str:
        """How the share developed: lost weights show from one step to the next, a decaying policy over many steps."""
        if not risen:
            return "from the start"
        if abrupt:
            return f"all at once from step {self.since} on ({self.before:.0%} at step {self.sound})"
        since = "" if self.since is None else f", {self.share:.0%} or more since step {self.since}"
        return f"more and more ({first:.0%} at first{since})"


def _degenerate(group: GroupSummary) -> int:
    return group.looping + group.scattered
