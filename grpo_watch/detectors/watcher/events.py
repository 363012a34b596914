"""The watcher's own problems: a source that can't be read, a rule that broke, a receiver that gets nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, RunView, breach, no_data
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


class DeliveryFailing(EventDetector):
    """One alert per receiver, from the delivery's own reports."""

    begins, ends, evidence = EventKind.DELIVERY_PROBLEM, EventKind.DELIVERY_RECOVERED, ("channel", "problem")

    def message(self, event: RunEvent) -> str:
        """The receiver and its answer."""
        return f"alerts do not reach {event.channel}: {event.text}"

    def without_event(self, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """No report proves nothing: without receivers there are no deliveries."""
        return no_data(NotApplicable("no notification had to be sent so far"))


RULE_FILES = "rule files"
"""The subject of events about the rule files as a whole: they can't be loaded, or can be again."""


class RuleBroken(EventDetector):
    """One alert per broken rule, reported by the engine at the record that broke it."""

    begins, ends, evidence = EventKind.RULE_BROKEN, EventKind.RULE_LOADED, ("rule", "error")

    def message(self, event: RunEvent) -> str:
        """Names the rule, or the rule files."""
        if event.channel == RULE_FILES:
            return f"the rule files can't be loaded; the previous rules stay in force: {event.text}"
        return f"{event.channel} is broken and no longer judges this run: {event.text}"


class SourceUnreachable(EventDetector):
    """One alert per channel, started and resolved by the watcher's own reports."""

    begins, ends, evidence = EventKind.SOURCE_PROBLEM, EventKind.SOURCE_RECOVERED, ("channel", "problem")

    def message(self, event: RunEvent) -> str:
        """Names the channel and the problem."""
        return f"{event.channel} can't be read: {event.text}"
