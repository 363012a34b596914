"""How fast a run goes: median seconds per optimizer step and longest wait, from its metrics or from arrival times."""

from __future__ import annotations

from collections import deque
from statistics import median

from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow

WINDOW_ROWS = 50


class Pace:
    """Median seconds per optimizer step, and the longest wait for a row, over the last rows.

    The time between two attempts is no pace. Prefers the logged step time, then the producer's clock, then arrival
    times (which come in bursts when a log is block-buffered, so that their median may be near zero: callers keep a
    floor).
    """

    def __init__(self) -> None:
        self.logged: deque[float] = deque(maxlen=WINDOW_ROWS)
        self.clocked: deque[float] = deque(maxlen=WINDOW_ROWS)
        self.waits: deque[float] = deque(maxlen=WINDOW_ROWS)
        self._last: tuple[int, float] | None = None
        self._before = (0, 0)

    def take(self, row: MetricRow) -> None:
        """Account for one train row of the primary channel."""
        clock = row.time if row.time is not None else row.seen
        step, seconds = row.step, number(row, "step_seconds")
        known, before = self._before
        self._before = (row.attempt, step)
        steps = step - before if row.attempt == known else 0
        if seconds is not None and seconds > 0:
            self.logged.append(seconds)
            self.waits.append(seconds * max(1, steps))
        if clock is None:
            return
        if self._last is not None and steps > 0 and clock > self._last[1]:
            self.clocked.append((clock - self._last[1]) / steps)
            self.waits.append(clock - self._last[1])
        self._last = (step, clock)

    def median(self) -> float | None:
        """Seconds per optimizer step; None until known."""
        times = self.logged or self.clocked
        return median(times) if times else None

    def longest_wait(self) -> float:
        """Seconds of the longest wait between two rows of the window; 0 until known.

        Rows that generate take many times longer than rows that reuse a batch (41 times in a real run of ms-swift
        4.6.0 with two iterations), and a row may stand for ``logging_steps`` steps.
        """
        return max(self.waits, default=0.0)


def duration(seconds: float) -> str:
    """Seconds as people say them: ``45 seconds``, ``12 minutes``, ``3 hours``, ``2 days``."""
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} second{'' if f'{seconds:.0f}' == '1' else 's'}"
