"""JSON-lines logs: real ms-swift files, hostile lines, ends of runs, and restarts at any item."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import ClassVar

import pytest

from grpo_watch.engine.records import Cursor, EventKind, Item, RunEvent, Stream
from grpo_watch.frameworks.row_numbers import duration, number, numbers, place, whole
from grpo_watch.sources.base import Skip
from grpo_watch.sources.rows import jsonl
from grpo_watch.sources.rows.jsonl import JsonlSource, decode
from tests.support.bundles import unpack
from tests.support.channel import rows

RESUMED = "ms-swift-4.6.0-16-resume"


def the_source(path: Path, cursor: Cursor | None = None) -> JsonlSource:
    return JsonlSource("logging.jsonl", path, [path.parent], cursor=cursor)


def read(path: Path) -> tuple[list[Item], JsonlSource]:
    source = the_source(path)
    return [*source.poll(7.0), *source.finish()], source


def items_of(tmp_path: Path, *lines: str | bytes) -> tuple[list[Item], JsonlSource]:
    path = tmp_path / "logging.jsonl"
    path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
    return read(path)


def events(items: list[Item]) -> list[tuple[EventKind, int | None]]:
    return [(item.kind, item.step) for item in items if isinstance(item, RunEvent)]


def test_a_real_resumed_run(tmp_path: Path) -> None:
    """v1 starts at 21/60; first and last values as they stand in the file."""
    (path,) = unpack(RESUMED, tmp_path).glob("output/v1-*/logging.jsonl")
    items, source = read(path)
    got = rows(items)
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row.step for row in got] == list(range(21, 61))
    assert {row.max_steps for row in got} == {60}
    assert [row.values["kl"] for row in got] == [line["kl"] for line in written[:40]]
    assert {row.resolution for row in got} == {1e-8}
    assert got[0].seen == 7.0
    assert events(items) == [(EventKind.FINISHED, 60)]
    assert source.stats.skipped == {}


class KeyCounted(str):
    """A key that counts how often it is compared."""

    __slots__ = ()
    __hash__ = str.__hash__
    compared: ClassVar[list[str]] = []

    def __eq__(self, other: object) -> bool:
        self.compared.append(self)
        return super().__eq__(other)


def test_keys_that_are_too_long_are_left_out_without_comparing_each_with_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyCounted, "compared", [])
    monkeypatch.setattr(
        jsonl, "decode", lambda data: {KeyCounted(key): value for key, value in json.loads(data).items()}
    )
    long = {f"{n:03d}" + "k" * 1_000: 1.0 for n in range(300)}
    items, source = items_of(tmp_path, json.dumps({"reward": 0.5, **long, "loss": 0.1, "step": 1}))
    assert [row.values for row in rows(items)] == [{"reward": 0.5, "loss": 0.1}]
    assert source.stats.skipped == {Skip.BAD_VALUE: 1}
    assert len(KeyCounted.compared) < 10_000  # comparing each with each takes 45,000


def test_the_end_row_is_no_train_row(tmp_path: Path) -> None:
    items, _ = items_of(
        tmp_path,
        '{"loss": 0.1, "global_step/max_steps": "9/9"}',
        '{"train_runtime": 24.7, "train_loss": 0.07, "global_step/max_steps": "9/9"}',
        '{"model_parameter_info": "0.1M", "global_step": 9, "log_history": [{"loss": 0.1}]}',
    )
    assert len(rows(items)) == 1
    assert events(items) == [(EventKind.FINISHED, 9)]


def test_a_summary_without_an_end_row_is_a_crash(tmp_path: Path) -> None:
    """ms-swift writes it from a ``finally``."""
    items, _ = items_of(
        tmp_path,
        '{"loss": 0.1, "global_step/max_steps": "3/9"}',
        '{"model_parameter_info": "0.1M", "global_step": 3, "log_history": []}',
    )
    assert events(items) == [(EventKind.CRASH_SUMMARY, 3)]


def test_a_summary_too_long_to_hold_is_still_recognised(tmp_path: Path) -> None:
    path = tmp_path / "logging.jsonl"
    with path.open("wb") as file:
        file.write(b'{"loss": 0.1, "global_step/max_steps": "3/9"}\n{"model_parameter_info": "')
        file.seek(30 << 20)
        file.write(b'"}\n')
    items, source = read(path)
    assert events(items) == [(EventKind.CRASH_SUMMARY, 3)]
    assert source.stats.skipped == {}


def test_an_attempt_appended_after_the_end_may_crash_too(tmp_path: Path) -> None:
    """``--add_version false`` appends to the same file."""
    items, _ = items_of(
        tmp_path,
        '{"train_runtime": 1, "global_step/max_steps": "9/9"}',
        '{"loss": 0.1, "global_step/max_steps": "10/20"}',
        '{"model_parameter_info": "0.1M", "global_step": 10}',
    )
    assert events(items) == [(EventKind.FINISHED, 9), (EventKind.CRASH_SUMMARY, 10)]


@pytest.mark.parametrize(
    ("line", "step", "total", "resolution"),
    [
        ('{"reward": 1, "iteration": "7/2174"}', 7, 2174, 1e-8),  # ms-swift, Megatron
        ('{"loss": 1, "current_steps": 10, "total_steps": 100}', 10, 100, None),  # LLaMA-Factory
        ('{"loss": 1, "step": 3}', 3, None, None),
        ('{"loss": 1, "global_step": 4.0, "max_steps": 50}', 4, 50, None),
        ('{"loss": 1, "step": "5"}', 5, None, None),
        ('{"reward_std": 0.5}', None, None, None),  # pasted into an issue
    ],
)
def test_where_the_step_stands(
    tmp_path: Path, line: str, step: int | None, total: int | None, resolution: float | None
) -> None:
    items, _ = items_of(tmp_path, line)
    (row,) = rows(items)
    assert (row.step, row.max_steps, row.resolution) == (step, total, resolution)


def test_values_of_every_kind(tmp_path: Path) -> None:
    items, _ = items_of(
        tmp_path,
        '{"loss": "0.02462", "kl": null, "reward": NaN, "grad_norm": Infinity, "entropy": "nan", "ok": true, '
        '"note": "x", "deep": {"a": 1}, "list": [1], "step": 1, "elapsed_time": "1d 2h 3m 4s", "percentage": "0.1%"}',
    )
    (row,) = rows(items)
    assert row.values.keys() == {"loss", "kl", "reward", "grad_norm", "entropy", "elapsed_seconds"}
    assert (row.values["loss"], row.values["kl"], row.values["grad_norm"]) == (0.02462, None, math.inf)
    assert math.isnan(row.values["reward"] or 0)
    assert math.isnan(row.values["entropy"] or 0)
    assert row.values["elapsed_seconds"] == 86400 + 2 * 3600 + 3 * 60 + 4


def test_evaluation_rows_are_distinguished(tmp_path: Path) -> None:
    items, _ = items_of(
        tmp_path,
        '{"eval_loss": 1.0, "eval_reward": 0.5, "epoch": 1, "global_step/max_steps": "20/60"}',
        '{"loss": 1.0, "eval_note": 2, "global_step/max_steps": "21/60"}',
    )
    assert [row.stream for row in rows(items)] == [Stream.EVAL, None]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"no json", Skip.NOT_JSON),
        (b'{"loss": 1', Skip.NOT_JSON),
        (b"[1, 2]", Skip.NOT_JSON),
        (b"\xff\xfe\x00\x01" * 50, Skip.NOT_JSON),
        (b'{"a":' * 100_000, Skip.NOT_JSON),
        (b'{"x": NaN' + b"[" * 100_000, Skip.NOT_JSON),
        (b'{"prompt": "x", "step": 3}', Skip.NOT_A_ROW),
        (b'{"width": 640, "height": 480}', Skip.NO_STEP),
        (b'{"text": "' + b"x" * (9 << 20) + b'"}', Skip.TOO_LONG),
    ],
    ids=["text", "cut", "list", "binary", "deep", "deep-nan", "no-number", "no-step", "long"],
)
def test_a_bad_line_is_counted_and_reading_goes_on(tmp_path: Path, line: bytes, reason: Skip) -> None:
    items, source = items_of(tmp_path, '{"loss": 1, "step": 1}', line, '{"loss": 1, "step": 2}')
    assert [row.step for row in rows(items)] == [1, 2]
    assert source.stats.skipped == {reason: 1}
    assert source.stats.first_bad.startswith(f"{reason.value}: line 2: ")


def test_a_binary_file_gives_no_row_and_no_error(tmp_path: Path) -> None:
    path = tmp_path / "logging.jsonl"
    path.write_bytes(random.Random(1).randbytes(300_000))
    items, source = read(path)
    assert items == []
    assert source.stats.skipped.keys() == {Skip.NOT_JSON}


def test_numbers_too_large_for_a_float(tmp_path: Path) -> None:
    items, _ = items_of(tmp_path, '{"loss": 1e999, "num_tokens": ' + "9" * 400 + ', "step": 1, "kl": NaN}')
    assert rows(items)[0].values["num_tokens"] == math.inf


@pytest.mark.parametrize("seed", range(4))
def test_any_chunks_and_restarts_give_the_same_items(tmp_path: Path, seed: int) -> None:
    """A new source from the cursor goes on after exactly the items that were yielded."""
    (real,) = unpack(RESUMED, tmp_path).glob("output/v0-*/logging.jsonl")
    data, chance = real.read_bytes(), random.Random(seed)
    whole = the_source(real)
    expected = [*whole.poll(None), *whole.finish()]
    path = tmp_path / "logging.jsonl"
    path.touch()
    source, got = the_source(path), []
    while data:
        size = chance.choice([1, 40, 900, 20_000])
        with path.open("ab") as file:
            file.write(data[:size])
        data = data[size:]
        for item in source.poll(None):
            got.append(item)
            if chance.random() < 0.2:
                break
        cursor = source.cursor()
        source.close()
        source = the_source(path, Cursor(**json.loads(json.dumps(_plain(cursor)))))
    got += [*source.poll(None), *source.finish()]
    assert got == expected


def _plain(cursor: Cursor) -> dict[str, object]:
    return {
        "source": cursor.source,
        "identity": cursor.identity,
        "position": cursor.position,
        "state": dict(cursor.state),
    }


def test_helpers_at_their_edges() -> None:
    assert [number(text) for text in ("4.2e-05", "-0", "inf", "1_0", "x", "")] == [
        4.2e-05,
        0.0,
        math.inf,
        None,
        None,
        None,
    ]
    assert [whole(value) for value in (3, 3.0, "3", 3.5, True, "x", -1, math.inf, math.nan)] == [3, 3, 3] + [None] * 6
    assert [duration(text) for text in ("0s", "10d 9h 50m 13s", "0:01:02", "1 day, 0:00:01", "", "soon", 5)] == [
        0.0,
        10 * 86400 + 9 * 3600 + 50 * 60 + 13,
        62.0,
        86401.0,
        None,
        None,
        None,
    ]
    assert numbers({"step": 3, "loss": 1}) == {"loss": 1.0}
    assert place({"global_step/max_steps": "x/y", "step": 2}).step == 2
    assert decode(b'{"a": Infinity}') == {"a": math.inf}


def test_metrics_in_mappings_of_any_depth_are_named_by_their_path(tmp_path: Path) -> None:
    """As EasyR1 writes verl's keys; a mapping called reward is no reward."""
    line = '{"step": 3, "reward": {"overall": 0.5}, "critic": {"score": {"mean": 0.25}}, "actor": {"lr": 1e-6}}'
    (row,) = rows(items_of(tmp_path, line)[0])
    assert row.values == {"reward/overall": 0.5, "critic/score/mean": 0.25, "actor/lr": 1e-6}
    assert row.step == 3


