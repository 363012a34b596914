"""Real TRL that reports to real wandb (offline) and TensorBoard beside the live daemon: one run, each step once."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.engine.records import RawRow, Stream
from grpo_watch.sources.rows.trainer_state import TrainerStateSource
from grpo_watch.sources.trackers.tfevents import TfeventsSource
from grpo_watch.sources.trackers.wandb_offline import WandbOfflineSource
from tests.live_training.test_trl_live import LONG, PATIENCE, metrics, training, until, watching

pytestmark = pytest.mark.frameworks

STEPS = 20


def asked(url: str, state: Path) -> Any:
    """What the API answers to somebody who has the daemon's token."""
    token = json.loads((state / "page.json").read_text())["token"]
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read())


def records(text: str, kind: str) -> float:
    """How many records the daemon read of channels of this kind."""
    found = re.search(rf'^grpo_watch_records_total\{{source="{kind}"\}} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def rows(source: Any) -> list[RawRow]:
    return [item for item in [*source.poll(None), *source.finish()] if isinstance(item, RawRow)]


def plain(row: RawRow) -> dict[str, float | None]:
    """The row's values without the prefix that trackers get."""
    return {key.removeprefix("train/"): number for key, number in row.values.items()}


def test_one_run_through_its_log_and_its_trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both channels are read while the job runs, and each step is there once, with the values that wandb holds."""
    run = tmp_path / "tracked"
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(run))
    with (
        training(run, "--report-to", "wandb", "--max-steps", str(LONG)) as job,
        watching(run, tmp_path / "state") as url,
    ):
        until(lambda: min(records(metrics(url), kind) for kind in ("console", "wandb-offline")) > STEPS, job)
        assert job.poll() is None
        (found,) = asked(f"{url}/api/v1/runs", tmp_path / "state")["runs"]
        series = asked(f"{url}/api/v1/runs/{found['slug']}/series", tmp_path / "state")["series"]
        job.kill()
    assert series["step"] == list(range(1, len(series["step"]) + 1))
    assert len(series["step"]) >= STEPS / 2
    assert found["attempt"] == 1
    (log,) = run.glob("wandb/offline-run-*/*.wandb")
    logged = rows(WandbOfflineSource("wandb", log, [run], lambda: 8))[: len(series["step"])]
    assert len(logged) >= STEPS / 2  # the log on the console may be ahead when the job is killed
    assert [row.step for row in logged] == series["step"][: len(logged)]
    shown, newest = series["kl_reference"][: len(logged) - 1], series["kl_reference"][len(logged) - 1]
    *earlier, last = [plain(row)["kl"] for row in logged]
    assert shown == pytest.approx(earlier, rel=1e-3)  # four digits, where the console's row came long before wandb's
    assert newest is None or newest == pytest.approx(last, rel=1e-3)  # a step's completions may be read before its row


def test_each_tracker_alone_gives_what_the_trainer_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """trainer_state.json has the rows at full precision: wandb the same, TensorBoard as 32-bit floats."""
    run = tmp_path / "both"
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(run))
    with training(run, "--report-to", "wandb", "--report-to", "tensorboard", "--max-steps", "10") as job:
        assert job.wait(timeout=PATIENCE) == 0
    stored = rows(TrainerStateSource("state", run / "output", [run]))
    assert [(row.step, row.stream) for row in stored] == [(step, None) for step in range(1, 11)]
    (log,) = run.glob("wandb/offline-run-*/*.wandb")
    (events,) = run.glob("output/runs/*/*tfevents*")
    exact = rows(WandbOfflineSource("wandb", log, [run], lambda: 8))
    single = rows(TfeventsSource("events", events, [run]))
    assert [plain(row) for row in exact] == [row.values for row in stored]
    assert [plain(row) for row in single] == [pytest.approx(row.values, rel=1e-6) for row in stored]
    assert not any(row.stream is Stream.EVAL for row in (*exact, *single))
