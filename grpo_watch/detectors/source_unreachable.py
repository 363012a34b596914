"""A source of the run can not be read any more: what it would show is not seen."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.core.detector import QUIET, SILENT, Detector, RunView
from grpo_watch.core.records import EventKind, Reading, RunEvent, Tick, Verdict


class SourceUnreachable(Detector):
    """One alert per channel, begun and ended by what the watcher itself says."""

    reads = (RunEvent, Tick)
    survives_attempts = True

    def observe(self, record: RunEvent | Tick, run: RunView) -> Iterable[Reading]:
        """Take an event of the watcher; a tick only shows that nothing was said."""
        if isinstance(record, Tick):
            return QUIET if run.step else SILENT
        if record.kind is EventKind.SOURCE_RECOVERED:
            return (Reading(Verdict.OK, record.channel),)
        if record.kind is not EventKind.SOURCE_PROBLEM:
            return SILENT
        message = f"{record.channel} can not be read: {record.text}"[:300]
        said = {"channel": record.channel, "problem": record.text[:300]}
        return (Reading(Verdict.BREACH, record.channel, message=message, evidence=said, immediate=True),)
