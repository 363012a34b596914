"""trainer_state.json: each step once, full precision, half-written files later."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.engine.records import Item, RawRow, RunConfig, Stream
from grpo_watch.sources.base import Skip
from grpo_watch.sources.files import reading
from grpo_watch.sources.rows.trainer_state import TrainerStateSource
from tests.support.bundles import unpack


def the_source(path: Path, **changes: Any) -> TrainerStateSource:
    return TrainerStateSource("checkpoint-*/trainer_state.json", path, [path], **changes)


def write(folder: Path, step: int, first: int = 1, **more: Any) -> Path:
    """The state a checkpoint of this step holds: one row per step from ``first`` on."""
    path = folder / f"checkpoint-{step}" / "trainer_state.json"
    path.parent.mkdir(exist_ok=True, parents=True)
    history = [{"step": n, "loss": n / 3, "kl": 0.0} for n in range(first, step + 1)]
    path.write_text(
        json.dumps({"max_steps": 9, "save_steps": 2, "train_batch_size": 4, "log_history": history, **more})
    )
    return path


def steps(items: list[Item]) -> list[int | None]:
    return [item.step for item in items if isinstance(item, RawRow)]


def test_a_real_run(tmp_path: Path) -> None:
    """Two checkpoints of one run: the rows of both, each once, as they stand in the last file."""
    output = unpack("trl-1.16.0-04-healthy-lora", tmp_path) / "output"
    source = the_source(output)
    items = list(source.poll(5.0))
    got = [item for item in items if isinstance(item, RawRow)]
    history = json.loads((output / "checkpoint-100/trainer_state.json").read_text())["log_history"]
    assert [row.step for row in got] == [entry["step"] for entry in history]
    assert [row.values["kl"] for row in got] == [entry["kl"] for entry in history]
    assert {(row.max_steps, row.seen, row.resolution) for row in got} == {(100, 5.0, None)}
    (config,) = (item for item in items if isinstance(item, RunConfig))
    assert config.settings["per_device_train_batch_size"].value == 16
    assert config.settings["save_steps"].origin == "checkpoint-80/trainer_state.json"
    assert list(source.poll(6.0)) == []


def test_rows_are_given_as_checkpoints_appear(tmp_path: Path) -> None:
    """In the order of steps, not of names."""
    source = the_source(tmp_path)
    write(tmp_path, 2)
    assert steps(list(source.poll(None))) == [1, 2]
    write(tmp_path, 10)
    write(tmp_path, 4)
    assert steps(list(source.poll(None))) == [3, 4, 5, 6, 7, 8, 9, 10]


def test_a_half_written_file_is_read_when_it_is_whole(tmp_path: Path) -> None:
    """transformers rewrites the file in place."""
    path = write(tmp_path, 3)
    whole = path.read_text()
    path.write_text(whole[:50])
    source = the_source(tmp_path)
    assert list(source.poll(None)) == []
    path.write_text(whole)
    assert steps(list(source.poll(None))) == [1, 2, 3]
    assert source.stats.skipped == {}


def test_a_restart_goes_on_after_the_rows_given(tmp_path: Path) -> None:
    write(tmp_path, 4)
    source = the_source(tmp_path)
    items = source.poll(None)
    first = [next(items) for _ in range(3)]  # the settings and two rows
    rest = list(the_source(tmp_path, cursor=source.cursor()).poll(None))
    assert steps(first) == [1, 2]
    assert steps(rest) == [3, 4]
    assert len(rest) == 2


def test_nan_infinity_null_and_evaluation_rows(tmp_path: Path) -> None:
    """transformers 4.57 writes NaN and Infinity as bare words."""
    history = (
        '[{"step": 1, "loss": NaN, "reward": Infinity, "kl": null}, {"step": 1, "eval_loss": 0.5, "eval_kl": 0.1}]'
    )
    path = tmp_path / "trainer_state.json"
    path.write_text('{"log_history": ' + history + "}")
    train, evaluation = (item for item in the_source(tmp_path).poll(None) if isinstance(item, RawRow))
    assert math.isnan(train.values["loss"] or 0)
    assert (train.values["reward"], train.values["kl"], train.stream) == (math.inf, None, None)
    assert (evaluation.values, evaluation.stream) == ({"eval_loss": 0.5, "eval_kl": 0.1}, Stream.EVAL)


def test_a_single_file_and_a_bare_list_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "step_logs.json"
    path.write_text('[{"step": 1, "loss": 1}, {"step": 2, "loss": 2}, {"train_runtime": 3, "step": 2}]')
    source = TrainerStateSource("step_logs.json", path, [tmp_path])
    assert steps(list(source.poll(None))) == [1, 2]


def test_files_that_hold_something_else(tmp_path: Path) -> None:
    """Counted or passed over, never an error."""
    for step, text in enumerate(
        ("[]", "3", '{"log_history": 5}', "[" * 100_000, "\x00\xff", '{"log_history": [1, {"a": 1}]}')
    ):
        path = tmp_path / f"checkpoint-{step}" / "trainer_state.json"
        path.parent.mkdir()
        path.write_text(text)
    source = the_source(tmp_path)
    assert [*source.poll(None), *source.finish()] == []
    assert source.stats.skipped == {Skip.NOT_A_ROW: 2, Skip.NO_STEP: 1}
    assert (
        source.stats.first_bad
        == "not-a-row: checkpoint-1/trainer_state.json: no list log_history in it (no JSON object)"
    )


def test_a_link_out_of_the_folder_is_refused_and_a_deleted_folder_is_normal(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    run.mkdir()
    path = write(other, 3)
    (run / "checkpoint-3").symlink_to(path.parent)
    source = the_source(run)
    assert list(source.poll(None)) == []
    assert "allow_roots" in source.stats.problem
    gone = the_source(tmp_path / "missing")
    assert list(gone.poll(None)) == []
    assert gone.stats.problem == ""


def history(path: Path, count: int, width: int) -> None:
    """A state with so many rows, each of at least ``width`` bytes."""
    rows = ",\n".join(f'{{"loss": 0.5, "note": "{"x" * width}", "step": {step}}}' for step in range(1, count + 1))
    path.write_text(f'{{"epoch": 1.0, "log_history": [{rows}], "max_steps": {count}, "save_steps": 2}}')


def test_a_history_of_any_size_is_read_in_turns(tmp_path: Path) -> None:
    """80 MiB: a turn takes its budget, each row comes once, and the settings behind them at last."""
    history(tmp_path / "trainer_state.json", 5_000, 16 << 10)
    source, items, turns = the_source(tmp_path), list[Item](), 0
    while not turns or source.unread:
        items += source.poll(1.0)
        turns += 1
    assert steps(items) == list(range(1, 5_001))
    assert [item.settings["max_steps"].value for item in items if isinstance(item, RunConfig)] == [5_000]
    assert turns > 10
    assert list(source.poll(2.0)) == []
    assert source.stats.skipped == {}


def test_few_entries_that_are_large_are_read_in_turns(tmp_path: Path) -> None:
    """42 MB in 60 entries: far fewer than may be held, and still no turn reads or gives more than its budget."""
    history(tmp_path / "trainer_state.json", 60, 700 << 10)
    source, turns = the_source(tmp_path), list[list[Item]]()
    while not turns or source.unread:
        turns.append(list(source.poll(1.0)))
    assert steps([item for turn in turns for item in turn]) == list(range(1, 61))
    assert len(turns) > 10
    assert max(len(steps(turn)) for turn in turns) <= reading.BUDGET // (700 << 10) + 2


def test_a_large_history_that_is_cut_off_gives_what_it_holds(tmp_path: Path) -> None:
    """It is read once, not at every turn, until it is written again."""
    path = tmp_path / "trainer_state.json"
    history(path, 5_000, 0)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    source = the_source(tmp_path)
    first = steps(list(source.poll(None)))
    assert first == list(range(1, len(first) + 1))
    assert 2_400 < len(first) < 2_600
    read = source.stats.bytes
    assert list(source.poll(None)) == []
    assert source.stats.bytes == read
    path.write_bytes(whole)
    assert steps(list(source.poll(None))) == list(range(len(first) + 1, 5_001))


def test_a_turn_s_rest_is_read_when_the_input_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history(tmp_path / "trainer_state.json", 4_000, 0)
    monkeypatch.setattr(reading, "BUDGET", 1)
    source = the_source(tmp_path)
    some = steps(list(source.poll(1.0)))
    assert source.unread
    assert [*some, *steps(list(source.finish()))] == list(range(1, 4_001))
