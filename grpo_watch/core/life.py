"""When a run was last heard of, and whether it said that it ended."""

from __future__ import annotations

from grpo_watch.core.records import Activity, EventKind, MetricRow, Progress, RunEvent

ENDS = (EventKind.FINISHED, EventKind.CRASH_SUMMARY, EventKind.KILLED, EventKind.TRACEBACK)


class SignsOfLife:
    """Follows rows, progress bars, file activity and events; ``last`` is in Unix seconds, None until a time is known.

    ``rows`` counts rows of the primary channel; ``ended`` is the kind of the event that ended the run, until it is
    started again or logs another row.
    """

    def __init__(self) -> None:
        self.last: float | None = None
        self.rows = 0
        self.ended: EventKind | None = None

    def take(self, record: MetricRow | Progress | Activity | RunEvent) -> None:
        """Account for one record."""
        if isinstance(record, MetricRow):
            self._take_row(record)
        elif isinstance(record, Activity):
            self._heard(record.time)
        else:
            self._heard(record.seen)
        if isinstance(record, RunEvent):
            self._take_event(record.kind)

    def _take_row(self, row: MetricRow) -> None:
        self.ended, self.rows = None, self.rows + 1
        self._heard(row.seen)
        self._heard(row.time)

    def _take_event(self, kind: EventKind) -> None:
        if kind in ENDS:
            self.ended = kind
        elif kind is EventKind.STARTED:
            self.ended = None

    def _heard(self, time: float | None) -> None:
        if time is not None:
            self.last = max(time, self.last or time)
