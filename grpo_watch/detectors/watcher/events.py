"""The watcher's own problems: a source that can't be read, a rule that broke, a receiver that gets nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, RunView, breach, no_data
from grpo_watch.engine.records import EventKind, Reading, RunEvent, Tick, Verdict

LONGEST = 300
"""Characters kept of a message or an error."""


class EventDetector(Detector, ABC):
    """Base of these rules: reports what the watcher found about itself; the alert keeps the event's message."""

    reads = (RunEvent, Tick)
    survives_attempts = True
    begins: ClassVar[EventKind]
    ends: ClassVar[EventKind]
    evidence: ClassVar[tuple[str, str]]
    """Evidence keys for the subject of an event and for its text."""

    def observe(self, record: RunEvent | Tick, run: RunView) -> Iterable[Reading]:
        """Take an event of the watcher, or a tick without one."""
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
        """Readings for a tick without an event: OK once there were rows."""
        return QUIET if run.step else SILENT


class DeliveryFailing(EventDetector):
    """One alert per receiver, from the delivery's own reports."""

    begins, ends, evidence = EventKind.DELIVERY_PROBLEM, EventKind.DELIVERY_RECOVERED, ("channel", "problem")

    def message(self, event: RunEvent) -> str:
        """The receiver and its answer."""
        return f"alerts do not reach {event.channel}: {event.text}"

    def without_event(self, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """None: a missing report proves nothing, since without receivers there are no deliveries."""
        return no_data(NotApplicable("no notification had to be sent so far"))


RULE_FILES = "rule files"
"""Subject of events about the rule files as a whole: loading failed, or works again."""


class RuleBroken(EventDetector):
    """One alert per broken rule, reported by the engine at the record that broke it."""

    begins, ends, evidence = EventKind.RULE_BROKEN, EventKind.RULE_LOADED, ("rule", "error")

    def message(self, event: RunEvent) -> str:
        """The rule, or the rule files, and the problem."""
        if event.channel == RULE_FILES:
            return f"the rule files can't be loaded; the previous rules stay in force: {event.text}"
        return f"{event.channel} is broken and no longer judges this run: {event.text}"


class SourceUnreachable(EventDetector):
    """One alert per channel, opened and resolved by the watcher's own reports."""

    begins, ends, evidence = EventKind.SOURCE_PROBLEM, EventKind.SOURCE_RECOVERED, ("channel", "problem")

    def message(self, event: RunEvent) -> str:
        """The channel and its problem."""
        return f"{event.channel} can't be read: {event.text}"
