"""The end of a run: ``RunEnd`` is what its items, its files and the time show, ``RunLife`` what follows from that.

Whatever says whether a run goes on (``status``, the page, ``/metrics``, ``--exit-when-done``) has it from ``RunLife``.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpo_watch.engine.engine import RunState
from grpo_watch.engine.records import AlertState, EventKind, Item, RawRow, RunEvent, Stream

QUIET_ENDED = 3_600.0
"""Seconds without a write after which a run is over when it reached its last step, or when its end shows nowhere."""
QUIET_STALLED = 86_400.0
"""The same for a run that stopped short of its last step: it is reported as stalled (or crashed) first."""
LOST_LOOKS, LOST_SECONDS = 3, 60.0
"""A run that so many looks did not find, over so long a time in which nothing was read of it, is lost."""


class RunEnd:
    """The end of one run as its items show it; ``finished`` turns true with the end marker of its newest attempt.

    ``written`` is when it was last written to, as far as is known (Unix seconds).
    """

    def __init__(self) -> None:
        self.finished = False
        self.written: float | None = None
        self._marked: RunEvent | None = None
        self._step = -1
        self._beyond: int | None = None
        self._logged: float | None = None

    def take(self, item: Item) -> None:
        """Account for one item."""
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
        """Whether a row after the end marker is of a job that goes on; a slower channel may still bring what was.

        That is what it logged before the marker was seen, where it says when; else one step more, the last one: the
        Trainer writes it to its state file whatever the logging interval. A second one is of a job that goes on.
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
    return any(
        alert.state is AlertState.FIRING and alert.attempt == run.attempt
        for monitor in run.monitors
        if monitor.alerts and monitor.detector.ends_run
        for alert in monitor.alerts.values()
    )


@dataclass(slots=True)
class RunLife:
    """Whether a run goes on. ``ended``, and ``noted`` (when that was noticed), are Unix seconds.

    A run goes on until it is over, or was not found for a while and is lost by that; found again, or written to again,
    it goes on as at first. ``missed`` counts the looks that did not find it; since when (Unix seconds), and how many
    bytes were read of it by then.
    """

    ended: float | None = None
    noted: float | None = None
    lost: bool = False
    missed: int = 0
    missed_since: float = 0.0
    read: int = 0

    def end(self, written: float, now: float) -> None:
        """It is over, and was last written to then."""
        self.ended, self.noted, self.missed = written, now, 0

    def find(self) -> None:
        """Discovery found it; that its end was seen is as true as before."""
        self.missed, self.lost = 0, False

    def go_on(self) -> None:
        """It is read, and not over."""
        self.ended = self.noted = None

    def miss(self, now: float, read: int, *, held: bool, moved: bool) -> bool:
        """Discovery did not find it; whether it is lost by that.

        It may be on its way (a rotation, a folder moved away), and is read on meanwhile. It is lost after some looks
        and some time in which nothing was read, but not while an open file of it has a name somewhere (``held``); at
        once where that file is another run's, or it is a part of another run (``moved``).
        """
        if not self.missed or self.read != read:
            self.missed, self.missed_since, self.read = 0, now, read
        self.missed += 1
        waited = self.missed >= LOST_LOOKS and now - self.missed_since >= LOST_SECONDS
        if moved or (waited and not held):
            self.ended, self.noted, self.lost, self.missed = now, now, True, 0
        return self.lost
