"""Real TRL with the callback: the job ends at its stop file, and its next attempt goes on."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.live_training.test_trl_live import LONG, PATIENCE, SCRIPT, training

pytestmark = pytest.mark.frameworks

FILE = "grpo-watch.stop"
OPTIONS = ("--probe", "5", "--stop-file", FILE)
SHORT = 12


def test_a_job_ends_at_its_stop_file_and_its_next_attempt_goes_on(tmp_path: Path) -> None:
    """It ends in order, at a probe after the file was made; the file stops no later attempt."""
    run = tmp_path / "run"
    with training(run, *OPTIONS, "--max-steps", str(LONG)) as job:
        deadline, pause = time.monotonic() + PATIENCE, threading.Event()
        while not list(run.rglob("grpo-watch-probe-*.jsonl")):
            assert time.monotonic() < deadline, "it took too long"
            pause.wait(0.1)
        (run / FILE).touch()
        assert job.wait(timeout=PATIENCE) == 0
    assert "train_runtime" in (run / "train.log").read_text()
    command = [sys.executable, str(SCRIPT), str(run / "output"), *OPTIONS, "--max-steps", str(SHORT)]
    with (run / "train.log").open("ab") as log:
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, timeout=PATIENCE, check=True)
    assert not (run / FILE).exists()
    assert (run / "output" / f"checkpoint-{SHORT}").exists()
