"""JSON documents: arrays of rows, arrays by metric, and those that hold neither."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.engine.records import RawRow
from grpo_watch.sources.base import Skip
from grpo_watch.sources.discovery.channels import ChannelContent
from grpo_watch.sources.discovery.discover import discover
from grpo_watch.sources.rows.document import DocumentSource

BY_METRIC = {"steps": [10, 20, 30], "mean_reward": [0.1, 0.2, 0.3], "kl": [0.0, 0.01, None], "note": ["a", "b", "c"]}
ROWS = [{"iter": n, "avg_reward": n / 10, "kl": 0.01} for n in (1, 2, 3)]


def read(path: Path, **known: Any) -> tuple[list[RawRow], DocumentSource]:
    source = DocumentSource(path.name, path, [path.parent], **known)
    return [item for item in [*source.poll(None), *source.finish()] if isinstance(item, RawRow)], source


@pytest.mark.parametrize("document", [BY_METRIC, {"config": {"lr": 1}, "history": BY_METRIC}])
def test_arrays_by_metric(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps(document))
    rows, _ = read(path)
    assert [(row.step, row.values) for row in rows] == [
        (10, {"mean_reward": 0.1, "kl": 0.0}),
        (20, {"mean_reward": 0.2, "kl": 0.01}),
        (30, {"mean_reward": 0.3, "kl": None}),
    ]
    assert ChannelContent.JSON_DOCUMENT in {channel.what for channel in discover(tmp_path)[0].channels}


@pytest.mark.parametrize("document", [ROWS, {"metrics": ROWS}, {"run": {"log": ROWS}}])
def test_arrays_of_rows(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(document))
    assert [(row.step, row.values["avg_reward"]) for row in read(path)[0]] == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_rows_without_a_step_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"reward": [0.5, 0.6, 0.7]}))
    assert [row.step for row in read(path)[0]] == [1, 2, 3]


def test_one_array_that_is_the_course_of_the_reward(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"task": "easy", "episodes": 4, "reward_curve": [0.5, 0.6, 0.7, 0.8]}))
    assert ChannelContent.JSON_DOCUMENT in {channel.what for channel in discover(tmp_path)[0].channels}
    assert [row.step for row in read(tmp_path / "r.json")[0]] == [1, 2, 3, 4]


def test_a_table_that_counts_epochs_alone(tmp_path: Path) -> None:
    """As the same rows are read where they are a list in JSON."""
    (tmp_path / "r.csv").write_text("epoch,avg_reward,success_rate\n1,0.5,0.8\n2,0.6,0.9\n3,0.7,0.9\n")
    assert ChannelContent.JSON_DOCUMENT in {channel.what for channel in discover(tmp_path)[0].channels}
    rows = read(tmp_path / "r.csv")[0]
    assert [(row.step, row.values["avg_reward"]) for row in rows] == [(1, 0.5), (2, 0.6), (3, 0.7)]


@pytest.mark.parametrize(
    "text", ["epoch,loss,accuracy\n1,0.5,0.8\n2,0.4,0.9\n3,0.3,0.9\n", "prompt,reward\n" + 4 * "a,1\n"]
)
def test_a_table_of_other_training_or_of_samples_is_no_log(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(text)
    assert discover(tmp_path) == []


def test_a_document_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(ROWS[:2]))
    first, source = read(path)
    path.write_text(json.dumps(ROWS))
    more, _ = read(path, cursor=source.cursor())
    assert [row.step for row in (*first, *more)] == [1, 2, 3]


@pytest.mark.parametrize(
    "document",
    [{"reward": 0.5}, [{"prompt": "a", "reward_model": {"x": 1}}], {"reward_weights": [1.0]}, "reward", [1, 2, 3], {}],
)
def test_what_is_no_log_is_no_run(document: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(document))
    assert discover(tmp_path) == []


@pytest.mark.parametrize(
    "document",
    [
        {str(10 * n): {"reward": n / 10, "loss": 0.1} for n in (2, 1, 3)},
        {f"step_{10 * n}": {"reward": n / 10, "loss": 0.1} for n in (1, 2, 3)},
        [{"step": 10 * n, "metrics": {"reward": n / 10, "loss": 0.1}} for n in (1, 2, 3)],
    ],
)
def test_rows_by_step_and_rows_with_their_metrics_inside(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(document))
    rows, _ = read(path)
    assert [row.step for row in rows] == [10, 20, 30]
    assert [value for row in rows for key, value in row.values.items() if "reward" in key] == [0.1, 0.2, 0.3]
    assert ChannelContent.JSON_DOCUMENT in {channel.what for channel in discover(tmp_path)[0].channels}


def kinds(folder: Path) -> set[ChannelContent]:
    found = {channel.what for run in discover(folder) for channel in run.channels}
    return found - {ChannelContent.RUN_CONFIG}


def test_a_list_of_episodes_with_a_loss_is_no_history_of_the_trainer(tmp_path: Path) -> None:
    episodes = [{"episode": n, "reward": n / 8, "loss": 0.5} for n in (1, 2, 3, 4)]
    (tmp_path / "log.json").write_text(json.dumps(episodes))

    assert kinds(tmp_path) == {ChannelContent.JSON_DOCUMENT}
    assert [(row.step, row.values["reward"]) for row in read(tmp_path / "log.json")[0]] == [
        (1, 0.125),
        (2, 0.25),
        (3, 0.375),
        (4, 0.5),
    ]


def test_a_list_with_steps_and_a_loss_stays_a_history_of_the_trainer(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(json.dumps([{"step": n, "reward": 0.5, "loss": 0.5} for n in (1, 2, 3)]))

    assert kinds(tmp_path) == {ChannelContent.TRAINER_STATE}


def test_rows_on_lines_under_the_name_of_a_document(tmp_path: Path) -> None:
    lines = [json.dumps({"iteration": n, "train/loss": 0.5, "reward/mean": n / 4}) for n in (1, 2, 1, 2, 3)]
    (tmp_path / "log.json").write_text("\n".join(lines))

    assert kinds(tmp_path) == {ChannelContent.JSONL}


def test_a_settings_file_on_one_line_holds_no_rows(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"learning_rate": 1e-6, "loss_type": "dapo"}\n')

    assert kinds(tmp_path) == set()


def of_run(shift: int, rows: int) -> dict[str, list[float]]:
    """A run's arrays."""
    return {"steps": [*range(1, rows + 1)], "reward": [shift + n / 10 for n in range(rows)], "kl": [0.01] * rows}


