"""The ledger of attempts: distinguishes restarts from duplicates, late rows and two jobs writing to one log."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from grpo_watch.engine.records import ChannelKind, RawRow

ENOUGH = 3
"""This many rows of the older file are newer than the beginning of the other: no late flush of a dying job."""


@dataclass(slots=True)
class _Written:
    """When one file was begun, and its newest rows (Unix seconds, the producer's)."""

    channel: str
    first: float
    newest: deque[float] = field(default_factory=lambda: deque(maxlen=ENOUGH))


class SegmentOverlap:
    """Compares files of one kind and different segments: a resumed job writes the next file after the last one.

    ``problem``: one line for people; empty while nothing points to two jobs.
    """

    def __init__(self) -> None:
        self.problem = ""
        self._files: dict[tuple[ChannelKind, int], _Written] = {}

    def take(self, row: RawRow) -> bool:
        """Note a row; whether it showed for the first time that two files were written at the same time."""
        if self.problem or row.time is None:
            return False
        place = (row.kind, row.segment)
        own = self._files.setdefault(place, _Written(row.channel, row.time))
        own.newest.append(row.time)
        others = (other for key, other in self._files.items() if key[0] is row.kind and other is not own)
        for other in others:
            first, second = sorted((own, other), key=lambda written: written.first)
            if len(first.newest) == ENOUGH and first.newest[0] > second.first:
                self.problem = (
                    f"{first.channel} and {second.channel} were written at the same time: two jobs, not two attempts "
                    "of one; give each job its own folder, or watch one file"
                )
                return True
        return False


INTERLEAVED_AFTER = 3
"""This many one-row excursions to lower, rising steps mean two jobs in one log (a late flush comes once or twice)."""
FAR = 100
"""This many times further ahead than the row before was, a step may be a misprint."""
RANKS_LAG = 4
"""This many rows a rank may lag behind another on one console: what repeats one of them to the digit is its copy."""


ROWS_BEFORE_BAR = 3
"""Where the rows themselves showed an attempt, a bar (or a server's word) behind so many of them is of that attempt."""


class PlacedRow(NamedTuple):
    """A row with its attempt and step settled."""

    row: RawRow
    attempt: int
    step: int


class AttemptLedger:
    """Counts the attempts of one run from the rows of its primary channel.

    A new attempt begins when a higher segment (a resume's folder) or a restarted progress bar shows, or when steps go
    back and continue from there for two rows. The first row that goes back is held until the second decides; if the old
    sequence continues instead, the held row was a duplicate. So is a row that repeats one of the newest to the digit.
    A row whose step lies far ahead counts at once, as printed: where the next one goes on from the row before it, that
    step was a misprint, and going back from it begins no attempt.
    """

    def __init__(self) -> None:
        self.attempt = 1
        self.last_step: int | None = None
        self.interleaved = False
        self.segment: int | None = None
        self._held: PlacedRow | None = None
        self._before_far: int | None = None
        self._filled = self._misprints = 0
        self.pace = 1
        self._restarted = False
        self._barless = 0
        self._excursions: list[int] = []
        self._newest: deque[tuple[int, Mapping[str, float | None]]] = deque(maxlen=RANKS_LAG)

    def restart(self) -> None:
        """A progress bar started over: the next row opens an attempt, if there was one before that had its bar."""
        if self._barless:
            self._barless = 1  # that was its bar; the next row ends the wait for it
        else:
            self._restarted = self.last_step is not None

    def change_channel(self) -> None:
        """The rows come from another channel now, whose segments are counted on their own."""
        self.segment = self._held = self._before_far = None

    def fill(self, step: int) -> None:
        """Another channel gave this step, before the newest one: if that was a misprint, it is not to be read twice."""
        self._filled = step

    def completes(self, row: RawRow) -> bool:
        """Whether a row has only other metrics of the newest step: its writer logs a step in several calls."""
        if row.step is None or row.step != self.last_step or row.segment != self.segment or self._restarted:
            return False
        shared = row.values.keys() & self._newest[-1][1].keys()
        return self._held is None and shared <= {"epoch"} < row.values.keys() | {"epoch"}

    def take(self, row: RawRow) -> list[PlacedRow]:
        """The rows that are settled now, in order (none while one is held; two when a restart is confirmed)."""
        step = row.step if row.step is not None else (self.last_step or 0) + 1
        if self.segment is None:
            self.segment = row.segment
        if row.segment < self.segment:
            return []
        if row.segment > self.segment or self._restarted:
            return self._begin(row, step)
        if self._shows_misprint(step):
            if step <= self._filled:
                return []
            self._misprints += 1
            self.interleaved = self._misprints >= INTERLEAVED_AFTER
            self.last_step = max(self._before_far or 0, self._filled)
        if self.last_step is None or step > self.last_step:
            return self._forward(row, step)
        if (step, row.values) in self._newest:
            return []
        return self._backward(row, step)

    def _begin(self, row: RawRow, step: int) -> list[PlacedRow]:
        self.attempt += self.last_step is not None
        self._barless = 0 if self._restarted else ROWS_BEFORE_BAR
        self.segment, self._restarted, self._held = row.segment, False, None
        self._excursions.clear()
        return [self._settle(PlacedRow(row, self.attempt, step))]

    def _settle(self, entry: PlacedRow) -> PlacedRow:
        gone = entry.step - self.last_step if self.last_step is not None else 0
        far = gone > FAR * self.pace and self._before_far is None  # one behind a far step confirms it
        if not far and self._before_far is None:  # two jobs alternate: every other row is far
            self._misprints = 0
        self._before_far, self._filled = self.last_step if far else None, 0
        self.pace = gone if gone > 0 and not far else self.pace
        self.last_step = entry.step
        self._newest.append((entry.step, entry.row.values))
        return entry

    def _forward(self, row: RawRow, step: int) -> list[PlacedRow]:
        if self._held is not None:
            self._note_excursion(self._held.step)
            self._held = None
        self._barless = max(0, self._barless - 1)
        return [self._settle(PlacedRow(row, self.attempt, step))]

    def _shows_misprint(self, step: int) -> bool:
        """Whether a row goes on from the one before the far step (two jobs do so again and again)."""
        before = self._before_far
        if before is None or self.last_step is None or self.interleaved:
            return False
        return before < step < self.last_step and step <= max(before, self._filled) + FAR * self.pace

    def _backward(self, row: RawRow, step: int) -> list[PlacedRow]:
        held = self._held
        if step == (self.last_step if held is None else held.step):
            return []
        if held is None or step < held.step:
            self._held = PlacedRow(row, self.attempt + 1, step)
            return []
        self.attempt, self._held, self._barless = held.attempt, None, ROWS_BEFORE_BAR
        self._excursions.clear()
        return [self._settle(held), self._settle(PlacedRow(row, self.attempt, step))]

    def _note_excursion(self, step: int) -> None:
        if self._excursions and step <= self._excursions[-1]:
            self._excursions.clear()
        self._excursions.append(step)
        self.interleaved = self.interleaved or len(self._excursions) >= INTERLEAVED_AFTER
