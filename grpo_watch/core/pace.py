"""How fast a run goes: the median seconds per optimizer step, from its own metrics or from arrival times."""

from __future__ import annotations

from grpo_watch.core.evidence import number
from grpo_watch.core.records import MetricRow
from grpo_watch.core.window import Window

WINDOW_ROWS = 50


class Pace:
    """Median seconds per optimizer step over the last rows.

    Prefers the logged step time, then the producer's clock, then arrival times (which come in bursts when a log is
    block-buffered, so that their median may be near zero: callers keep a floor).
    """

    def __init__(self) -> None:
        self.logged = Window(WINDOW_ROWS)
        self.clocked = Window(WINDOW_ROWS)
        self._last: tuple[int, float] | None = None

    def take(self, row: MetricRow) -> None:
        """Account for one train row of the primary channel."""
        seconds = number(row, "step_seconds")
        if seconds is not None and seconds > 0:
            self.logged.push(seconds)
        clock = row.time if row.time is not None else row.seen
        if clock is None:
            return
        if self._last is not None and row.step > self._last[0] and clock > self._last[1]:
            self.clocked.push((clock - self._last[1]) / (row.step - self._last[0]))
        self._last = (row.step, clock)

    def median(self) -> float | None:
        """Seconds per optimizer step; None until known."""
        return self.logged.median() or self.clocked.median()


def duration(seconds: float) -> str:
    """Seconds as people say them: ``45 seconds``, ``12 minutes``, ``3 hours``, ``2 days``."""
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
