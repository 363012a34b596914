"""Databases with the tables of trackio 0.43, as real jobs fill them, beside a writer that is still at it."""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.engine.records import CompletionSummary, EventKind, Item, RunConfig, RunEvent, Stream
from grpo_watch.sources.base import Skip
from grpo_watch.sources.discovery.discover import ChannelContent, discover
from grpo_watch.sources.files.reading import BUDGET
from grpo_watch.sources.trackers import database, trackio
from grpo_watch.sources.trackers.trackio import TrackioSource
from tests.support.channel import Opens, restarted, rows, whole

TABLES = """
CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
  run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT);
CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL,
  config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE(run_id));
CREATE TABLE traces (id TEXT PRIMARY KEY, run_id TEXT NOT NULL, timestamp TEXT NOT NULL, run_name TEXT NOT NULL,
  step INTEGER NOT NULL, key TEXT NOT NULL, trace_index INTEGER, messages TEXT NOT NULL, metadata TEXT NOT NULL,
  search_text TEXT NOT NULL, log_id TEXT, space_id TEXT, spans TEXT NOT NULL DEFAULT '[]');
CREATE TABLE alerts (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
  run_name TEXT NOT NULL, title TEXT NOT NULL, text TEXT, level TEXT NOT NULL DEFAULT 'warn', step INTEGER,
  alert_id TEXT);
"""
"""As trackio 0.43 makes them; trackio itself would bring a web server into the development tools."""
CONFIG = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 1, "num_generations": 2, "beta": 0.04}


class Writer:
    """Logs as trackio does: write-ahead log, JSON as bytes, a counter of calls in ``step``."""

    def __init__(self, path: Path) -> None:
        self.database = sqlite3.connect(path)
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.executescript(TABLES)
        self.calls = 0

    def config(self, run: str, config: dict[str, Any]) -> None:
        row = (run, run, json.dumps(config).encode(), "2026-11-21T08:00:00+00:00")
        with self.database:
            self.database.execute(
                "INSERT OR REPLACE INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, ?)", row
            )

    def log(self, run: str = "one", **values: Any) -> None:
        metrics = json.dumps({name.replace("__", "/"): value for name, value in values.items()}).encode()
        row = (run, f"2026-11-21T08:00:{self.calls % 60:02}+00:00", run, self.calls, metrics)
        self.calls += 1
        with self.database:
            self.database.execute(
                "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)", row
            )

    def alert(self, title: str, text: str | None, level: str, run: str = "one") -> None:
        """As ``trackio.alert`` stores it: with the number of the newest call."""
        row = (run, run, title, text, level, self.calls - 1)
        with self.database:
            self.database.execute(
                "INSERT INTO alerts (run_id, timestamp, run_name, title, text, level, step)"
                " VALUES (?, '2026', ?, ?, ?, ?, ?)",
                row,
            )

    def trace(self, step: int, *said: tuple[int, str, float], key: str = "rollouts") -> None:
        """Traces as TRL 1.16 logs them: group, answer and reward of each."""
        rows = []
        for index, (group, answer, reward) in enumerate(said):
            talk = [{"role": "user", "content": f"q{group}"}, {"role": "assistant", "content": answer}]
            facts = {"reward": reward, "rewards/accuracy": reward, "advantage": 0.5, "group_id": group}
            own = (f"{step}:{key}:{index}", "one", "one", step, key, index, json.dumps(talk), json.dumps(facts))
            rows.append(own)
        with self.database:
            self.database.executemany(
                "INSERT INTO traces (id, run_id, timestamp, run_name, step, key, trace_index, messages, metadata,"
                " search_text) VALUES (?, ?, '2026', ?, ?, ?, ?, ?, ?, '')",
                rows,
            )
        self.log()  # the call itself, without numbers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "huggingface.db"


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    made = Writer(path)
    with closing(made.database):
        yield made


def opens(path: Path, run: str = "one") -> Opens:
    return lambda cursor: TrackioSource("trackio", path, [path.parent], lambda: 2, cursor=cursor, run=run)


def batch(step: int, *texts: str) -> dict[str, Any]:
    lines = [
        {"step": str(step), "prompt": "2+2?", "completion": text, "accuracy": float(index), "advantage": 0.5}
        for index, text in enumerate(texts)
    ]
    return {"_type": "trackio.table", "_value": lines}


