"""A filter left less than half of the dataset: the run trains on other prompts than people think."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from grpo_watch.engine.detector import SILENT, Detector, NotApplicable, RunView, no_data, param
from grpo_watch.engine.records import Reading, RunConfig, Verdict
from grpo_watch.engine.run_view import finite
from grpo_watch.engine.traits import LikelyCause

BEFORE, AFTER = "rows_before_filter", "rows_after_filter"
LIMIT = LikelyCause(
    "max_prompt_length is {max_prompt_length}: longer prompts were left out.", bounds={"max_prompt_length": (1, inf)}
)
RAISES = LikelyCause(
    "Rows that raise are left out like long ones: look for 'Error processing one of the samples' in the log.",
    framework="verl",
)
COLUMNS = LikelyCause(
    "Rows that can't be converted are left out, and only the first ones say why: look for a traceback above this line.",
    framework="ms-swift",
)


class DatasetShrunk(Detector):
    """Compares the sizes that a log prints of its largest dataset.

    Half is a proposal: the six filters in three public logs of verl took no row.
    """

    reads = (RunConfig,)
    likely_causes = (LIMIT, RAISES, COLUMNS)
    survives_attempts = True

    share: float = param(0.5, "share of the rows that the filter left, at which it fires", 0, 1)
    rows: int = param(50, "rows of a dataset from which it counts", 1)

    def setup(self) -> None:
        """No size was printed."""
        self.before: float | None = None
        self.largest = 0.0

    def blind_because(self, run: RunView) -> str | None:
        """Most frameworks filter nothing, and ms-swift says nothing unless rows are lost."""
        return None if run.known(AFTER) else NotApplicable("no log prints that a filter left rows out")

    def observe(self, record: RunConfig, run: RunView) -> Iterable[Reading]:
        """Judge when the second size comes. A validation set is smaller, filtered later, and not judged."""
        printed = (record.settings.get(name) for name in (BEFORE, AFTER))
        before, after = (None if setting is None else finite(setting.value) for setting in printed)
        self.before = self.before if before is None else before
        if after is None or self.before is None:
            reason = self.blind_because(run)
            return no_data(reason) if reason else SILENT
        rows, left, self.before = self.before, after, None
        if rows < self.largest:
            return SILENT
        self.largest = rows
        key = f"{rows:.0f} rows"
        if rows < self.rows or left > self.share * rows:
            return (Reading(Verdict.OK, key),)
        text = f"a filter left {left:,.0f} of {rows:,.0f} rows of the dataset"
        evidence = {"share": round(left / rows, 4), "max_prompt_length": run.number("max_prompt_length")}
        return (Reading(Verdict.BREACH, key, left, self.share * rows, text, evidence, immediate=True),)
