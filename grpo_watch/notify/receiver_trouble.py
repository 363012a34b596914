"""Notices when a receiver begins to get nothing and when messages arrive again; says how long to wait in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

TROUBLE_TRIES = 5
"""Attempts in a row without success after which a receiver counts as failing (15 s at the shortest waits)."""
MOST_RUNS = 20
"""At most so many runs get the event."""


@dataclass(frozen=True, slots=True)
class TroubleReport:
    """A receiver gets nothing, for the reason ``text``; ``runs`` are those whose messages waited."""

    sink: str
    text: str
    runs: frozenset[str]


class ReceiverTrouble:
    """What was reported of one receiver."""

    def __init__(self, sink: str) -> None:
        self._sink = sink
        self._tries = 0
        self._reported = self._arrived = False
        self._reports: list[TroubleReport] = []
        self.now = ""
        """What is wrong now, whether a run is concerned or not."""

    def tried(self, why: str, runs: Iterable[str]) -> None:
        """An attempt had no success."""
        self._tries += 1
        if self._tries >= TROUBLE_TRIES:
            self.begins(why, runs)

    def begins(self, why: str, runs: Iterable[str]) -> None:
        """A message will not arrive, or none did for a while."""
        self.now = why or "no answer"
        concerned = frozenset() if self._reported else frozenset(sorted(set(runs))[:MOST_RUNS])
        if concerned:
            self._reported = True
            self._reports.append(TroubleReport(self._sink, self.now, concerned))

    def over(self) -> None:
        """A message arrived."""
        self._tries, self.now = 0, ""
        self._reported, self._arrived = False, True

    @property
    def well(self) -> bool:
        """Whether something arrived since the start, and nothing is wrong since then."""
        return self._arrived and not self.now

    def reports(self) -> list[TroubleReport]:
        """The reports that are due; handed out once."""
        reports, self._reports = self._reports, []
        return reports


FIRST_SECONDS = 1.0
"""Longest wait before the first repetition; it doubles from there …"""
LONGEST_SECONDS = 60.0
"""… up to this."""
LONGEST_ASKED_SECONDS = 900.0
"""Longest wait that a receiver may ask for."""


def wait_before(tries: int, chance: Callable[[], float], asked: float | None = None) -> float:
    """Seconds until the next attempt.

    Args:
        tries: how often it was tried without success, from 1.
        chance: a number in 0…1; half of the wait is random, so that several watchers don't come back at once.
        asked: what the receiver asked for (``Retry-After``).
    """
    longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(tries - 1, 10))
    own = longest * (0.5 + 0.5 * chance())
    return own if asked is None else max(own, min(asked, LONGEST_ASKED_SECONDS))