def test_a_loop_that_logs_several_rows_at_each_step_counts_by_trackio(path: Path, writer: Writer) -> None:
    for call in range(6):
        writer.log(step=call // 2, loss=1.0 + call, reward=2.0 * call, kl=0.5 * call)
    found = [(row.step, row.values) for row in rows(whole(opens(path)))]
    assert found == [(call, {"loss": 1.0 + call, "reward": 2.0 * call, "kl": 0.5 * call}) for call in range(6)]


def logs_steps(writer: Writer) -> None:
    writer.config("one", {**CONFIG, "hub_token": "hf_abc"})
    for step in (1, 2, 3):
        writer.log(**{"profiling/Time taken: Trainer.compute_loss": 0.5})
        writer.log(train__loss=0.25 * step, train__reward=None, train__global_step=step)
        writer.log(completions=batch(step, "4", "5" * step), train__global_step=step)
        writer.log(run="other", train__loss=9.0, train__global_step=step)
    writer.log(eval__reward="NaN", train__epoch=1.0, train__global_step=3)
    writer.log(train__train_runtime=9.5, train__train_loss=0.5, train__epoch=1.0, train__global_step=3)


def test_rows_settings_completions_and_the_end(path: Path, writer: Writer) -> None:
    logs_steps(writer)
    items = whole(opens(path))
    assert [(row.step, row.stream) for row in rows(items)] == [(1, None), (2, None), (3, None), (3, Stream.EVAL)]
    assert [row.values for row in rows(items)[:3]] == [
        {"train/loss": 0.25 * step, "train/reward": None} for step in (1, 2, 3)
    ]
    assert math.isnan(rows(items)[3].values["eval/reward"] or 0.0)
    assert rows(items)[0].time == 1_795_248_001.0  # 2026-11-21 08:00:01 UTC, the second call
    (config,) = [item for item in items if isinstance(item, RunConfig)]
    assert {name: config.settings[name].value for name in CONFIG} == CONFIG
    tables = [item for item in items if isinstance(item, CompletionSummary)]
    assert [(table.step, table.groups[0].lengths) for table in tables] == [(1, (1, 1)), (2, (1, 2)), (3, (1, 3))]
    assert items[-1] == RunEvent("trackio", EventKind.FINISHED, 3)
    assert "hf_abc" not in repr(items)


def test_a_restart_after_any_item_changes_nothing(path: Path, writer: Writer) -> None:
    logs_steps(writer)
    assert repr(restarted(opens(path))) == repr(whole(opens(path)))  # a NaN is among the values


def test_a_writer_is_followed_without_being_held_up(path: Path, writer: Writer) -> None:
    source = opens(path)(None)
    got: list[Item] = []
    for step in (1, 2, 3):
        writer.log(train__loss=0.5, train__global_step=step)
        got += source.poll(float(step))
    assert [row.step for row in rows(got)] == [1, 2]
    assert writer.database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0  # no reader is in the way
    assert [row.step for row in rows([*got, *source.finish()])] == [1, 2, 3]


def test_a_closed_database_is_read_without_a_trace(path: Path, writer: Writer) -> None:
    """SQLite would make two files beside it, in a folder that is the job's."""
    logs_steps(writer)
    writer.database.close()
    before = sorted(path.parent.iterdir())
    assert len(rows(whole(opens(path)))) == 4
    assert sorted(path.parent.iterdir()) == before == [path]


def test_a_run_without_a_step_of_its_own_counts_by_trackio_s(path: Path, writer: Writer) -> None:
    writer.log(critic__score=0.5)
    writer.log(critic__score=0.75)
    assert [(row.step, row.values) for row in rows(whole(opens(path)))] == [
        (0, {"critic/score": 0.5}),
        (1, {"critic/score": 0.75}),
    ]


def test_each_run_of_a_project_is_a_run(path: Path, writer: Writer) -> None:
    logs_steps(writer)
    found = discover(path.parent)
    assert [(run.name.rsplit("/", 1)[-1], [c.what for c in run.channels]) for run in found] == [
        ("one", [ChannelContent.TRACKIO]),
        ("other", [ChannelContent.TRACKIO]),
    ]
    assert [run.name for run in discover(path)] == [run.name for run in found]


def test_the_only_run_beside_a_log_is_the_log_s(path: Path, writer: Writer) -> None:
    writer.log(train__loss=0.5, train__global_step=1)
    (path.parent / "train.log").write_text("{'loss': 0.5, 'reward': 1.0, 'kl': 0.0}\n")
    (run,) = discover(path.parent)
    assert {channel.what for channel in run.channels} >= {ChannelContent.CONSOLE, ChannelContent.TRACKIO}


def test_another_database_is_none_of_our_business(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "optuna.db")) as database:
        database.execute("CREATE TABLE trials (id INTEGER)")
        database.commit()
    assert discover(tmp_path) == []


