"""The ledger of attempts: distinguishes restarts from duplicates, late rows and two jobs writing to one log."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from grpo_watch.engine.records import ChannelKind, RawRow

ENOUGH = 3
"""This many rows of the older file must be newer than the start of the other; fewer may be a dying job's late flush."""


@dataclass(slots=True)
class _Written:
    """When a file was begun, and the times of its newest rows (Unix seconds, the producer's)."""

    channel: str
    first: float
    newest: deque[float] = field(default_factory=lambda: deque(maxlen=ENOUGH))


class SegmentOverlap:
    """Detects files of one kind but different segments that grow at once: a resumed job writes them one after another.

    ``problem``: one line for people; empty unless two jobs seem to write.
    """

    def __init__(self) -> None:
        self.problem = ""
        self._files: dict[tuple[ChannelKind, int], _Written] = {}

    def take(self, row: RawRow) -> bool:
        """Note a row; returns whether it is the first sign of two files written at the same time."""
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
"""A step this many times further ahead than the pace so far may be a misprint."""
RANKS_LAG = 4
"""Rows that one rank may lag behind another on one console; an identical row within them is the other rank's."""


ROWS_BEFORE_BAR = 3
"""A bar or server event behind this many rows belongs to the attempt that these rows began."""


class PlacedRow(NamedTuple):
    """A row with its attempt and step settled."""

    row: RawRow
    attempt: int
    step: int


class AttemptLedger:
    """Counts the attempts of one run from the rows of its primary channel.

    A new attempt begins with a higher segment (a resume's folder), a restarted progress bar, or steps that go back and
    continue from there for two rows. The first row that goes back is held until the second decides; if the old sequence
    continues instead, the held row was a duplicate. So is a row identical to a recent one. A row whose step lies far
    ahead counts at once, as printed. If the next row continues from the row before it, the step was a misprint, and
    going back from it begins no attempt.
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
        """Note a restarted progress bar: the next row opens an attempt, unless the current one has had no bar yet."""
        if self._barless:
            self._barless = 1  # the current attempt gets this bar; the next row ends the wait for it
        else:
            self._restarted = self.last_step is not None

    def change_channel(self) -> None:
        """Note that another channel is primary now; its segments are counted separately."""
        self.segment = self._held = self._before_far = None

    def fill(self, step: int) -> None:
        """Note another channel's step before the newest one; if the newest was a misprint, it isn't read twice."""
        self._filled = step

    def completes(self, row: RawRow) -> bool:
        """Whether the row only adds metrics to the newest step: some writers log a step in several calls."""
        if row.step is None or row.step != self.last_step or row.segment != self.segment or self._restarted:
            return False
        shared = row.values.keys() & self._newest[-1][1].keys()
        return self._held is None and shared <= {"epoch"} < row.values.keys() | {"epoch"}

    def take(self, row: RawRow) -> list[PlacedRow]:
        """Take a row; returns the settled rows in order: none while one is held, two when a restart is confirmed."""
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
        far = gone > FAR * self.pace and self._before_far is None  # a row behind a far step confirms it
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
        """Whether a row continues from the one before the far step (two jobs do so again and again)."""
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