@pytest.mark.parametrize("wrapped", [False, True])
def test_runs_with_the_same_metrics_are_runs_of_their_own(tmp_path: Path, wrapped: bool) -> None:  # noqa: FBT001
    path = tmp_path / "curves.json"
    runs = {"base": of_run(0, 4), "more KL": of_run(1, 6)}
    path.write_text(json.dumps({"curves": runs} if wrapped else runs))
    assert [run.name for run in discover(tmp_path)] == ["curves.json#base", "curves.json#more KL"]
    source = DocumentSource("curves.json#more KL", path, [tmp_path], run="more KL")
    found = [item for item in source.poll(None) if isinstance(item, RawRow)]
    assert [(row.step, row.values["reward"]) for row in found] == [(n + 1, 1 + n / 10) for n in range(6)]


@pytest.mark.parametrize(
    "other",
    [
        {"eval": of_run(0, 4)},
        {"validation_history": of_run(0, 4)},
        {"rollouts": [{"reward": 0.5, "length": 10}] * 5},
        {"summary": {"reward": 0.5}},
        {"more": {"steps": [1, 2], "reward": [0.1, 0.2], "kl": [0.0, 0.0]}},
    ],
)
def test_what_lies_beside_a_run_is_no_run(tmp_path: Path, other: dict[str, Any]) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"train": of_run(0, 5), **other}))
    assert len(discover(tmp_path)) == 1
    rows, source = read(path)
    assert len(rows) == 5
    assert not source.stats.problem


