"""Train rows as columns: the backlog of a log is judged in blocks, with the same results as row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TypeAlias

from grpo_watch.engine.evidence import FLOAT_NOISE
from grpo_watch.engine.records import MetricRow, Stream

Columns: TypeAlias = Mapping[str, Sequence[float]]
"""A number per row for each key, in the keys' order in the row."""

TAIL = 66
"""Rows made at once for those who look back: as many as most of them ask for."""


class Block:
    """Rows of the primary channel in one attempt that have the same keys and nothing but finite numbers.

    ``steps`` rise strictly; ``values`` and ``raw`` are those of the rows, as columns; ``times`` are the producer's
    where every row has one (Unix seconds, above 0). Nothing of a block changes.
    """

    __slots__ = ("_means", "_silent", "_tail", "attempt", "raw", "resolution", "run", "steps", "times", "values")

    def __init__(  # noqa: PLR0913, PLR0917  a column for each field of a row
        self,
        run: str,
        attempt: int,
        steps: Sequence[int],
        values: Columns,
        raw: Columns,
        resolution: float | None,
        times: Sequence[float] | None = None,
    ) -> None:
        self.run, self.attempt, self.resolution, self.times = run, attempt, resolution, times
        self.steps, self.values, self.raw = steps, values, raw
        self._silent: Sequence[float | None] | None = None
        self._tail: tuple[MetricRow, ...] | None = None
        self._means: dict[str, list[float]] = {}

    def __len__(self) -> int:
        return len(self.steps)

    def part(self, start: int, stop: int | None = None) -> Block:
        """The rows from one index to before another; the block itself where that is all of it."""
        end = len(self.steps) if stop is None else stop
        if start == 0 and end == len(self.steps):
            return self
        values = {name: column[start:end] for name, column in self.values.items()}
        raw = {name: column[start:end] for name, column in self.raw.items()}
        times = None if self.times is None else self.times[start:end]
        return Block(self.run, self.attempt, self.steps[start:end], values, raw, self.resolution, times)

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[MetricRow]:
        """The rows one by one."""
        part = self.part(start, stop)
        names, keys = tuple(part.values), tuple(part.raw)
        raws = zip(*part.raw.values(), strict=True) if keys else repeat((), len(part))
        times = repeat(None, len(part)) if part.times is None else part.times
        numbers = zip(*part.values.values(), strict=True)
        for step, values, raw, time in zip(part.steps, numbers, raws, times, strict=True):
            yield MetricRow(
                self.run,
                Stream.TRAIN,
                self.attempt,
                step,
                dict(zip(names, values, strict=True)),
                dict(zip(keys, raw, strict=True)),
                time,
                resolution=self.resolution,
            )

    def newest_first(self) -> Iterator[MetricRow]:
        """The rows one by one, the last one first; the last ones are made once."""
        if self._tail is None:
            self._tail = tuple(self.rows(max(0, len(self) - TAIL)))
        yield from reversed(self._tail)
        for end in range(len(self) - TAIL, 0, -TAIL):
            yield from reversed(tuple(self.rows(max(0, end - TAIL), end)))

    @property
    def silent(self) -> Sequence[float | None]:
        """The share of groups without a learning signal in each row (``evidence.no_signal_ratio``)."""
        if self._silent is None:
            self._silent = _silent(self.values, len(self.steps))
        return self._silent

    def means(self, metric: str, of: Callable[[Sequence[float]], list[float]]) -> list[float]:
        """What ``of`` makes of the column after the run's rows so far; remembered, because several ask for the same.

        So a block is judged once: what is left of it after other rows is another one.
        """
        known = self._means.get(metric)
        if known is None:
            known = self._means[metric] = of(self.values[metric])
        return known


def _silent(values: Columns, count: int) -> Sequence[float | None]:
    ratio, group, batch = (values.get(f"reward_{name}") for name in ("zero_std_ratio", "group_std", "batch_std"))
    found: Sequence[float | None] = [None] * count
    if ratio is not None:
        found = ratio
    elif group is not None:
        found = [0.0] * count
    elif "advantage_max" in values and "advantage_min" in values:
        both = zip(values["advantage_max"], values["advantage_min"], strict=True)
        found = [1.0 if high == 0.0 == low else 0.0 for high, low in both]
    for spreads in (batch, group):
        if spreads is not None and min(spreads) < FLOAT_NOISE:
            pairs = zip(spreads, found, strict=True)
            found = [1.0 if spread < FLOAT_NOISE else share for spread, share in pairs]
    return found


def spreads_of_completions(values: Columns) -> Sequence[float]:
    """The standard deviations of single rewards (``evidence.spread_of_completions``) of the rows that tell."""
    batch, group = values.get("reward_batch_std"), values.get("reward_group_std")
    if batch is not None or group is None:
        return batch or ()
    ratio = values.get("reward_zero_std_ratio")
    if ratio is None:
        return group
    return [spread / (1.0 - dead) for spread, dead in zip(group, ratio, strict=True) if 1.0 - dead > 0.0]


def first_outside(column: Sequence[float], low: float, high: float) -> int:
    """The index of the first number outside these bounds, both allowed; the column's length if there is none."""
    if low <= min(column) and max(column) <= high:
        return len(column)
    return next(index for index, value in enumerate(column) if not low <= value <= high)
