"""``wandb://`` addresses through the real commands and wandb's own client: what a run's files say, its history says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.cli.run import running
from grpo_watch.config.schema import RunEntry, Settings
from grpo_watch.engine.snapshot import RunSnapshot
from tests.support.bundles import unpack
from tests.support.process import until
from tests.support.wandb_runs import calls, metrics, wandb_rows
from tests.support.wandb_server import KEY, ServedRun, WandbServer, served


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    with served() as server:
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        yield server


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run_cli(["check", *arguments, "--format", "json", "--ended"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, document


def top(document: dict[str, Any]) -> tuple[str, str, list[tuple[str, str, int, int]]]:
    (run,) = document["runs"]
    unexplained = [finding for finding in run["findings"] if finding["caused_by"] is None]
    keys = ("rule", "severity", "first_step", "fired_step")
    return run["framework"], run["verdict"], [tuple(finding[key] for key in keys) for finding in unexplained]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trl-1.16.0-11-dup-stride3", "trl-1.16.0-09-frozen-lr0"])
def test_a_history_gives_the_finding_of_the_files(
    name: str, server: WandbServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = unpack(name, tmp_path)
    run = server.add("ada/grpo", ServedRun("r1", state="finished", config={"num_generations": 6, "beta": 0.04}))
    run.rows = wandb_rows(folder, run)
    remote_code, remote = check(capsys, "wandb://ada/grpo/r1")
    local_code, local = check(capsys, str(folder))
    assert (remote_code, top(remote)) == (local_code, top(local))
    assert top(remote)[1] == "critical"
    assert remote["runs"][0]["rows"] == local["runs"][0]["rows"]
    (channel,) = remote["runs"][0]["channels"]
    assert (channel["kind"], channel["problem"]) == ("wandb api", None)


@pytest.mark.slow
def test_a_project_is_all_its_runs_and_resumes_are_attempts(
    server: WandbServer, capsys: pytest.CaptureFixture[str]
) -> None:
    first = ServedRun("v1", "verl-a", "failed", heartbeat="2026-11-21T09:00:00Z")
    second = ServedRun("v2", "verl-a", "finished", created="2026-11-21T09:30:00Z", heartbeat="2026-11-21T10:00:00Z")
    rank = ServedRun("r0", "other", "finished")
    other = ServedRun("r1", "other", "finished")
    for run, steps in ((first, range(1, 9)), (second, range(6, 12)), (rank, range(1, 4)), (other, range(1, 4))):
        server.add("ada/verl", run).rows = calls(*(metrics(step) for step in steps))
    _, document = check(capsys, "wandb://ada/verl")
    shown = [(run["run"], run["rows"], run["steps"], run["attempts"]) for run in document["runs"]]
    assert sorted(shown) == [
        ("verl/other-r0", 3, 3, 1),
        ("verl/other-r1", 3, 3, 1),
        ("verl/verl-a", 14, 11, 2),
    ]


@pytest.mark.slow
def test_what_is_not_there_and_what_is_no_address(server: WandbServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["check", "wandb://ada/nix", "--format", "json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["runs"] == []
    assert "wandb://ada/nix: no such run or project" in document["problems"][0]
    assert run_cli(["check", "wandb://ada"]) == 2
    assert "write wandb://ENTITY/PROJECT" in capsys.readouterr().err


@pytest.mark.slow
def test_sources_names_the_channel(server: WandbServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.add("ada/grpo", ServedRun("r1", state="finished", rows=calls(metrics(1), metrics(2))))
    assert run_cli(["sources", "wandb://ada/grpo/r1"]) == 0
    output = capsys.readouterr().out
    assert "wandb://ada/grpo/r1" in output
    assert "3 records" in output


def watched(settings: Settings, *, places: list[str]) -> tuple[int, RunSnapshot]:
    with running(places, lambda: settings, exit_when_done=True) as watch:
        code = watch.wait()
        (run,) = watch.daemon.snapshot().runs
    return code, run.snapshot


@pytest.mark.slow
def test_the_daemon_reads_a_run_to_its_end_and_a_second_one_repeats_nothing(
    server: WandbServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    before = set(threading.enumerate())
    folder = unpack("trl-1.16.0-09-frozen-lr0", tmp_path)
    run = server.add("ada/grpo", ServedRun("r1", state="finished", config={"hub_token": KEY}))
    run.rows = wandb_rows(folder, run)
    entry = RunEntry(path="wandb://ada/grpo/r1", settings={"beta": 0.04}, labels={"team": "math"})
    settings = Settings(listen="127.0.0.1:0", state_dir=tmp_path / "state", runs=(entry,))
    code, snapshot = watched(settings, places=[])
    rule = {finding.rule for finding in snapshot.findings if finding.caused_by is None}
    assert (code, snapshot.run, snapshot.step) == (0, "grpo/r1", 100)
    assert snapshot.config["beta"].origin == "--set"
    output = capsys.readouterr().out
    _, local = check(capsys, str(folder))
    assert top(local)[2][0][0] in rule
    again, second = watched(settings, places=[])
    assert (again, second.rows, second.attempt) == (0, snapshot.rows, 1)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert KEY.encode() not in kept
    assert KEY not in caplog.text + output + capsys.readouterr().out
    until(lambda: not [one for one in set(threading.enumerate()) - before if one.name == "wandb"])


@pytest.mark.slow
def test_a_history_without_numbers_is_reported(server: WandbServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Values logged as texts: no rows, but a note about them."""
    server.add("ada/grpo", ServedRun("r1", state="finished")).rows = calls(*({"loss": f"l={n}"} for n in range(5)))
    assert run_cli(["sources", "wandb://ada/grpo/r1", "--format", "json"]) == 0
    (channel,) = json.loads(capsys.readouterr().out)["runs"][0]["channels"]
    assert (channel["records"], channel["skipped"]) == (1, {"not-a-row": 5}), "its end alone"
    assert channel["first_bad"] == "not-a-row: _step 0: no number in it"
