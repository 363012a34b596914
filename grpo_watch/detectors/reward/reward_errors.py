"""Rewards that could not be computed count as 0: right answers are punished for a timeout."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.detectors.shared.generations import completions_per_row, with_evaluation
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading
from grpo_watch.engine.traits import LikelyCause
from grpo_watch.engine.window import Window

SLOW = LikelyCause("The verifier is slower than its timeout under load: raise the timeout or start fewer at a time.")
DOWN = LikelyCause("The sandbox or judge does not answer: call it by hand with one of the failing completions.")


class RewardErrors(Detector):
    """Counts lines of the log that say so against the completions of a step.

    The share is a proposal: no healthy recorded run has such a line.
    """

    likely_causes = (SLOW, DOWN)

    needs = (("reward_failures",),)
    share: float = param(0.2, "share of a step's completions whose reward failed that is a breach", 0, 1)
    rows: int = param(10, "rows in the median", minimum=1)

    def setup(self) -> None:
        """No row yet."""
        self.failed = Window(self.rows)

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one row with a reward; once failures were seen, a row without any counts as none."""
        failed = number(record, "reward_failures")
        scored = "reward_mean" in record.values and run.seen("reward_failures")
        if failed is None and not scored:
            return SILENT
        if with_evaluation(record):
            return no_data(NotApplicable("the lines before an evaluation's row may be the evaluation's"))
        self.failed.push(failed or 0.0)
        completions = completions_per_row(run)
        if completions is None:
            return no_data("how many completions a step has is not known: set generation_batch_size")
        if not self.failed.full:
            return no_data(NotYet("too few rows yet"))
        share = min(1.0, (self.failed.median() or 0.0) / completions)
        if share < self.share or run.trend.reward_does_well():
            return QUIET
        message = f"the rewards of {share:.0%} of the completions failed and counted as 0 (median of {self.rows} rows)"
        evidence = {"reward_failures": self.failed.median(), "rows": self.rows, "completions_per_row": completions}
        return breach(value=share, threshold=self.share, message=message, evidence=evidence)
