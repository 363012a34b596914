"""One completion per prompt: a group of one has no spread, so GRPO has nothing to learn from."""

from __future__ import annotations

from collections.abc import Iterable
from math import isclose

from grpo_watch import lazy_re as re
from grpo_watch.detectors.shared.refusals import GROUP_OF_ONE
from grpo_watch.engine.detector import QUIET, SILENT, Detector, RunView, no_data
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import (
    CompletionSummary,
    EventKind,
    MetricRow,
    Reading,
    RunConfig,
    RunEvent,
    Tick,
    Verdict,
)
from grpo_watch.engine.traits import WasteKind

EXTREME = re.compile(r"(?:score|reward)s?/(?:max|min)$")
"""How the keys of a batch's largest and smallest reward end."""
SAME = 1e-4
"""Relative difference within which an advantage equals a reward: verl 0.3 divides a lone one by 1 + 1e-6."""


class GroupSizeOne(Detector):
    """Reads the text of a configuration error, or the configuration once rows came (verl accepts one generation)."""

    wastes = WasteKind.STEPS

    reads = (RunEvent, RunConfig, CompletionSummary, MetricRow, Tick)

    def setup(self) -> None:
        """Start with no advantages."""
        self.compared = False

    def observe(
        self, record: RunEvent | RunConfig | CompletionSummary | MetricRow | Tick, run: RunView
    ) -> Iterable[Reading]:
        """Judge a configuration error, or the configured group size."""
        if isinstance(record, RunEvent):
            refused = record.kind is EventKind.CONFIG_ERROR and GROUP_OF_ONE.search(record.text) is not None
            return (_breach(f"refused at start: {record.text}", record.text),) if refused else SILENT
        if isinstance(record, CompletionSummary):
            return QUIET if any(group.size > 1 and group.prompts == 1 for group in record.groups) else SILENT
        if isinstance(record, MetricRow) and "advantage_max" in record.values:
            self.compared |= _compares(record)
        size = run.number("num_generations")
        if not run.step:
            return SILENT
        if size is None:
            return no_data("num_generations is not known")
        if size == 1 and not self.compared:
            return (_breach("one completion per prompt: every advantage is 0 or undefined", "num_generations=1", 1),)
        return QUIET


def _compares(row: MetricRow) -> bool:
    """Whether some completions were better than others; a lone one's advantage is 0, or its reward (verl)."""
    high, low = number(row, "advantage_max"), number(row, "advantage_min")
    if high is None or low is None or not low < 0 < high:
        return False
    rewards = [value for key, value in row.raw.items() if value is not None and EXTREME.search(key)]
    return not all(any(isclose(value, each, rel_tol=SAME) for each in rewards) for value in (high, low))


def _breach(message: str, error: str, first_step: int | None = None) -> Reading:
    """A breach from the first step on: the configuration holds from there, whenever it is read."""
    return Reading(
        Verdict.BREACH,
        value=1.0,
        threshold=2.0,
        message=message[:300],
        evidence={"num_generations": 1, "error": error[:300]},
        first_step=first_step,
        immediate=True,
    )
