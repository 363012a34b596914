"""Rows of a log as columns, as its source read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

from grpo_watch.engine.block import Columns
from grpo_watch.engine.records import ChannelKind, Progress, RawRow

ROWS = 256
"""Rows of a block at most: what rules look at before it must fit the rows that a run remembers."""
LEAST = 32
"""Fewer rows are read one by one."""
HUGE = 1e300
"""Numbers this large are read one by one: the sum of a row must not overflow, which would make it one for all rules."""


@dataclass(frozen=True, slots=True)
class RawBlock:
    """Complete train rows of one file with the same keys, strictly rising steps and nothing but finite numbers.

    The fields are those of ``RawRow``; ``stream`` is not known. ``times`` is None where no row knows its own. ``bars``
    are the steps of the progress bars before each row, all of the total ``bar_total``, which says nothing new.
    """

    channel: str
    kind: ChannelKind
    steps: Sequence[int]
    columns: Columns
    segment: int = 0
    max_steps: int | None = None
    resolution: float | None = None
    times: Sequence[float] | None = None
    bars: Sequence[Sequence[int]] = ()
    bar_total: int = 0

    def __len__(self) -> int:
        return len(self.steps)

    def part(self, start: int, stop: int | None = None) -> RawBlock:
        """The rows from one index to before another."""
        columns = {key: column[start:stop] for key, column in self.columns.items()}
        times = None if self.times is None else self.times[start:stop]
        return replace(self, steps=self.steps[start:stop], columns=columns, times=times, bars=self.bars[start:stop])

    def rows(self) -> Iterator[RawRow]:
        """The rows one by one."""
        keys = tuple(self.columns)
        times = repeat(None, len(self)) if self.times is None else self.times
        for step, values, time in zip(self.steps, zip(*self.columns.values(), strict=True), times, strict=True):
            yield RawRow(
                self.channel,
                self.kind,
                step,
                dict(zip(keys, values, strict=True)),
                segment=self.segment,
                max_steps=self.max_steps,
                time=time,
                resolution=self.resolution,
            )

    def items(self) -> Iterator[RawRow | Progress]:
        """The rows one by one, with the bars before each."""
        for row, steps in zip(self.rows(), self.bars or repeat(()), strict=False):
            for step in steps:
                yield Progress(self.channel, step, self.bar_total, self.segment)
            yield row
