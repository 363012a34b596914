"""verl's file logger: wrapped rows, null for what is not finite, a file restarted at each resume."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from grpo_watch.engine.records import RawRow, Stream
from grpo_watch.sources.discovery.channels import ChannelContent
from grpo_watch.sources.discovery.discover import discover
from grpo_watch.sources.rows.jsonl import JsonlSource
from tests.support.channel import rows

VALIDATION = '{"step":0,"data":{"val-core/x/acc/mean@1":0.5}}\n'
ROW = '{"step":%d,"data":{"actor/pg_loss":0.25,"training/global_step":%d,"critic/score/mean":1}}\n'


def read(tmp_path: Path, text: str) -> list[RawRow]:
    (tmp_path / "run.jsonl").write_text(text)
    return rows(list(JsonlSource("run.jsonl", tmp_path / "run.jsonl", [tmp_path]).finish()))


def test_rows_are_unwrapped(tmp_path: Path) -> None:
    got = read(tmp_path, VALIDATION + ROW % (1, 1))
    assert [(row.step, dict(row.values)) for row in got] == [
        (0, {"val-core/x/acc/mean@1": 0.5}),
        (1, {"actor/pg_loss": 0.25, "training/global_step": 1.0, "critic/score/mean": 1.0}),
    ]


def test_null_is_not_finite_and_never_absent(tmp_path: Path) -> None:
    (row,) = read(tmp_path, '{"step":3,"data":{"actor/grad_norm":null,"actor/pg_loss":0.1}}\n')
    assert math.isnan(row.values["actor/grad_norm"] or 0.0)


def test_a_validation_that_shares_the_row_of_its_step_takes_nothing_from_it(tmp_path: Path) -> None:
    """``trainer.test_freq=1``: every row has both, and each is one of training."""
    shared = ROW.replace("}}", ',"critic/advantages/max":1.5,"val-core/x/acc/mean@1":0.5}}')
    got = read(tmp_path, VALIDATION + shared % (1, 1))
    assert [row.stream for row in got] == [Stream.EVAL, None]


@pytest.mark.parametrize("line", ['{"step":3,"data":{}}', '{"step":3,"data":[1]}', '{"step":3,"data":{"a":"text"}}'])
def test_rows_without_numbers_are_counted(tmp_path: Path, line: str) -> None:
    (tmp_path / "run.jsonl").write_text(line + "\n")
    source = JsonlSource("run.jsonl", tmp_path / "run.jsonl", [tmp_path])
    assert rows(list(source.finish())) == []
    assert source.stats.first_bad.startswith("not-a-row: line 1")


def test_a_resume_restarts_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(ROW % (step, step) for step in (1, 2, 3)))
    source = JsonlSource("run.jsonl", path, [tmp_path])
    assert [row.step for row in rows(list(source.poll(None)))] == [1, 2, 3]
    path.write_text('{"step":2,"data":{"val-core/x/acc/mean@1":0.5}}\n' + ROW % (3, 3))
    assert [row.step for row in rows(list(source.poll(None)))] == [2, 3]


def test_it_is_found_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "econ" / "grpo").mkdir(parents=True)
    (tmp_path / "econ" / "grpo" / "v1.jsonl").write_text(VALIDATION + ROW % (1, 1))
    (run,) = discover(tmp_path)
    assert [channel.what for channel in run.channels if channel.what is not ChannelContent.RUN_CONFIG] == [
        ChannelContent.JSONL
    ]


def test_a_row_is_whole_though_another_framework_splits_rows_under_this_name(tmp_path: Path) -> None:
    """Both measure ``perf/mfu``; verl's is ``perf/mfu/actor``."""
    row = '{"step":%d,"data":{"actor/pg_loss":0.25,"perf/mfu/actor":0.3,"critic/score/mean":1}}\n'
    (tmp_path / "metrics.jsonl").write_text("".join(row % step for step in (1, 2, 3)))
    (run,) = discover(tmp_path)
    assert ChannelContent.JSONL in {channel.what for channel in run.channels}
