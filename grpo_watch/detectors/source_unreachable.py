"""A source of the run can not be read any more: what it would show is not seen."""

from __future__ import annotations

from grpo_watch.core.records import EventKind, RunEvent
from grpo_watch.core.watcher_says import WatcherSays


class SourceUnreachable(WatcherSays):
    """One alert per channel, begun and ended by what the watcher itself says."""

    begins, ends, evidence = EventKind.SOURCE_PROBLEM, EventKind.SOURCE_RECOVERED, ("channel", "problem")

    def message(self, event: RunEvent) -> str:
        """Which channel, and what the operating system says."""
        return f"{event.channel} can not be read: {event.text}"
