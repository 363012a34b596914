"""Alerts do not reach one of their receivers."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.core.detector import SILENT, Detector, RunView, no_data
from grpo_watch.core.records import EventKind, Reading, RunEvent, Tick, Verdict


class DeliveryFailing(Detector):
    """One alert per channel, begun and ended by what the watcher itself says."""

    reads = (RunEvent, Tick)
    survives_attempts = True

    def observe(self, record: RunEvent | Tick, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Take an event of the watcher; a tick only shows that nothing was said."""
        if isinstance(record, Tick):
            return no_data("nothing tells of deliveries: no receiver is configured, or none was needed yet")
        if record.kind is EventKind.DELIVERY_RECOVERED:
            return (Reading(Verdict.OK, record.channel),)
        if record.kind is not EventKind.DELIVERY_PROBLEM:
            return SILENT
        message = f"{record.channel} does not get its alerts: {record.text}"[:300]
        said = {"channel": record.channel, "problem": record.text[:300]}
        return (Reading(Verdict.BREACH, record.channel, message=message, evidence=said, immediate=True),)
