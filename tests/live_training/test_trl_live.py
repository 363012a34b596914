"""Real TRL on the CPU beside the live daemon: a frozen optimizer is reported while it trains, its twin is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.frameworks

SCRIPT = Path(__file__).with_name("train_tiny_grpo.py")
PROGRAM = Path(sys.executable).with_name("grpo-watch")
LONG = 5_000
"""Steps that take minutes: the frozen job is stopped by the test, once it was reported."""
SHORT = 40
PATIENCE = 600.0
"""Seconds after which something is wrong, however busy the machine is; nothing takes that long."""


@contextmanager
def training(folder: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A training job that writes ``folder/train.log`` and ``folder/output``."""
    folder.mkdir()
    command = [sys.executable, str(SCRIPT), str(folder / "output"), *options]
    with (folder / "train.log").open("wb") as log:
        job = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield job
    finally:
        job.kill()
        job.wait(timeout=PATIENCE)


@contextmanager
def watching(folder: Path | str, state: Path) -> Iterator[str]:
    """The daemon over ``folder`` (or an address); gives the address of its page, expects a clean end on SIGTERM."""
    output = state.with_suffix(".log")
    command = [str(PROGRAM), "run", str(folder), "--listen", "127.0.0.1:0", "--state-dir", str(state)]
    with output.open("wb") as log:
        daemon = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "NO_COLOR": "1"},
        )
    try:
        yield until(lambda: re.search(r"http://127\.0\.0\.1:\d+", output.read_text()), daemon)[0]
    finally:
        daemon.terminate()
        assert daemon.wait(timeout=PATIENCE) == 0, output.read_text()


def until(look: Callable[[], object], process: subprocess.Popen[bytes], patience: float = PATIENCE) -> object:
    """What ``look`` finds, asked again until it is truthy; fails when ``process`` ends or patience does."""
    pause, deadline = threading.Event(), time.monotonic() + patience
    while not (found := look()):
        assert process.poll() is None, "it ended before that"
        assert time.monotonic() < deadline, "it took too long"
        pause.wait(0.1)
    return found


def metrics(url: str) -> str:
    """The text of /metrics."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as answer:
        return answer.read().decode()


def value(text: str, name: str) -> float | None:
    """The value of the only series called ``name``."""
    found = re.search(rf"^{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None


def firing(text: str) -> set[str]:
    """The rules whose alert fires."""
    series = re.findall(r"^grpo_alert_firing\{([^}]*)\} 1(?:\.0)?$", text, re.MULTILINE)
    return {re.search(r'rule="([^"]+)"', labels)[1] for labels in series}


def first_step(text: str, rule: str) -> float | None:
    """The first breaching step of the rule's alert."""
    found = re.search(rf'^grpo_alert_first_step\{{[^}}]*rule="{rule}"[^}}]*\}} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else None


def test_a_frozen_optimizer_is_reported_while_it_trains(tmp_path: Path) -> None:
    """Both proofs: KL stays 0 from the second step on, and checkpoints 5 and 10 are the same."""
    wanted = {"kl-stuck-at-zero", "parameters-unchanged"}
    run = tmp_path / "frozen"
    with (
        training(run, "--frozen", "--max-steps", str(LONG)) as job,
        watching(run, tmp_path / "state") as url,
    ):
        until(lambda: wanted <= firing(metrics(url)), job)
        text = metrics(url)
        assert job.poll() is None
        assert value(text, "grpo_step") < LONG
        assert first_step(text, "kl-stuck-at-zero") == 2
        assert first_step(text, "parameters-unchanged") == 5


def test_a_healthy_twin_stays_quiet(tmp_path: Path) -> None:
    """Quiet though it was seen: all steps, and checkpoints and probes that differ in every tensor."""
    run = tmp_path / "healthy"
    options = ("--max-steps", str(SHORT), "--probe", "5")
    with watching(run, tmp_path / "state") as url, training(run, *options) as job:
        assert job.wait(timeout=PATIENCE) == 0
        deadline, pause = time.monotonic() + PATIENCE, threading.Event()
        while (text := metrics(url)) and (value(text, "grpo_step"), value(text, "grpo_parameters_changed_ratio")) != (
            SHORT,
            1,
        ):
            assert time.monotonic() < deadline, text
            pause.wait(0.1)
        assert firing(text) == set()
