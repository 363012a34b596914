"""A rule of this run raised an error and judges nothing any more."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.core.detector import QUIET, SILENT, Detector, RunView
from grpo_watch.core.records import EventKind, Reading, RunEvent, Tick, Verdict

RULE_FILES = "rule files"
"""What an event speaks of that concerns no single rule: files that can't be loaded, or can be again."""


class RuleBroken(Detector):
    """One alert per broken rule; the engine says which, at the record that broke it."""

    reads = (RunEvent, Tick)
    survives_attempts = True

    def observe(self, record: RunEvent | Tick, run: RunView) -> Iterable[Reading]:
        """Take an event of the engine; a tick only shows that nothing was said."""
        if isinstance(record, Tick):
            return QUIET if run.step else SILENT
        if record.kind is EventKind.RULE_LOADED:
            return (Reading(Verdict.OK, record.channel),)
        if record.kind is not EventKind.RULE_BROKEN:
            return SILENT
        message = f"{record.channel} is broken and judges nothing any more: {record.text}"[:300]
        if record.channel == RULE_FILES:
            message = f"the rule files can't be loaded, the old rules stay in force: {record.text}"[:300]
        said = {"rule": record.channel, "error": record.text[:300]}
        return (Reading(Verdict.BREACH, record.channel, message=message, evidence=said, immediate=True),)
