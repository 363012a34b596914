"""Alerts do not reach one of their receivers."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.detectors.watcher.event_detector import EventDetector
from grpo_watch.engine.detector import NotApplicable, RunView, no_data
from grpo_watch.engine.records import EventKind, Reading, RunEvent


class DeliveryFailing(EventDetector):
    """One alert per receiver, from the delivery's own reports."""

    begins, ends, evidence = EventKind.DELIVERY_PROBLEM, EventKind.DELIVERY_RECOVERED, ("channel", "problem")

    def message(self, event: RunEvent) -> str:
        """The receiver and its answer."""
        return f"alerts do not reach {event.channel}: {event.text}"

    def without_event(self, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """No report proves nothing: without receivers there are no deliveries."""
        return no_data(NotApplicable("no notification had to be sent so far"))
