"""Many prompts are exactly as long as the prompt limit: they were truncated before the model saw them."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading, Verdict
from grpo_watch.engine.window import Window


class PromptsCut(Detector):
    """Adds up the share of prompts at the limit; quiet if the settings rule truncation out.

    The default share suits the smallest batches: with one prompt per row and one in 20 at the limit, five of 20
    coincide in 0.3 % of all windows.
    """

    needs = (("prompt_truncated_ratio",),)
    share: float = param(0.25, "mean share of prompts at the limit that fires", 0.01, 1)
    rows: int = param(20, "rows averaged; a sum already large enough for all of them counts at once", 4, 64)

    def setup(self) -> None:
        """Empty window."""
        self.cut = Window(self.rows)

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row."""
        cut = number(record, "prompt_truncated_ratio")
        if cut is None:
            return SILENT
        self.cut.push(cut)
        if run.setting("prompt_truncation") == "error" or run.setting("prompts_filtered") is True:
            return QUIET
        if self.cut.total < self.share * self.rows - 1e-9:
            return QUIET if self.cut.full else no_data(NotYet("too few rows yet"))
        return (self._breach(run),)

    def _breach(self, run: RunView) -> Reading:
        mean, limit = self.cut.mean() or 0.0, run.number("max_prompt_length")
        at = f" of {limit:.0f} tokens" if limit else ""
        return Reading(
            Verdict.BREACH,
            value=mean,
            threshold=self.share,
            message=f"{mean:.0%} of the prompts are as long as the prompt limit{at}: they are probably truncated",
            evidence={
                "prompt_truncated_ratio": round(mean, 4),
                "rows": len(self.cut),
                "max_prompt_length": limit,
                "truncation": run.setting("prompt_truncation"),
            },
        )
