"""How often a run gets its turns: the runs of a large fleet share one core."""

from __future__ import annotations

from dataclasses import dataclass

FEW_RUNS = 100
"""So many runs are read whenever there may be something new, and stored as soon as they were read."""
READ_SECONDS, TICK_SECONDS, LIST_SECONDS, STORE_SECONDS = 0.0005, 0.002, 0.004, 0.004
"""Added for each run beyond these; ``python benchmarks/fleet.py`` shows what 1,000 runs cost."""
SECOND = 1.0


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between two reads of a run's logs, two ticks, two listings of its folders, and two times it is stored.

    A write in a watched folder is read at once, and a transition is stored at once.
    """

    read: float = 0.0
    tick: float = SECOND
    listing: float = SECOND
    store: float = 0.0


def intervals(runs: int) -> Intervals:
    """The shortest intervals while so many runs are watched."""
    many = max(0, runs - FEW_RUNS)
    return Intervals(
        READ_SECONDS * many, SECOND + TICK_SECONDS * many, SECOND + LIST_SECONDS * many, STORE_SECONDS * many
    )
