"""Two daemons that share a folder: each run is watched by one of them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.process import Process, until, watching


def names(daemon: Process) -> set[str]:
    return {run["run"] for run in json.loads(daemon.get("/api/v1/runs"))["runs"]}


def test_two_daemons_watch_the_runs_of_a_folder_between_them(tmp_path: Path) -> None:
    runs = {f"run-{number}" for number in range(24)}  # all in one share: once in millions
    for name in runs:
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "logging.jsonl").write_text(
            '{"reward": 0.5, "kl": 0.01, "global_step/max_steps": "1/9"}\n'
        )
    with (
        watching(tmp_path / "runs", state=tmp_path / "a", options=("--shard", "1/2")) as first,
        watching(tmp_path / "runs", state=tmp_path / "b", options=("--shard", "2/2")) as second,
    ):
        until(lambda: len(names(first)) + len(names(second)) == len(runs))
        assert names(first) | names(second) == runs
        assert names(first)
        assert names(second)
