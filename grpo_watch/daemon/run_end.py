"""The end of one run, as its items, its files and the time show it."""

from __future__ import annotations

from grpo_watch.engine.records import AlertState, EventKind, Item, RawRow, RunEvent, Stream
from grpo_watch.engine.run_state import RunState

QUIET_ENDED = 3_600.0
"""Seconds without a write after which a run is over when it reached its last step, or when its end shows nowhere."""
QUIET_STALLED = 86_400.0
"""The same for a run that stopped short of its last step: it is reported as stalled (or crashed) first."""


class RunEnd:
    """The end of one run as its items show it; ``finished`` turns true with the end marker of its newest attempt."""

    def __init__(self) -> None:
        self.finished = False
        self.written: float | None = None
        self._marked: RunEvent | None = None
        self._step = -1
        self._logged: float | None = None

    def take(self, item: Item) -> None:
        """Account for one item."""
        if isinstance(item, RunEvent):
            if item.kind is EventKind.FINISHED:
                self.finished, self._marked = True, item
            elif item.kind is EventKind.STARTED:
                self.finished, self._step = False, -1
        elif isinstance(item, RawRow) and item.stream is not Stream.EVAL:
            self.finished = self.finished and not self._goes_on(item)
            self._step = max(self._step, -1 if item.step is None else item.step)
            if item.time is not None:
                self._logged = max(item.time, self._logged or item.time)

    def _goes_on(self, row: RawRow) -> bool:
        """Whether a row after the end marker is of a job that goes on; a slower channel may still bring what was."""
        mark = self._marked
        if mark is None or row.channel == mark.channel or row.segment > mark.segment:
            return True
        return row.step is not None and row.step > self._step

    def touch(self, moment: float) -> None:
        """Something was written at ``moment`` (Unix seconds)."""
        self.written = max(moment, self.written or moment)

    def date_by_steps(self) -> None:
        """Take the time of the newest step for that of the last write: a copy's files are younger than the run."""
        if self._logged is not None and self.written is not None:
            self.written = min(self.written, self._logged)

    def over(self, now: float, run: RunState) -> bool:
        """Whether the run is over at ``now`` (Unix seconds); ``run`` is what the engine knows of it."""
        if self.finished or _crashed(run):
            return True
        short = run.max_steps is not None and run.step < run.max_steps
        limit = QUIET_STALLED if short and run.shows_end else QUIET_ENDED
        return self.written is not None and now - self.written > limit


def _crashed(run: RunState) -> bool:
    """Whether the crash of the newest attempt was found."""
    return any(
        alert.state is AlertState.FIRING and alert.attempt == run.attempt
        for monitor in run.monitors
        if monitor.alerts and monitor.detector.ends_run
        for alert in monitor.alerts.values()
    )
