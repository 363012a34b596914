"""MLflow's own client, where it is installed (scripts/test-lowest: its oldest version), over a store in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.engine.records import RawRow
from grpo_watch.sources.trackers.mlflow import MlflowSource
from grpo_watch.sources.trackers.mlflow_server import MlflowServer

mlflow = pytest.importorskip("mlflow")


def test_rows_of_a_run_are_copied_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    client = mlflow.MlflowClient()
    run = client.create_run(client.create_experiment("grpo"), run_name="one").info.run_id
    server = MlflowServer("mlflow:///grpo", tmp_path)
    for step in range(1, 9):
        for key in ("reward", "kl"):
            client.log_metric(run, key, step / 10, 1_795_695_075_000 + 1_000 * step, step)
        if step == 5:
            assert server.copy()
    client.set_terminated(run)
    assert server.copy()
    source = MlflowSource("mlflow", server.path, [tmp_path], lambda: None, run=run)
    rows = [item for item in source.poll(None) if isinstance(item, RawRow)]
    assert [(row.step, row.values["reward"]) for row in rows] == [(step, step / 10) for step in range(1, 9)]
    source.close()
