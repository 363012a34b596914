"""How long a run that gives nothing is left alone: a thousand quiet logs polled at full rate take half a core."""

from __future__ import annotations

LONGEST_SECONDS = 10.0
"""Longest rest; where inotify watches the folder of the log, a write ends it at once."""
SHARE = 15.0
"""A run rests for this part of the time that it has given nothing: one step a minute is seen within 4 seconds."""
WHOLE_SECONDS = 1.0
"""Longer rests end with a tick, so that a run is read and ticked in the same turn."""


class Rest:
    """When a run is due.

    Args:
        now: Unix seconds.
    """

    def __init__(self, now: float) -> None:
        self._gave_at = self._read_at = now

    def due(self, now: float, *, ticks: bool, least: float = 0.0) -> bool:
        """Whether to read the run in this turn; ``ticks``: it is one in which runs get the time. A clock may jump.

        ``least`` are seconds to rest in any case.
        """
        pause = max(least, min(LONGEST_SECONDS, (self._read_at - self._gave_at) / SHARE))
        if pause < WHOLE_SECONDS:
            return abs(now - self._read_at) >= pause
        return ticks and abs(now - self._read_at) >= pause - WHOLE_SECONDS / 2  # ticks are a little off

    def read(self, now: float, *, gave: bool) -> None:
        """The run was read, and gave something or nothing."""
        if gave or now < self._gave_at:
            self._gave_at = now
        self._read_at = now
