"""What the rules about the watcher itself share: one alert per channel, rule or receiver, as its events say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from grpo_watch.engine.detector import QUIET, SILENT, Detector, RunView, breach
from grpo_watch.engine.records import EventKind, Reading, RunEvent, Tick, Verdict

LONGEST = 300
"""Characters of a message or of an error that are kept."""


class EventDetector(Detector, ABC):
    """Base of these rules; the watcher judges, the alert keeps its message."""

    reads = (RunEvent, Tick)
    survives_attempts = True
    begins: ClassVar[EventKind]
    ends: ClassVar[EventKind]
    evidence: ClassVar[tuple[str, str]]
    """What the evidence calls the subject of an event, and its text."""

    def observe(self, record: RunEvent | Tick, run: RunView) -> Iterable[Reading]:
        """Take an event of the watcher; a tick only shows that there was none."""
        if isinstance(record, Tick):
            return self.without_event(run)
        if record.kind is self.ends:
            return (Reading(Verdict.OK, record.channel),)
        if record.kind is not self.begins:
            return SILENT
        subject, text = self.evidence
        evidence = {subject: record.channel, text: record.text[:LONGEST]}
        message = self.message(record)[:LONGEST]
        return breach(record.channel, message=message, evidence=evidence, immediate=True)

    @abstractmethod
    def message(self, event: RunEvent) -> str:
        """The event in words."""

    def without_event(self, run: RunView) -> Iterable[Reading]:
        """What a tick shows: once there were rows, that nothing went wrong."""
        return QUIET if run.step else SILENT
