"""MLflow's database, as a real job fills it, beside a writer that is still at it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grpo_watch.engine.records import EventKind, RunConfig, RunEvent, Stream
from grpo_watch.sources.discovery.discover import ChannelContent, discover
from grpo_watch.sources.trackers.mlflow import MlflowSource
from tests.support.channel import Opens, restarted, rows, whole
from tests.support.tracker_files import Mlflow

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