def test_zeros_beside_an_evaluation_that_was_not_made_are_none(tmp_path: Path) -> None:
    """An own loop fills the columns of its evaluation on every row; one that scores 0 for all is an evaluation."""
    path = tmp_path / "metrics.jsonl"
    placeholder = {"step": 1, "reward": 0.1, "val_accuracy": None, "val_mean_reward": 0.0, "val_format_ok_rate": 0.0}
    made = {**placeholder, "step": 2, "val_accuracy": 0.0}
    path.write_text("".join(json.dumps(row) + "\n" for row in (placeholder, made)))
    assert [row.values for row in rows(JsonlSource("metrics.jsonl", path, [tmp_path]).poll(None))] == [
        {"reward": 0.1},
        {"reward": 0.1, "val_accuracy": 0.0, "val_mean_reward": 0.0, "val_format_ok_rate": 0.0},
    ]


def test_a_ratio_of_valid_answers_is_of_training(tmp_path: Path) -> None:
    """Its zero stays where the evaluation's own columns are empty; `valid_loss` is the evaluation's."""
    path = tmp_path / "metrics.jsonl"
    row = {"step": 1, "reward": 0.1, "valid_ratio": 0.0, "valid/score": 0.0, "valid_loss": 0.0, "val_loss": None}
    path.write_text(json.dumps(row) + "\n")
    (found,) = rows(JsonlSource("metrics.jsonl", path, [tmp_path]).poll(None))
    assert found.values == {"reward": 0.1, "valid_ratio": 0.0}


def test_events_of_rollouts_are_no_rows_of_training(tmp_path: Path) -> None:
    """A writer of events logs each group, and then the step; events of training without a step are rows."""
    path = tmp_path / "metrics.jsonl"
    group = {"event": "rollout_done", "metrics": {"completion_length_mean": 418.0, "completion_truncated_ratio": 0.5}}
    step = {"event": "train_step_done", "metrics": {"loss": "0.0063", "grad_norm": "0.017", "reward": 0.45}}
    path.write_text("".join(json.dumps(row) + "\n" for row in (group, group, {**step, "step": 1}, group, step)))
    assert [row.values["reward"] for row in rows(JsonlSource("metrics.jsonl", path, [tmp_path]).poll(None))] == [
        0.45,
        0.45,
    ]
