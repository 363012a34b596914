"""Logs of the real wandb client in one folder: side by side they are runs, one after the other attempts of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.sources.discovery.discover import Discoverer, discover
from grpo_watch.sources.discovery.several_runs import span_of
from grpo_watch.sources.trackers.wandb_offline import WandbOfflineSource
from tests.support.wandb_offline import Job, job


def log(running: Job, *steps: int) -> None:
    for step in steps:
        running.log(train__global_step=step, train__loss=0.5, train__reward=step / 10)


@pytest.mark.slow
def test_two_runs_at_the_same_time_are_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with job(tmp_path / "a") as first, job(tmp_path / "b") as second:
        log(first, 1, 2)
        log(second, 1, 2, 3)
        log(first, 3, 4)
        paths = first.path, second.path
        first.finish()
        second.finish()
    for path in paths:
        path.parent.rename(tmp_path / path.parent.name)
    runs = Discoverer().discover(tmp_path)
    assert sorted(run.name for run in runs) == sorted(path.parent.name for path in paths)
    assert all(len(run.channels) == 1 and run.channels[0].segment == 0 for run in runs)
    assert run_cli(["check", str(tmp_path), "--fail-on", "never"]) == 3  # rows without a reward are no verdict
    said = capsys.readouterr().out
    assert ("step 4" in said, "step 3" in said, "attempt" in said) == (True, True, False)


@pytest.mark.slow
def test_a_resumed_job_with_another_id_is_another_attempt(tmp_path: Path) -> None:
    for number, steps in enumerate(([1, 2, 3], [3, 4, 5])):
        with job(tmp_path / str(number)) as running:
            log(running, *steps)
            path = running.path
            running.finish()
        path.parent.rename(tmp_path / path.parent.name)
    (run,) = discover(tmp_path)
    assert [channel.segment for channel in run.channels if channel.name.endswith(".wandb")] == [0, 1]


@pytest.mark.slow
def test_a_log_that_does_not_fit_the_window_has_the_times_of_its_ends(tmp_path: Path) -> None:
    """Read from a block in the middle of a record; the client's own clock, one second per row."""
    with job(tmp_path) as running:
        log(running, 1)
        running.log(note="x" * 3_000_000)
        log(running, 2)
        path = running.path
        running.finish()
    span = span_of(path, WandbOfflineSource, [tmp_path])
    assert span is not None
    assert 0.0 < span.first <= span.last < span.first + 60.0


@pytest.mark.slow
def test_calls_without_a_number_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with job(tmp_path, step="") as running:
        running.log(loss="l=1")
        running.log(train__loss=0.5)
        running.finish()
    assert run_cli(["sources", str(tmp_path), "--format", "json"]) == 0
    channels = json.loads(capsys.readouterr().out)["runs"][0]["channels"]
    channel = next(each for each in channels if each["kind"] == "wandb offline")
    assert channel["skipped"] == {"not-a-row": 1}
    assert channel["first_bad"].endswith(": no number in it")
