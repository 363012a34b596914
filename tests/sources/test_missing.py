"""Rows that may be lost where a log was replaced are counted and named once; a gap inside a file is the job's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_watch.engine.records import RawRow
from grpo_watch.sources.base import Skip, Source
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.rows.jsonl import JsonlSource


def jsonl(steps: list[int]) -> str:
    return "".join(json.dumps({"loss": 0.1, "reward": 0.5, "global_step/max_steps": f"{n}/900"}) + "\n" for n in steps)


def console(steps: list[int]) -> str:
    """ms-swift's rows, which say their step."""
    rows = [{"loss": 0.1, "reward": 0.5, "global_step/max_steps": f"{step}/900"} for step in steps]
    return "".join(f"{row}\n" for row in rows)


def steps_of(source: Source) -> list[int | None]:
    return [item.step for item in source.poll(None) if isinstance(item, RawRow)]


@pytest.mark.parametrize("kind", [JsonlSource, ConsoleSource])
@pytest.mark.parametrize(
    "case",
    [
        ([1, 2, 3], [4, 5], 0),
        ([1, 2, 3], [7, 8], 3),
        ([10, 20, 30], [40, 50], 0),
        ([10, 20, 30], [70, 80], 3),
        ([1, 2, 3], [1, 2], 0),
        ([10, 20, 30], [25, 35], 0),
        ([1, 2, 30, 31], [32], 0),
        ([3], [9], 0),
    ],
    ids=["continues", "gap", "each ten", "gap of tens", "another run", "from a checkpoint", "gap inside", "one row"],
)
def test_rows_that_may_be_lost_are_counted(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    kind: Callable[..., Source],
    case: tuple[list[int], list[int], int],
) -> None:
    """The log is replaced twice between two looks: what the one between them held nobody has any more."""
    text = jsonl if kind is JsonlSource else console
    (before, after, lost), log = case, tmp_path / "log"
    log.write_text(text(before))
    source = kind("log", log, [tmp_path])
    assert steps_of(source) == before
    log.unlink()
    (tmp_path / "next").write_text(text(after))
    (tmp_path / "next").rename(log)
    assert steps_of(source) == after
    assert source.stats.skipped == ({Skip.LOST: lost} if lost else {})
    warned = [record for record in caplog.records if record.message == "rows may be lost"]
    assert len(warned) == (lost > 0)
    if lost:
        assert f"{lost} rows may be lost" in source.stats.first_bad
    source.close()


@pytest.mark.parametrize("kind", [JsonlSource, ConsoleSource])
def test_rows_that_an_earlier_part_held_are_not_lost(tmp_path: Path, kind: Callable[..., Source]) -> None:
    """Parts that are numbered in the order in which they were written are read in another one."""
    text, log = (jsonl if kind is JsonlSource else console), tmp_path / "log"
    source = kind("log", log, [tmp_path])
    for number, steps in enumerate(([4, 5, 6], [1, 2, 3], [7, 8, 9], [13, 14])):
        (tmp_path / "next").write_text(text(list(steps)))
        (tmp_path / "next").rename(log)
        assert steps_of(source) == steps
        assert source.stats.skipped.get(Skip.LOST, 0) == (3 if number == 3 else 0)
    source.close()
