"""The ledger of attempts: tells a restart from duplicates, late rows and two jobs writing to one log."""

from __future__ import annotations

from typing import NamedTuple

from grpo_watch.core.records import RawRow

INTERLEAVED_AFTER = 3
"""So many one-row excursions to lower, rising steps mean two jobs in one log (a late flush comes once or twice)."""


class Entry(NamedTuple):
    """A row with its attempt and step settled."""

    row: RawRow
    attempt: int
    step: int


class Ledger:
    """Counts the attempts of one run from the rows of its primary channel.

    A new attempt begins when a higher segment (a resume's folder) or a restarted progress bar shows, or when steps go
    back and go on from there for two rows. The first row that goes back is held until the second decides; if the old
    sequence goes on instead, the held row was a duplicate.
    """

    def __init__(self) -> None:
        self.attempt = 1
        self.last_step: int | None = None
        self.duplicates = 0
        self.interleaved = False
        self._segment: int | None = None
        self._held: Entry | None = None
        self._restarted = False
        self._excursions: list[int] = []

    def restart(self) -> None:
        """A progress bar began anew: the next row opens an attempt (if there was one before)."""
        self._restarted = self.last_step is not None

    def take(self, row: RawRow) -> list[Entry]:
        """The rows that are settled now, in order (none while one is held; two when a restart is confirmed)."""
        step = row.step if row.step is not None else (self.last_step or 0) + 1
        if self._segment is None:
            self._segment = row.segment
        if row.segment < self._segment:
            return self._duplicate()
        if row.segment > self._segment or self._restarted:
            return self._begin(row, step)
        if self.last_step is None or step > self.last_step:
            return self._forward(row, step)
        return self._backward(row, step)

    def _begin(self, row: RawRow, step: int) -> list[Entry]:
        fresh = self.last_step is None
        self._segment, self._restarted, self._held = row.segment, False, None
        self._excursions.clear()
        self.attempt += not fresh
        self.last_step = step
        return [Entry(row, self.attempt, step)]

    def _forward(self, row: RawRow, step: int) -> list[Entry]:
        if self._held is not None:
            self._note_excursion(self._held.step)
            self._held = None
            self.duplicates += 1
        self.last_step = step
        return [Entry(row, self.attempt, step)]

    def _backward(self, row: RawRow, step: int) -> list[Entry]:
        held = self._held
        if held is None or step <= held.step:
            repeated = held is not None or step == self.last_step
            if not repeated:
                self._held = Entry(row, self.attempt + 1, step)
                return []
            return self._duplicate()
        self.attempt += 1
        self._held, self.last_step = None, step
        self._excursions.clear()
        return [held, Entry(row, self.attempt, step)]

    def _duplicate(self) -> list[Entry]:
        self.duplicates += 1
        return []

    def _note_excursion(self, step: int) -> None:
        if self._excursions and step <= self._excursions[-1]:
            self._excursions.clear()
        self._excursions.append(step)
        self.interleaved = self.interleaved or len(self._excursions) >= INTERLEAVED_AFTER
