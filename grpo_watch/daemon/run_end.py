"""The end of a run: ``RunEnd`` collects the signs of it in items, files and time, ``RunLife`` holds the conclusion.

``status``, the page, ``/metrics`` and ``--exit-when-done`` all read from ``RunLife`` whether a run is still going.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpo_watch.engine.engine import RunState
from grpo_watch.engine.records import AlertState, EventKind, Item, RawRow, RunEvent, Stream

QUIET_ENDED = 3_600.0
"""Seconds without a write after which a run is over if it reached its last step or its channels show no end."""
QUIET_STALLED = 86_400.0
"""The same for a run that stopped short of its last step: it is first reported as stalled (or crashed)."""
LOST_LOOKS, LOST_SECONDS = 3, 60.0
"""A run is lost after so many looks in a row that did not find it, over at least so many seconds without new data."""


class RunEnd:
    """The signs of a run's end; ``finished`` is True after the end marker of its newest attempt.

    ``written`` is the last known write (Unix seconds).
    """

    def __init__(self) -> None:
        self.finished = False
        self.written: float | None = None
        self._marked: RunEvent | None = None
        self._step = -1
        self._beyond: int | None = None
        self._logged: float | None = None

    def take(self, item: Item) -> None:
        """Take an item into account."""
        if isinstance(item, RunEvent):
            if item.kind is EventKind.FINISHED:
                self.finished, self._marked, self._beyond = True, item, None
            elif item.kind is EventKind.STARTED:
                self.finished, self._step = False, -1
        elif isinstance(item, RawRow) and item.stream is not Stream.EVAL:
            self.finished = self.finished and not self._goes_on(item)
            if not self.finished:
                self._step = max(self._step, -1 if item.step is None else item.step)
            if item.time is not None:
                self._logged = max(item.time, self._logged or item.time)

    def _goes_on(self, row: RawRow) -> bool:
        """Whether a row after the end marker means that the job continues; slow channels still deliver older rows.

        Older rows were logged before the marker was seen, if they carry a time; else one further step is allowed: the
        Trainer writes the last step to its state file whatever the logging interval. A second further step means that
        the job continues.
        """
        mark = self._marked
        if mark is None or row.channel == mark.channel or row.segment > mark.segment:
            return True
        if row.step is None or row.step <= self._step:
            return False
        if row.time is not None and mark.seen is not None:
            return row.time > mark.seen
        first, self._beyond = self._beyond, max(row.step, self._beyond or 0)
        return first is not None and row.step > first

    def touch(self, moment: float) -> None:
        """Note a write at ``moment`` (Unix seconds)."""
        self.written = max(moment, self.written or moment)

    def date_by_steps(self) -> None:
        """Cap the last write at the time of the newest step: the files of a copy are younger than the run."""
        if self._logged is not None and self.written is not None:
            self.written = min(self.written, self._logged)

    def over(self, now: float, run: RunState) -> bool:
        """Whether the run is over at ``now`` (Unix seconds); ``run`` is the engine's state."""
        if self.finished or _crashed(run):
            return True
        short = run.max_steps is not None and run.step < run.max_steps
        limit = QUIET_STALLED if short and run.shows_end else QUIET_ENDED
        return self.written is not None and now - self.written > limit


def _crashed(run: RunState) -> bool:
    return any(
        alert.state is AlertState.FIRING and alert.attempt == run.attempt
        for monitor in run.monitors
        if monitor.alerts and monitor.detector.ends_run
        for alert in monitor.alerts.values()
    )


@dataclass(slots=True)
class RunLife:
    """Whether a run is still going. ``ended``, and ``noted`` (when that was noticed), are Unix seconds.

    A run is going until it is over, or lost because discovery did not find it for a while; found again or written to
    again, it continues. ``missed`` counts the looks that did not find it; ``missed_since`` (Unix seconds) is when they
    began, ``read`` how many bytes had been read by then.
    """

    ended: float | None = None
    noted: float | None = None
    lost: bool = False
    missed: int = 0
    missed_since: float = 0.0
    read: int = 0

    def end(self, written: float, now: float) -> None:
        """Mark the run as ended; its last write was at ``written``."""
        self.ended, self.noted, self.missed = written, now, 0

    def find(self) -> None:
        """Note that discovery found the run; an end that was seen stays."""
        self.missed, self.lost = 0, False

    def go_on(self) -> None:
        """Mark the run as still going."""
        self.ended = self.noted = None

    def miss(self, now: float, read: int, *, held: bool, moved: bool) -> bool:
        """Note that discovery did not find the run; returns whether it is lost.

        The run may be in transit (a rotation, a moved folder), so reading continues. It is lost after ``LOST_LOOKS``
        looks and ``LOST_SECONDS`` without new data, unless an open file of it still has a name somewhere (``held``); at
        once if that file now belongs to another run, or the run is part of another one (``moved``).
        """
        if not self.missed or self.read != read:
            self.missed, self.missed_since, self.read = 0, now, read
        self.missed += 1
        waited = self.missed >= LOST_LOOKS and now - self.missed_since >= LOST_SECONDS
        if moved or (waited and not held):
            self.ended, self.noted, self.lost, self.missed = now, now, True, 0
        return self.lost