def test_rows_beside_the_run_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"train": of_run(0, 5), "eval": of_run(0, 4)}))
    _, source = read(path)
    assert source.stats.skipped == {Skip.NOT_A_ROW: 1}
    assert source.stats.first_bad == "not-a-row: eval: 4 rows are left aside"


STEPS = [{"step": n, "reward": n / 10, "loss": 0.1} for n in range(1, 6)]


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_list_of_runs_with_rows_of_their_own(tmp_path: Path, wrapped: bool) -> None:  # noqa: FBT001
    path = tmp_path / "sweep.json"
    runs = [{"tag": f"lr{n}", "lr": n, "peak_reward": 0.5, "step_log": STEPS} for n in (1, 2, 3)]
    path.write_text(json.dumps({"results": runs} if wrapped else runs))
    assert [run.name for run in discover(tmp_path)] == [f"sweep.json#lr{n}" for n in (1, 2, 3)]
    source = DocumentSource("sweep.json#lr2", path, [tmp_path], run="lr2")
    assert [item.step for item in source.poll(None) if isinstance(item, RawRow)] == [1, 2, 3, 4, 5]


def test_runs_without_a_name_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps([{"history": STEPS}, {"history": STEPS}]))
    assert [run.name for run in discover(tmp_path)] == ["sweep.json#1", "sweep.json#2"]


def test_rows_with_their_completions_are_no_runs(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    completions = [{"text": "a", "reward": n / 4} for n in range(4)]
    path.write_text(json.dumps([{"step": n, "reward": 0.5, "completions": completions} for n in range(1, 6)]))
    assert [run.name for run in discover(tmp_path)] == [tmp_path.name]
    assert [row.step for row in read(path)[0]] == [1, 2, 3, 4, 5]


def test_empty_cells_of_a_table_of_several_kinds_are_no_nulls(tmp_path: Path) -> None:
    """A tracker's export: what the environment logged, and the trainer's row; a learning rate is never NaN."""
    path = tmp_path / "export.json"
    env = {"step": 0, "task/solved": 0.25, "loss": None, "learning_rate": None, "reward": None}
    train = {"step": 1, "task/solved": None, "loss": 0.02, "learning_rate": 2e-6, "reward": None}
    path.write_text(json.dumps([env, train, {**train, "step": 2, "task/solved": 0.5, "reward": 0.7}]))
    first, second, third = (row.values for row in read(path)[0])
    assert first == {"task/solved": 0.25}
    assert second == {"task/solved": None, "loss": 0.02, "learning_rate": 2e-6, "reward": None}
    assert third["reward"] == 0.7


def test_arrays_of_what_only_training_with_rewards_has(tmp_path: Path) -> None:
    """A run whose writer kept no reward is read all the same; arrays of a classifier's training are not."""
    path = tmp_path / "metrics.json"
    path.write_text(
        json.dumps({"step": [1, 2, 3], "loss": [0.0, 0.1, 0.1], "clip_fraction": [0.0] * 3, "avg_entropy": [2.0] * 3})
    )
    assert ChannelContent.JSON_DOCUMENT in {channel.what for channel in discover(tmp_path)[0].channels}
    path.write_text(
        json.dumps({"step": [1, 2, 3], "loss": [0.9, 0.5, 0.4], "accuracy": [0.5] * 3, "cross_entropy": [2.0] * 3})
    )
    assert not discover(tmp_path)


def test_a_file_system_that_gives_a_piece_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read may give fewer bytes than there are, as network and FUSE file systems do."""
    path = tmp_path / "history.json"
    path.write_text(json.dumps(ROWS))
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size, at: pread(descriptor, min(size, 16), at))

    assert [row.step for row in read(path)[0]] == [1, 2, 3]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_rights_is_a_problem(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "history.json").write_text(json.dumps(ROWS))
    folder.chmod(0)
    try:
        _, source = read(folder / "history.json")
    finally:
        folder.chmod(0o700)

    assert "Permission denied" in source.stats.problem
