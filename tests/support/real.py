"""Canonical train rows of bundled real runs, and ways to put a fault into them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from grpo_watch.engine.records import MetricRow, Stream
from grpo_watch.pipeline.assembler import Assembler
from tests.support.feeding import RUN, recorded

Change = Callable[[MetricRow], Mapping[str, float | None]]


@lru_cache(maxsize=32)
def real_rows(name: str) -> tuple[MetricRow, ...]:
    """The train rows of a bundled run's best channel, in order."""
    assembler, recording = Assembler(RUN), recorded(name)
    made = [record for item in recording.in_turn() for record in assembler.feed(item)]
    rows = [record for record in made if isinstance(record, MetricRow)]
    return tuple(row for row in rows if row.stream is Stream.TRAIN and not row.supplement)


def injected(name: str, change: Change, *, since: int = 1, attempt: int | None = None) -> list[MetricRow]:
    """The run's rows, from a step (of an attempt) on with the values that ``change`` gives over its own."""
    return [
        row._replace(values={**row.values, **change(row)})
        if row.step >= since and attempt in (None, row.attempt)
        else row
        for row in real_rows(name)
    ]
