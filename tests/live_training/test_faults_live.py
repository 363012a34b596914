"""Real TRL with a dozen faults beside the live daemon: a webhook hears of each while its job runs, or at its end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.frameworks

SCRIPT = Path(__file__).with_name("train_faults.py")
PROGRAM = Path(sys.executable).with_name("grpo-watch")
PATIENCE = 900.0
"""Seconds after which something is wrong, however busy the machine is."""
LATE = 120.0
"""Seconds after its job's end within which a fault is notified, however busy the machine is: a checkpoint keeps
still for some before it is read."""
MUST: Mapping[str, frozenset[str]] = {
    name: frozenset(rules.split())
    for name, rules in {
        "optimizer-over-a-copy": "parameters-unchanged",
        "schedule-that-dies": "learning-rate-zero",
        "clipped-to-nothing": "gradient-lost kl-stuck-at-zero parameters-unchanged",
        "dead-reward": "dead-reward-component",
        "swallowed-exception": "reward-variance-collapse dead-reward-component gradient-lost reward-collapse",
        "all-truncated-and-masked": "completions-truncated gradient-lost",
        "reference-is-the-policy": "reference-follows-policy kl-stuck-at-zero",
        "the-same-completion": "duplicate-completions",
        "one-prompt": "repeated-prompts",
        "some-rewards-nan": "reward-not-finite non-finite-metric",
        "untrained-weights-saved": "parameters-unchanged",
    }.items()
}
"""What an engineer expects to hear of each fault: one of these rules."""
HEALTHY = "nothing"


class Received:
    """What the webhook got: when each rule of each run fired first (Unix seconds)."""

    def __init__(self) -> None:
        self.first: dict[tuple[str, str], float] = {}
        self.severities: dict[tuple[str, str], str] = {}
        self.came = threading.Condition()

    def take(self, alert: Mapping[str, object]) -> None:
        if alert["status"] == "firing":
            with self.came:
                key = (str(alert["run"]), str(alert["rule"]))
                self.first.setdefault(key, time.time())
                self.severities[key] = str(alert["severity"])
                self.came.notify_all()

    def of(self, run: str) -> dict[str, float]:
        """The rules that a run's job has fired."""
        with self.came:
            return {rule: at for (name, rule), at in self.first.items() if name == run}


@contextmanager
def webhook(received: Received) -> Iterator[str]:
    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.take(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def watching(folder: Path, place: Path, url: str) -> Iterator[None]:
    """The daemon over the parent folder of all jobs."""
    config, output = place / "config.yaml", place / "daemon.log"
    config.write_text(f"sinks: [{{type: webhook, url: '{url}'}}]\n")
    command = [str(PROGRAM), "run", str(folder), "--config", str(config), "--state-dir", str(place / "state")]
    with output.open("wb") as log:
        daemon = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"], stdout=log, stderr=log, env={**os.environ, "NO_COLOR": "1"}
        )
    try:
        deadline, pause = time.monotonic() + PATIENCE, threading.Event()
        while re.search(r"http://127\.0\.0\.1:\d+", output.read_text()) is None:
            assert daemon.poll() is None, output.read_text()
            assert time.monotonic() < deadline, output.read_text()
            pause.wait(0.1)
        yield
    finally:
        daemon.terminate()
        assert daemon.wait(timeout=PATIENCE) == 0, output.read_text()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Received, Mapping[str, float]]:
    """What the webhook got of the jobs, and when each ended (Unix seconds)."""
    place, received = tmp_path_factory.mktemp("faults"), Received()
    runs, ended = place / "runs", dict[str, float]()
    runs.mkdir()
    with webhook(received) as url, watching(runs, place, url):
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(runs)],
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"},
            check=False,
            timeout=PATIENCE,
            capture_output=True,
            text=True,
        )
        for line in done.stdout.splitlines():
            name, code, at = line.split()
            assert code == "0", (runs / name / "train.log").read_text()[-3_000:]
            ended[name] = float(at)
        assert ended.keys() == {*MUST, HEALTHY}, done.stderr[-3_000:]
        with received.came:
            received.came.wait_for(
                lambda: all(MUST[name] & {rule for run, rule in received.first if run == name} for name in MUST),
                timeout=max(0.0, max(ended.values()) + LATE - time.time()),
            )
    return received, ended


@pytest.mark.parametrize("fault", MUST)
def test_a_fault_is_notified_while_its_job_runs_or_at_its_end(
    fault: str, outcome: tuple[Received, Mapping[str, float]]
) -> None:
    received, ended = outcome
    of_it = {rule: at for rule, at in received.of(fault).items() if rule in MUST[fault]}
    assert of_it, f"received only: {received.of(fault)}"
    assert min(of_it.values()) <= ended[fault] + LATE


def test_a_healthy_job_gets_nothing_critical(outcome: tuple[Received, Mapping[str, float]]) -> None:
    received, _ = outcome
    assert {
        rule for (run, rule), severity in received.severities.items() if run == HEALTHY and severity == "critical"
    } == set()
