"""MLflow's database, as a real job fills it, beside a writer that is still at it."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grpo_watch.engine.records import EventKind, RunConfig, RunEvent, Stream
from grpo_watch.errors import SourceError
from grpo_watch.sources.base import Skip
from grpo_watch.sources.discovery.discover import ChannelContent, discover
from grpo_watch.sources.files.reading import BUDGET, RECORDS
from grpo_watch.sources.trackers import database, mlflow
from grpo_watch.sources.trackers.mlflow import MlflowFilesSource, MlflowSource
from tests.support.channel import Opens, restarted, rows, whole
from tests.support.tracker_files import Mlflow, MlflowFiles

CONFIG = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 1, "num_generations": 2, "beta": 0.04}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mlflow.db"


@pytest.fixture
def job(path: Path) -> Iterator[Mlflow]:
    with closing(Mlflow(path)) as made:
        made.start("a" * 32, lora=None, **{**CONFIG, "hub_token": "hf_aVeryLongName"})
        yield made


def opens(path: Path) -> Opens:
    return lambda cursor: MlflowSource("mlflow", path, [path.parent], lambda: 2, cursor=cursor, run="a" * 32)


def logs_steps(job: Mlflow) -> None:
    job.start("b" * 32, "other")
    for step in (1, 2, 3, 4):
        kl = {2: math.nan, 3: math.inf, 4: -math.inf}.get(step, 0.0)
        job.log("a" * 32, step, {"loss": 0.25 * step, "kl": kl, "reward": float(step)})
        job.log("b" * 32, step, {"loss": 9.0})
    job.log("a" * 32, 4, {"eval_reward": 0.5, "epoch": 1.0})


def test_rows_of_one_run(path: Path, job: Mlflow) -> None:
    """A KL of 0 is one; NaN has a column of its own, an infinity is the largest number."""
    logs_steps(job)
    found = rows(whole(opens(path)))
    assert [(row.step, row.stream) for row in found] == [(1, None), (2, None), (3, None), (4, None), (4, Stream.EVAL)]
    assert [str(row.values["kl"]) for row in found[:4]] == ["0.0", "nan", "inf", "-inf"]
    assert [row.values["loss"] for row in found[:4]] == [0.25, 0.5, 0.75, 1.0]
    assert found[4].values == {"eval_reward": 0.5, "epoch": 1.0}
    assert found[0].time == 1_795_695_076.0


def test_settings_without_secrets(path: Path, job: Mlflow) -> None:
    logs_steps(job)
    items = whole(opens(path))
    (config,) = [item for item in items if isinstance(item, RunConfig)]
    assert {name: config.settings[name].value for name in CONFIG} == CONFIG
    assert "hf_aVeryLongName" not in repr(items)


def test_settings_that_verl_joins_by_slashes(path: Path, job: Mlflow) -> None:
    job.start(
        "c" * 32,
        **{
            "actor_rollout_ref/rollout/n": 5,
            "actor_rollout_ref/actor/use_kl_loss": True,
            "actor_rollout_ref/actor/kl_loss_coef": 0.001,
            "algorithm/adv_estimator": "grpo",
            "data/train_batch_size": 16,
            "trainer/total_epochs": 2,
        },
    )
    source = MlflowSource("mlflow", path, [path.parent], lambda: None, run="c" * 32)
    (config,) = [item for item in source.poll(None) if isinstance(item, RunConfig)]
    assert config.framework == "verl"
    settings = {name: setting.value for name, setting in config.settings.items()}
    assert settings == {"num_generations": 5, "beta": 0.001, "prompts_per_step": 16, "num_train_epochs": 2}


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        ("FINISHED", EventKind.FINISHED, ""),
        ("FAILED", EventKind.CRASH_SUMMARY, "MLflow stored the status FAILED"),
        ("KILLED", EventKind.KILLED, "MLflow stored the status KILLED"),
    ],
)
def test_the_end(path: Path, job: Mlflow, status: str, kind: EventKind, text: str) -> None:
    logs_steps(job)
    job.end("a" * 32, status)
    assert whole(opens(path))[-1] == RunEvent("mlflow", kind, 4, text)


def test_a_run_that_goes_on_has_no_end(path: Path, job: Mlflow) -> None:
    logs_steps(job)
    assert not [item for item in whole(opens(path)) if isinstance(item, RunEvent)]


def test_a_restart_after_any_item_changes_nothing(path: Path, job: Mlflow) -> None:
    """Compared as text: a NaN is among the values."""
    logs_steps(job)
    job.end("a" * 32)
    assert repr(restarted(opens(path))) == repr(whole(opens(path)))


def test_a_writer_is_followed_without_being_held_up(path: Path, job: Mlflow) -> None:
    source = opens(path)(None)
    for step in range(1, 6):
        job.log("a" * 32, step, {"loss": 1.0 * step, "kl": 0.5})
        given = [row.step for row in rows([*source.poll(1.0)])]
        assert given == ([step - 1] if step > 1 else [])
    job.end("a" * 32)
    *_, last, end = source.poll(1.0)
    assert (last, end) == (rows([last])[0], RunEvent("mlflow", EventKind.FINISHED, 5, seen=1.0))
    assert list(source.poll(1.0)) == []
    assert source.stats.problem == ""


@pytest.mark.slow
def test_a_transaction_under_way_is_waited_for(path: Path, job: Mlflow) -> None:
    """The writer holds its lock: what was committed before is read at the next look, and nothing is lost."""
    logs_steps(job)
    source = opens(path)(None)
    job.database.execute("BEGIN EXCLUSIVE")
    assert rows([*source.poll(1.0)]) == []
    assert "database is locked" in source.stats.problem
    job.database.rollback()
    assert [row.step for row in rows([*source.poll(1.0)])] == [1, 2, 3]
    assert source.stats.problem == ""


def test_runs_are_named_by_experiment(path: Path, job: Mlflow, tmp_path: Path) -> None:
    logs_steps(job)
    job.start("d" * 32, "one")
    job.log("d" * 32, 1, {"loss": 1.0})
    job.start("e" * 32, "never logged")
    found = discover(tmp_path)
    assert [(run.name, [channel.what for channel in run.channels]) for run in found] == [
        ("grpo/one-aaaaaaaa", [ChannelContent.MLFLOW]),
        ("grpo/one-dddddddd", [ChannelContent.MLFLOW]),
        ("grpo/other", [ChannelContent.MLFLOW]),
    ]


def test_the_only_run_of_a_database_beside_a_log_is_the_run_of_the_log(path: Path, job: Mlflow, tmp_path: Path) -> None:
    job.log("a" * 32, 1, {"loss": 1.0})
    (tmp_path / "metrics.jsonl").write_text('{"loss": 1.0, "reward": 0.5, "step": 1}\n', encoding="utf-8")
    (run,) = discover(tmp_path)
    assert {channel.what for channel in run.channels} >= {ChannelContent.JSONL, ChannelContent.MLFLOW}


def test_another_program_s_database_is_looked_at_without_a_lock(tmp_path: Path) -> None:
    """Its writer holds it: a look that asked for a lock would wait, and find nothing."""
    with closing(Mlflow(tmp_path / "held.db")) as job:
        job.start("a" * 32)
        job.database.execute("BEGIN EXCLUSIVE")
        assert MlflowSource.holds(tmp_path / "held.db", [tmp_path])


def test_another_database_is_none_of_mlflow_s(tmp_path: Path) -> None:
    (tmp_path / "cache.db").write_bytes(b"SQLite format 3\0" + bytes(200))
    assert discover(tmp_path) == []


NUMBERED = "INSERT INTO metrics (rowid, key, value, timestamp, run_uuid, step) VALUES (?, 'loss', ?, 0, ?, ?)"


@pytest.mark.parametrize(
    ("numbers", "given"), [((2**63 - 1,), [0.5]), ((1e308,), [0.5]), (("7",), [0.5]), ((7, 7), [0.5, 0.25])]
)
def test_rows_without_rising_numbers_end_the_reading(
    path: Path, job: Mlflow, numbers: tuple[object, ...], given: list[float]
) -> None:
    """A column may be called ``rowid``; and behind the largest number there is none."""
    if numbers != (2**63 - 1,):
        job.database.execute("ALTER TABLE metrics ADD COLUMN rowid")
    stored = enumerate((1, 2, *numbers))
    job.database.executemany(NUMBERED, [(number, 0.5 / (k + 1), "a" * 32, min(k, 2)) for k, number in stored])
    job.database.commit()
    source = opens(path)(None)
    assert [row.values["loss"] for row in rows([*source.poll(1.0)])] == given
    assert source.stats.problem == f"{path}: rows without rising numbers; not read further"


COLUMNS = "value FLOAT, timestamp BIGINT, run_uuid VARCHAR(32), step BIGINT, is_nan BOOLEAN"
MADE = "hex(zeroblob(100000))"
ONE_ROW = "INSERT INTO metrics (value, timestamp, run_uuid, step, is_nan) SELECT 1, 0, run_uuid, 1, 0 FROM runs"


@pytest.mark.parametrize(
    "tables",
    [
        f"CREATE TABLE metrics (key AS ({MADE}), {COLUMNS}); {ONE_ROW}",
        f"CREATE TABLE metrics (key AS ({MADE}) STORED, {COLUMNS}); {ONE_ROW}",
        (
            f"CREATE VIEW metrics (key, value, timestamp, run_uuid, step, is_nan, rowid) AS"
            f" VALUES ({MADE}, 1.0, 0, '{'a' * 32}', 1, 0, 1)"
        ),
        f"CREATE VIRTUAL TABLE metrics USING fts5(key, value, timestamp, run_uuid, step, is_nan); {ONE_ROW}",
    ],
    ids=["generated", "stored", "view", "virtual"],
)
def test_what_is_computed_is_not_read(path: Path, job: Mlflow, tables: str, tmp_path: Path) -> None:
    """A few bytes of such a database become gigabytes in memory."""
    source = opens(path)(None)
    job.database.executescript(f"DROP TABLE metrics; {tables}")
    assert not MlflowSource.holds(path, [tmp_path])
    assert rows([*source.poll(1.0)]) == []
    assert source.stats.problem == f"{path}: no plain table metrics"


def test_a_query_has_bounds(path: Path, job: Mlflow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of bytes (some rows of a mebibyte each are what it gives) and of work."""
    job.database.execute("CREATE TABLE texts (text)")
    job.database.executemany("INSERT INTO texts VALUES (zeroblob(?))", [(BUDGET // 4,)] * 8)
    job.database.commit()
    own = frozenset({"texts"})
    assert len(database.query(path, [path.parent], own, "SELECT text FROM texts")) == 4
    endless = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT max(n) FROM n"
    monkeypatch.setattr(database, "STEPS", 100_000)
    with pytest.raises(SourceError, match="interrupted"):
        database.query(path, [path.parent], own, endless)


@pytest.mark.skipif(not hasattr(sqlite3.Connection, "setlimit"), reason="Python 3.10 sets no limits")
def test_a_value_without_end_is_not_made(path: Path, job: Mlflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LONGEST_TEXT", 1_000)
    with pytest.raises(SourceError, match="too big"):
        database.query(path, [path.parent], MlflowSource.OWN_TABLES, "SELECT zeroblob(2001) FROM runs")


def test_values_that_are_no_numbers_hide_no_others(path: Path, job: Mlflow) -> None:
    """Long texts are cut, or left where they are."""
    job.log("a" * 32, 1, {"loss": 0.5})
    job.database.execute(
        "INSERT INTO metrics SELECT CAST(x'FF6B6579' AS TEXT), 1.5, timestamp, run_uuid, step, 0 FROM metrics"
    )
    job.database.execute(
        "INSERT INTO metrics SELECT 'text', zeroblob(9), timestamp, run_uuid, step, 0 FROM metrics WHERE key = 'loss'"
    )
    job.log("a" * 32, 1, {"long" * 1_000: 2.5})
    (row,) = rows(whole(opens(path)))
    assert row.values == {"loss": 0.5, "\ufffdkey": 1.5, ("long" * 1_000)[:250]: 2.5}


def test_a_setting_with_thousands_of_digits_stops_nothing(path: Path, job: Mlflow) -> None:
    job.start("c" * 32, num_generations=8, max_steps="9" * 5_000)
    job.log("c" * 32, 1, {"loss": 0.5})
    source = MlflowSource("mlflow", path, [path.parent], lambda: None, run="c" * 32)
    items = [*source.poll(None), *source.finish()]
    (config,) = [item for item in items if isinstance(item, RunConfig)]
    assert {name: setting.value for name, setting in config.settings.items()} == {"num_generations": 8}
    assert len(rows(items)) == 1


def test_a_turn_reads_so_many_numbers_and_the_end_comes_last(path: Path, job: Mlflow) -> None:
    keys = [f"metric_{key}" for key in range(100)]
    for step in range(1, 201):
        job.log("a" * 32, step, dict.fromkeys(keys, 1.0 * step))
    job.end("a" * 32)
    source = opens(path)(None)
    turns = []
    while not turns or source.unread:
        turns.append(list(source.poll(1.0)))
    assert [len(rows(items)) for items in turns] == [RECORDS // 100 - 1, RECORDS // 100, 200 - 2 * RECORDS // 100 + 1]
    assert [item.kind for items in turns for item in items if isinstance(item, RunEvent)] == [EventKind.FINISHED]
    assert isinstance(turns[-1][-1], RunEvent)
    assert len(rows(whole(opens(path)))) == 200


def files(folder: Path) -> Opens:
    return lambda cursor: MlflowFilesSource("mlflow", folder / "meta.yaml", [folder], lambda: 2, cursor=cursor)


def logs_files(folder: Path) -> MlflowFiles:
    job = MlflowFiles(folder, **{**CONFIG, "hub_token": "hf_aVeryLongName"})
    for step in (1, 2, 3):
        kl = {2: math.nan, 3: math.inf}.get(step, 0.0)
        job.log(step, {"loss": 0.25 * step, "kl": kl, "completions/mean_length": 100.0 + step})
    return job


def test_a_run_of_the_file_store(tmp_path: Path) -> None:
    """Keys with a slash are folders; the settings lie beside, and the run's own file has its end."""
    logs_files(tmp_path).end(4)
    items = whole(files(tmp_path))
    (config,) = [item for item in items if isinstance(item, RunConfig)]
    assert {name: config.settings[name].value for name in CONFIG} == CONFIG
    assert "hf_aVeryLongName" not in repr(items)
    found = rows(items)
    assert [(row.step, str(row.values["kl"])) for row in found] == [(1, "0.0"), (2, "nan"), (3, "inf")]
    assert [row.values["completions/mean_length"] for row in found] == [101.0, 102.0, 103.0]
    assert found[0].time == 1_795_695_076.0
    assert items[-1] == RunEvent("mlflow", EventKind.CRASH_SUMMARY, 3, "MLflow stored the status FAILED")
    assert repr(restarted(files(tmp_path))) == repr(items)


def test_files_that_grow_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is not whole is waited for, one that is none is counted; a turn takes the same part of each file."""
    job = MlflowFiles(tmp_path)
    source = files(tmp_path)(None)
    for step in range(1, 4):
        job.log(step, {"loss": 1.0 * step, "kl": 0.5})
        assert [row.step for row in rows([*source.poll(1.0)])] == ([step - 1] if step > 1 else [])
    with (tmp_path / "metrics/loss").open("a") as file:
        file.write("no metric\n1795695099000 4.0")
    assert list(source.poll(1.0)) == []
    assert source.stats.skipped == {Skip.NOT_A_ROW: 1}
    with (tmp_path / "metrics/loss").open("a") as file:
        file.write(" 4\n")
    assert [(row.step, row.values) for row in rows([*source.poll(1.0)])] == [(3, {"loss": 3.0, "kl": 0.5})]
    monkeypatch.setattr(mlflow, "BUDGET", 100)
    slow = files(tmp_path)(None)
    turns = [[row.step for row in rows([*slow.poll(1.0)])] for _ in range(4)]
    assert turns == [[1], [2, 3], [], []]
    assert not slow.unread


@pytest.mark.parametrize("seen", [None, 1.0])
def test_files_whose_lines_differ_in_length_stay_at_the_same_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: float | None
) -> None:
    job = MlflowFiles(tmp_path)
    for step in range(1, 41):
        job.log(step, {"loss": 0.5, "kl": 0.12345678901234567, "reward": 1.0})
    with (tmp_path / "metrics/note").open("w") as file:
        file.write("x" * 1_000 + "\n")
    monkeypatch.setattr(mlflow, "BUDGET", 400)
    source = files(tmp_path)(None)
    items = [item for _ in range(40) for item in source.poll(seen)]
    found = rows([*items, *source.finish()])
    assert [(row.step, len(row.values)) for row in found] == [(step, 3) for step in range(1, 41)]
    assert not source.unread
    assert repr(rows(restarted(files(tmp_path)))) == repr(rows(whole(files(tmp_path))))


@pytest.mark.parametrize("lasts", [False, True])
def test_a_metric_that_cannot_be_read_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, lasts: bool
) -> None:
    """A network's error passes: the poll is made again, and no number is lost. A file that stays so is passed over."""
    job, source = logs_files(tmp_path), files(tmp_path)(None)
    os.mkfifo(tmp_path / "metrics/pipe")
    (tmp_path / "metrics/outside").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "params/pipe")
    errors, plain = [OSError(116, "Stale file handle")] * (9 if lasts else 1), source._bytes

    def unsteady(path: Path, start: int, most: int) -> bytes:
        if path.name == "kl" and errors:
            raise errors.pop()
        return plain(path, start, most)

    monkeypatch.setattr(source, "_bytes", unsteady)
    items = [*source.poll(1.0)]
    assert rows(items) == []
    assert source.stats.problem == "[Errno 116] Stale file handle"
    job.log(4, {"loss": 1.0, "kl": 0.5, "completions/mean_length": 104.0})
    found = rows([*items, *source.poll(2.0), *source.poll(3.0), *source.finish()])
    assert [(row.step, len(row.values)) for row in found] == [(step, 2 if lasts else 3) for step in (1, 2, 3, 4)]
    assert source.stats.skipped == {Skip.UNREADABLE: 4}
    assert source.stats.problem == ""


def test_the_files_of_a_run_are_one_channel(tmp_path: Path) -> None:
    logs_files(tmp_path / "mlruns/1/9298a58d")
    (tmp_path / "mlruns/1/meta.yaml").write_text("name: grpo\n")
    (run,) = discover(tmp_path)
    assert [channel.what for channel in run.channels if channel.name.endswith("meta.yaml")] == [
        ChannelContent.MLFLOW_FILES
    ]
    assert ChannelContent.ROW_PIECES not in {channel.what for channel in run.channels}
