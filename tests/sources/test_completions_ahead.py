"""Dumps that the worker reads give what they give in place."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpo_watch.engine.records import CompletionSummary
from grpo_watch.sources.base import SourceStats
from grpo_watch.sources.completions.parquet import CompletionsParquetSource

STEPS = range(1, 9)
Read = tuple[list[CompletionSummary], SourceStats]


def columns(step: int) -> dict[str, list[Any]]:
    """Two prompts, four completions each, of which one repeats another."""
    rng = Random(step)
    texts = ["".join(rng.choices("abcdefgh ", k=900)) for _ in range(8)]
    texts[3] = texts[1]
    return {
        "step": [step] * 8,
        "prompt": ["one"] * 4 + ["two"] * 4,
        "completion": texts,
        "score": [rng.random() for _ in texts],
    }


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Eight steps: the fourth is broken, the sixth repeats the one before it."""
    path = tmp_path / "completions"
    tables = [columns(5 if step == 6 else step) for step in STEPS]
    path.mkdir()
    for step, table in zip(STEPS, tables, strict=True):
        pq.write_table(pa.table(table), path / f"completions_{step:05d}.parquet")
    (path / "completions_00004.parquet").write_bytes(b"PAR1")
    return path


def read(dump: Path, size: Callable[[int], int | None], submit: Callable[..., Future[Any]] | None) -> Read:
    """All summaries and what was passed over; the group size is asked after so many summaries."""
    taken: list[CompletionSummary] = []
    source = CompletionsParquetSource("dump", dump, [dump.parent], lambda: size(len(taken)), submit=submit)
    for item in chain(source.poll(None), source.finish()):
        assert isinstance(item, CompletionSummary)
        taken.append(item)
    source.close()
    return taken, source.stats


def at_once(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Work that is done as soon as it is submitted, long before its result is taken."""
    future = Future[Any]()
    future.set_result(function(*arguments))
    return future


def four(_: int) -> int:
    return 4


def test_the_same_summaries_in_order_and_the_same_reported_of_what_is_broken(dump: Path) -> None:
    given, said = read(dump, four, None)
    assert [item.step for item in given] == [1, 2, 3, 5, 7, 8]
    assert [group.pattern for group in given[0].groups] == [(0, 1, 2, 1), (0, 1, 2, 3)]
    assert read(dump, four, at_once) == (given, said)


def test_a_group_size_that_becomes_known_counts_from_the_same_batch_on(dump: Path) -> None:
    """By the prompts a group has 4; after two batches the configuration says 2."""

    def late(taken: int) -> int | None:
        return 2 if taken >= 2 else None

    given, said = read(dump, late, None)
    assert [len(item.groups) for item in given] == [2, 2, 4, 4, 4, 4]
    assert read(dump, late, at_once) == (given, said)
