"""Channels besides the primary: their rows wait for their step, and their values are compared with the primary's."""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from grpo_watch.engine.records import ChannelKind, RawRow
from grpo_watch.pipeline.attempts import FAR, AttemptLedger

CONFLICT = "conflict"
"""The reason label under which values that contradict the primary channel's are counted."""
REMEMBERED = 500
"""Rows kept for comparison: Trainers save their state every 500 steps by default."""
ROUNDING = 1e-3
"""Relative difference within rounding: Transformers 5 prints four significant digits."""


ENOUGH_ROWS = 5
"""Compared rows before a channel may count as another job's; at least half of them must contradict."""
NOT_COMPARED = frozenset({"epoch"})
"""``epoch`` is a position: Trainers before 5 print two decimals on the console but log all digits elsewhere."""


class _Given(NamedTuple):
    channel: str
    values: Mapping[str, float | None]
    resolution: float


@dataclass(slots=True)
class ChannelAgreement:
    """Compares the rows of other channels with the emitted ones; never decides between two values.

    ``conflicts``: number of values that contradict the primary's, by the channel whose value was dropped.
    """

    conflicts: Counter[str] = field(default_factory=Counter)
    _compared: Counter[str] = field(default_factory=Counter)
    _contradicting: Counter[str] = field(default_factory=Counter)
    _first: dict[str, str] = field(default_factory=dict)
    _given: dict[tuple[int, int], _Given] = field(default_factory=dict)

    def keep(
        self, place: tuple[int, int], channel: str, values: Mapping[str, float | None], resolution: float | None
    ) -> None:
        """Remember the row emitted for this (attempt, step)."""
        if len(self._given) >= REMEMBERED:
            del self._given[next(iter(self._given))]
        self._given[place] = _Given(channel, values, resolution or 0.0)

    def compare(
        self, place: tuple[int, int], channel: str, values: Mapping[str, float | None], resolution: float | None
    ) -> None:
        """Count the values that differ from the primary's by more than the two channels' rounding."""
        given = self._given.get(place)
        if given is None:
            return
        rounding, before = given.resolution + (resolution or 0.0), self.conflicts[channel]
        for name in sorted((values.keys() & given.values.keys()) - NOT_COMPARED):
            own, other = given.values[name], values[name]
            if own is not None and other is not None and not _agree(own, other, rounding):
                both = f"{name} is {own:.6g} in {given.channel} and {other:.6g} in {channel}"
                self._first.setdefault(channel, f"step {place[1]}: {both}")
                self.conflicts[channel] += 1
        self._compared[channel] += 1
        self._contradicting[channel] += self.conflicts[channel] > before

    def names(self, place: tuple[int, int]) -> Collection[str]:
        """Return the metrics of the row emitted for this (attempt, step); empty if it isn't remembered."""
        given = self._given.get(place)
        return () if given is None else given.values.keys()

    def trusts(self, channel: str) -> bool:
        """Whether a channel's rows may fill steps: False if most compared rows seem to be another job's."""
        compared = self._compared[channel]
        return compared < ENOUGH_ROWS or 2 * self._contradicting[channel] <= compared

    def forget(self) -> None:
        """Forget the rows of the old primary after another channel took over."""
        self._given.clear()

    def summary(self) -> str:
        """Return one line for people about the first channel that looks like another job's; empty if there is none."""
        other = next((channel for channel in self._first if not self.trusts(channel)), None)
        if other is None:
            return ""
        return (
            f"{other} contradicts the run's rows at most of their steps, none is filled from it: {self._first[other]}"
        )


def _agree(own: float, other: float, rounding: float) -> bool:
    if not (math.isfinite(own) and math.isfinite(other)):
        return own == other or (math.isnan(own) and math.isnan(other))
    return abs(own - other) <= rounding + ROUNDING * max(abs(own), abs(other))


BUFFERED_ROWS = 2_000
"""Rows kept in each list; the newest stay (bounds memory)."""

Placed = tuple[int, RawRow]
"""A row and its step."""


class WaitingRows:
    """Rows ahead of the primary's step, and rows of segments that it has not begun."""

    def __init__(self) -> None:
        self._rows: list[Placed] = []
        self._later: list[Placed] = []

    def __bool__(self) -> bool:
        return bool(self._rows or self._later)

    def __iter__(self) -> Iterator[Placed]:
        """All waiting rows: by step, the better channel first; later segments at the end."""
        yield from self._rows
        yield from self._later

    def add(self, step: int, row: RawRow) -> None:
        """Make a row wait for its step."""
        insort(self._rows, (step, row), key=_place)
        del self._rows[:-BUFFERED_ROWS]

    def add_later(self, step: int, row: RawRow) -> None:
        """Make a row wait for its segment."""
        self._later.append((step, row))
        del self._later[:-BUFFERED_ROWS]

    def drop_misprint(self, row: RawRow, ledger: AttemptLedger) -> None:
        """Drop the channel's newest waiting row if its step was a misprint: far ahead of the rows around it.

        A row that waits alone counts as far ahead if it is far beyond the primary.
        """
        step, far = row.step or 0, FAR * ledger.pace
        if not self._rows or self._rows[-1][0] - step <= far:
            return
        mine = (placed for placed in reversed(self._rows) if placed[1].channel == row.channel)
        newest, before = next(mine, None), next(mine, None)
        if newest is None or newest[0] - step <= far:
            return
        if newest[0] - (ledger.last_step or 0) > far if before is None else before[0] < step:
            self._rows.remove(newest)

    def release(self, still_later: Callable[[RawRow], bool]) -> None:
        """Make rows wait for their step once their segment has begun."""
        if self._later:
            later, self._later = self._later, []
            for step, row in later:
                (self.add_later if still_later(row) else self.add)(step, row)

    def before(self, step: int) -> Iterator[Placed]:
        """Take out the rows before a step, in order."""
        while self._rows and self._rows[0][0] < step:
            yield self._rows.pop(0)

    def beyond(self, last: int | None) -> list[RawRow]:
        """Return the rows after the last step, and those of later segments."""
        return [row for step, row in self._rows if last is None or step > last] + [row for _, row in self._later]

    def take_all(self) -> list[RawRow]:
        """Take out all rows."""
        rows = [row for _, row in self]
        self._rows, self._later = [], []
        return rows


def _place(placed: Placed) -> tuple[int, ChannelKind, str]:
    step, row = placed
    return step, row.kind, row.channel
