"""Channels besides the primary one: their rows wait for their step, and their values are compared with its own."""

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
"""Relative difference that rounding explains: Transformers 5 prints four significant digits."""


ENOUGH_ROWS = 5
"""Rows of another channel that were compared before it may count as another job's; half of them must contradict."""
DISPUTED = 2_000
"""Contradictions kept one by one; more are only counted."""
NOT_COMPARED = frozenset({"epoch"})
"""A place, no measurement: Trainers before 5 print it with two decimals, and log it whole elsewhere."""


class _ChannelValue(NamedTuple):
    channel: str
    values: Mapping[str, float | None]
    resolution: float


class _Dispute(NamedTuple):
    own_channel: str
    own: float
    other: float
    rounding: float


@dataclass(slots=True)
class ChannelAgreement:
    """Compares the rows of other channels with those that were given; never decides between them.

    A value that contradicts one attempt and agrees with the next one at the same step belongs to that one: a Trainer's
    state file holds what was logged last. Then its contradiction is withdrawn.
    """

    _compared: Counter[str] = field(default_factory=Counter)
    _contradicting: Counter[str] = field(default_factory=Counter)
    _uncounted: Counter[str] = field(default_factory=Counter)
    _logged: dict[tuple[int, int], _ChannelValue] = field(default_factory=dict)
    _disputes: dict[tuple[int, str, str], _Dispute] = field(default_factory=dict)

    @property
    def conflicts(self) -> Counter[str]:
        """How many values contradict the primary's, by the channel whose value was not used."""
        return self._uncounted + Counter(channel for _, channel, _ in self._disputes)

    def keep(
        self, place: tuple[int, int], channel: str, values: Mapping[str, float | None], resolution: float | None
    ) -> None:
        """Remember the row that was given for this (attempt, step)."""
        if len(self._logged) >= REMEMBERED:
            del self._logged[next(iter(self._logged))]
        self._logged[place] = _ChannelValue(channel, values, resolution or 0.0)
        if self._disputes and place[0] > 1:
            self._withdraw(place[1], values)

    def compare(
        self, place: tuple[int, int], channel: str, values: Mapping[str, float | None], resolution: float | None
    ) -> None:
        """Note the values that differ from the primary's by more than the two channels' rounding."""
        logged = self._logged.get(place)
        if logged is None:
            return
        self._compared[channel] += 1
        rounding, before = logged.resolution + (resolution or 0.0), len(self._disputes) + self._uncounted[channel]
        for name in (values.keys() & logged.values.keys()) - NOT_COMPARED:
            own, other = logged.values[name], values[name]
            if own is not None and other is not None and not _agree(own, other, rounding):
                self._dispute((place[1], channel, name), _Dispute(logged.channel, own, other, rounding))
        self._contradicting[channel] += len(self._disputes) + self._uncounted[channel] > before

    def names(self, place: tuple[int, int]) -> Collection[str]:
        """The metrics of the row that was given for this (attempt, step); empty where it is not remembered."""
        logged = self._logged.get(place)
        return () if logged is None else logged.values.keys()

    def trusts(self, channel: str) -> bool:
        """Whether a channel's rows may fill steps: not where most that could be compared are another job's."""
        compared = self._compared[channel]
        return compared < ENOUGH_ROWS or 2 * self._contradicting[channel] <= compared

    def forget(self) -> None:
        """Another channel is primary now; the old one's rows are no longer compared."""
        self._logged.clear()

    def summary(self) -> str:
        """One line for people; empty where the channels agree."""
        count = self.conflicts.total()
        if not count:
            return ""
        values = "1 value" if count == 1 else f"{count} values"
        first = f": {self._first()}" if self._disputes else ""
        return f"channels contradict each other in {values}, the first named is used{first}"

    def _first(self) -> str:
        (step, channel, name), dispute = min(self._disputes.items())
        return f"step {step}: {name} is {dispute.own:.6g} in {dispute.own_channel} and {dispute.other:.6g} in {channel}"

    def _dispute(self, where: tuple[int, str, str], dispute: _Dispute) -> None:
        if len(self._disputes) < DISPUTED:
            self._disputes.setdefault(where, dispute)
        else:
            self._uncounted[where[1]] += 1

    def _withdraw(self, step: int, values: Mapping[str, float | None]) -> None:
        for where, dispute in list(self._disputes.items()):
            own = values.get(where[2]) if where[0] == step else None
            if own is not None and _agree(own, dispute.other, dispute.rounding):
                del self._disputes[where]


def _agree(own: float, other: float, rounding: float) -> bool:
    if not (math.isfinite(own) and math.isfinite(other)):
        return own == other or (math.isnan(own) and math.isnan(other))
    return abs(own - other) <= rounding + ROUNDING * max(abs(own), abs(other))


BUFFERED_ROWS = 2_000
"""Rows kept of each list; the newest stay (bounds memory)."""

Placed = tuple[int, RawRow]
"""A row and its step."""


class WaitingRows:
    """Rows whose step the primary has not reached, and rows of segments that it has not begun."""

    def __init__(self) -> None:
        self._rows: list[Placed] = []
        self._later: list[Placed] = []

    def __bool__(self) -> bool:
        return bool(self._rows or self._later)

    def __iter__(self) -> Iterator[Placed]:
        """All of them: by step, the better channel first; those of later segments at the end."""
        yield from self._rows
        yield from self._later

    def add(self, step: int, row: RawRow) -> None:
        """Let a row wait for its step."""
        insort(self._rows, (step, row), key=_place)
        del self._rows[:-BUFFERED_ROWS]

    def add_later(self, step: int, row: RawRow) -> None:
        """Let a row wait for its segment."""
        self._later.append((step, row))
        del self._later[:-BUFFERED_ROWS]

    def drop_misprint(self, row: RawRow, ledger: AttemptLedger) -> None:
        """The newest row of a channel that waits showed a wrong step: far ahead, and this one goes on from before it.

        Where only one waits, it was far ahead if it is far beyond the primary.
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
        """Let rows wait for their step whose segment has begun."""
        if self._later:
            later, self._later = self._later, []
            for step, row in later:
                (self.add_later if still_later(row) else self.add)(step, row)

    def before(self, step: int) -> Iterator[Placed]:
        """Take out the rows before a step, in order."""
        while self._rows and self._rows[0][0] < step:
            yield self._rows.pop(0)

    def beyond(self, last: int | None) -> list[RawRow]:
        """The rows after the last step, and those of later segments."""
        return [row for step, row in self._rows if last is None or step > last] + [row for _, row in self._later]

    def take_all(self) -> list[RawRow]:
        """Take out all."""
        rows = [row for _, row in self]
        self._rows, self._later = [], []
        return rows


def _place(placed: Placed) -> tuple[int, ChannelKind, str]:
    step, row = placed
    return step, row.kind, row.channel
