"""Puts rows that follow each other and are alike into blocks, whatever source they come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import hypot

from grpo_watch.engine.records import Item, Progress, RawRow
from grpo_watch.frameworks.raw_block import HUGE, LEAST, ROWS, RawBlock

NUMBERS = {float}


def gathered(items: Iterable[Item | RawBlock]) -> Iterator[Item | RawBlock]:
    """The items in their order, with rows in blocks where they may come so.

    A progress bar between two rows is part of the block where it only repeats the total of the one before. Anything
    else is given after what was gathered, and before the next item is asked for.
    """
    stretch = _Stretch()
    for item in items:
        if isinstance(item, RawRow):
            if len(stretch.rows) == ROWS or not stretch.takes(item):
                yield from stretch.end()
            stretch.add(item)
        elif isinstance(item, Progress) and stretch.repeats(item):
            stretch.bars[-1].append(item)
        else:
            yield from stretch.end()
            stretch.bar = item if isinstance(item, Progress) else None
            yield item
    yield from stretch.end()


class _Stretch:
    """Rows that are alike, with the bars behind each; ``bar`` is the newest one, if only rows came after it."""

    def __init__(self) -> None:
        self.rows: list[RawRow] = []
        self.bars: list[list[Progress]] = []
        self.bar: Progress | None = None
        self._keys: tuple[str, ...] = ()

    def takes(self, row: RawRow) -> bool:
        """Whether the row follows on those before, as far as one look shows."""
        if not self.rows:
            return True
        last = self.rows[-1]
        return (
            row.step is not None
            and last.step is not None
            and row.step > last.step
            and _rest(row) == _rest(last)
            and (row.time is None) is (last.time is None)
            and tuple(row.values) == self._keys
        )

    def add(self, row: RawRow) -> None:
        """Take the next row."""
        if not self.rows:
            self._keys = tuple(row.values)
        self.rows.append(row)
        self.bars.append([])

    def repeats(self, bar: Progress) -> bool:
        """Whether a bar says no more than the one before: the same total, which is not reached."""
        known = self.bar
        return (
            known is not None
            and bool(self.rows)
            and (bar.channel, bar.segment, bar.max_steps) == (known.channel, known.segment, known.max_steps)
            and max(bar.step, known.step) < bar.max_steps
            and bar.channel == self.rows[-1].channel
            and bar.segment == self.rows[-1].segment
            and bar.seen is None
        )

    def end(self) -> Iterator[Item | RawBlock]:
        """All that was gathered; nothing is left."""
        rows, bars = self.rows, self.bars
        self.rows, self.bars = [], []
        if bars and bars[-1]:
            self.bar = bars[-1][-1]
        yield from _parts(rows, bars)


def _parts(rows: Sequence[RawRow], bars: Sequence[Sequence[Progress]]) -> Iterator[Item | RawBlock]:
    """Rows that are alike, in blocks as far as their numbers allow it."""
    block = _block(rows, bars) if len(rows) >= LEAST else None
    if block is not None:
        yield block
        yield from bars[-1]
    elif len(rows) >= 2 * LEAST:
        middle = len(rows) // 2
        yield from _parts(rows[:middle], bars[:middle])
        yield from _parts(rows[middle:], bars[middle:])
    else:
        for row, behind in zip(rows, bars, strict=True):
            yield row
            yield from behind


def _block(rows: Sequence[RawRow], bars: Sequence[Sequence[Progress]]) -> RawBlock | None:
    """The rows as columns; None where a number is none, or too large."""
    first = rows[0]
    steps = [row.step for row in rows if row.step is not None]
    columns = dict(zip(first.values, zip(*(row.values.values() for row in rows), strict=True), strict=True))
    plain = len(steps) == len(rows) and first.stream is None and first.seen is None and not first.text
    times = [row.time for row in rows if row.time is not None]
    if (
        not columns
        or not plain
        or not all(set(map(type, each)) == NUMBERS and _sound(each) for each in columns.values())
    ):
        return None
    if times and not (min(times) > 0 and _sound(times)):
        return None
    total = next((each[0].max_steps for each in bars[:-1] if each), 0)
    return RawBlock(
        first.channel,
        first.kind,
        steps,
        {key: [number for number in column if number is not None] for key, column in columns.items()},
        first.segment,
        first.max_steps,
        first.resolution,
        times or None,
        [(), *(tuple(bar.step for bar in each) for each in bars[:-1])] if total else (),
        total,
    )


def _sound(numbers: Iterable[float | None]) -> bool:
    """Whether all numbers are finite and none is too large."""
    return hypot(*(number or 0.0 for number in numbers)) < HUGE


def _rest(row: RawRow) -> tuple[object, ...]:
    """What all rows of a block have in common."""
    return (row.channel, row.kind, row.stream, row.segment, row.max_steps, row.seen, row.resolution, row.text)