def test_rows_that_are_no_json_are_counted_with_their_number(path: Path, writer: Writer) -> None:
    writer.log(train__loss=0.5, train__global_step=1)
    with writer.database:
        writer.database.execute(
            "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES ('one', 'x', 'one', 1, '{')"
        )
    source = opens(path)(None)
    assert len(rows([*source.poll(None), *source.finish()])) == 1
    assert source.stats.first_bad == "not-json: row 2: no JSON object"


def test_a_turn_reads_so_many_bytes(path: Path, writer: Writer) -> None:
    for step in range(1, 7):
        writer.log(train__loss=0.5, train__global_step=step, text="x" * (BUDGET // 4))
    source = opens(path)(None)
    assert len(rows([*source.poll(1.0)])) == 3
    assert source.unread
    assert len(rows([*source.poll(1.0)])) == 2
    assert not source.unread


def test_a_row_that_is_too_long_is_counted(path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrackioSource, "ROWS", TrackioSource.ROWS.replace(str(trackio.LONGEST_TEXT), "1000"))
    writer.log(train__loss=0.5, train__global_step=1)
    writer.log(train__loss=0.5, train__global_step=2, text="x" * 1_000)
    source = opens(path)(None)
    assert len(rows([*source.poll(None), *source.finish()])) == 1
    assert source.stats.first_bad == "too-long: row 2: more than 32 MiB"


def groups(items: list[Item]) -> list[tuple[int, list[tuple[int, int, object]]]]:
    found = [item for item in items if isinstance(item, CompletionSummary)]
    return [(item.step, [(one.size, one.unique, one.rewards.get("accuracy")) for one in item.groups]) for item in found]


def test_traces_of_rollouts_are_groups(path: Path) -> None:
    """A group of which one completion was logged says nothing; verl's validation samples are no groups."""
    job = Writer(path)
    for step in (1, 2):
        job.trace(step, (7, "same", 0.0), (7, "same", 1.0), (8, "a", 0.0), (8, "b", 0.0), (9, "alone", 1.0))
        job.log(train__global_step=step, train__reward=0.4)
    job.trace(2, (1, "x", 1.0), (1, "y", 1.0), key="val/generations")
    expected = [(step, [(2, 1, (0.0, 1.0)), (2, 2, (0.0, 0.0))]) for step in (1, 2)]
    source = TrackioSource("trackio", path, [path.parent], lambda: 2, run="one")
    assert groups([*source.poll(None), *source.finish()]) == expected
    assert source.stats.skipped == {}
    first = TrackioSource("trackio", path, [path.parent], lambda: 2, run="one")
    assert groups(list(first.poll(1.0))) == expected
    job.trace(3, (4, "u", 1.0), (4, "v", 0.0))
    later = TrackioSource("trackio", path, [path.parent], lambda: 2, cursor=first.cursor(), run="one")
    assert groups(list(later.poll(2.0))) == [(3, [(2, 2, (1.0, 0.0))])]
    job.database.close()


def test_many_traces_are_read_step_by_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is never cut where a query ends; live, the rest comes at the next poll."""
    for module in (trackio, database):
        monkeypatch.setattr(module, "BATCH", 7)
    job = Writer(path)
    for step in range(1, 6):
        job.trace(step, (1, "a", 0.0), (1, f"b{step}", 1.0), (2, "c", 0.0), (2, "d", 0.0))
    job.log(train__global_step=5, train__reward=0.4)
    expected = [(step, [(2, 2, (0.0, 1.0)), (2, 2, (0.0, 0.0))]) for step in range(1, 6)]
    at_once = TrackioSource("trackio", path, [path.parent], lambda: 2, run="one")
    assert groups(list(at_once.poll(None))) == expected
    live = TrackioSource("trackio", path, [path.parent], lambda: 2, run="one")
    assert groups([item for _ in range(6) for item in live.poll(1.0)]) == expected
    job.database.close()


def test_a_trace_that_is_too_long_hides_no_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackio, "TRACES", trackio.TRACES.replace(str(trackio.LONGEST_TEXT), "1000"))
    job = Writer(path)
    for step, length in ((1, 1), (2, 1_200), (3, 3_000), (4, 1)):
        job.trace(step, (1, "a", 0.0), (1, "b", 1.0), (1, "x" * length, 1.0))
    source = opens(path)(None)
    found = groups([*source.poll(1.0), *source.poll(2.0)])
    assert [(step, members[0][0]) for step, members in found] == [(1, 3), (2, 2), (3, 2), (4, 3)]
    assert source.stats.skipped == {Skip.TOO_LONG: 2}
    job.database.close()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="any length is loaded")
def test_what_is_too_long_to_be_loaded_is_passed_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One trace and one row beyond twice the longest text, at which SQLite ends the whole query."""
    monkeypatch.setattr(database, "LONGEST_TEXT", 10_000)
    job = Writer(path)
    for step, length in ((1, 1), (2, 30_000), (3, 1)):
        job.trace(step, (1, "a", 0.0), (1, "b", 1.0), (1, "x" * length, 1.0))
        job.log(train__global_step=step, train__reward=0.4, text="x" * length)
    source = opens(path)(None)
    found = [*source.poll(1.0), *source.poll(2.0), *source.finish()]
    assert [(step, members[0][0]) for step, members in groups(found)] == [(1, 3), (2, 2), (3, 3)]
    assert [row.step for row in rows(found)] == [1, 3]
    assert source.stats.skipped == {Skip.TOO_LONG: 2}
    assert source.stats.problem == ""
    job.database.close()


def test_traces_that_cannot_be_read_are_a_problem(path: Path, writer: Writer) -> None:
    writer.log(train__loss=0.5, train__global_step=1)
    with writer.database:
        writer.database.execute("ALTER TABLE traces RENAME COLUMN messages TO talk")
    source = opens(path)(None)
    assert list(source.poll(1.0)) == []
    assert "no such column: messages" in source.stats.problem
    with writer.database:
        writer.database.execute("DROP TABLE traces")  # as in older databases
    assert list(source.poll(1.0)) == []
    assert source.stats.problem == ""


def test_alerts_of_the_job_are_noted_at_the_step_they_were_sent(path: Path, writer: Writer) -> None:
    """trackio counts calls: the step is that of the newest row before the alert."""
    for step in (5, 10, 15):
        writer.log(train__loss=0.5, train__reward=1.0, train__global_step=step)
        if step == 10:
            writer.alert("Loss diverged", "loss is\n9.1", "error")
            writer.alert("another's", None, "warn", run="other")
    first = opens(path)(None)
    noted = [item for item in first.poll(1.0) if isinstance(item, RunEvent)]
    assert noted == [RunEvent("trackio", EventKind.NOTED, 10, "trackio error: Loss diverged: loss is 9.1", seen=1.0)]
    writer.alert("done", None, "info")
    later = opens(path)(first.cursor())
    assert [(item.step, item.text) for item in later.poll(2.0) if isinstance(item, RunEvent)] == [
        (15, "trackio info: done")
    ]
    writer.database.execute("DROP TABLE alerts")  # as in older databases
    assert [item for item in whole(opens(path)) if isinstance(item, RunEvent)] == []


def test_no_alert_shows_a_credential_or_is_left_out_at_the_end(path: Path, writer: Writer) -> None:
    """More of them than one look at a living run reads; ``check`` reads all."""
    writer.log(train__loss=0.5, train__reward=1.0, train__global_step=5)
    writer.alert("Upload\x1b[31m failed", "api_key=hunter2hunter2 at https://me:pa55@host/\u202ex", "warn")
    for count in range(120):
        writer.alert(f"alert {count}", None, "info")
    noted = [item.text for item in whole(opens(path)) if isinstance(item, RunEvent)]
    assert len(noted) == 121
    assert noted[0] == "trackio warn: Upload failed: api_key=*** at https://***@host/ x"
    assert noted[-1] == "trackio info: alert 119"
