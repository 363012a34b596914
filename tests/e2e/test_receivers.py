"""The real daemon tells real receivers while a real run is replayed into a growing log."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.bundles import unpack
from tests.support.process import Process, until, watching
from tests.support.receiving import Receiving
from tests.support.servers import alertmanager_command, free_port, serving

FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"
RULE = "kl-stuck-at-zero"


@pytest.fixture
def lines(tmp_path: Path) -> list[bytes]:
    """The rows of the run; what is watched holds the first two of them."""
    run = unpack(FROZEN, tmp_path / "runs")
    for console in run.rglob("*.log"):
        console.unlink()
    log = next(run.rglob("logging.jsonl"))
    rows = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(rows[:2]))
    return rows


def configured(folder: Path, sinks: list[dict[str, Any]], **more: Any) -> Path:
    config = folder / "grpo-watch.yaml"
    config.write_text(json.dumps({"sinks": sinks, **more}))  # JSON is YAML
    return config


def grow(folder: Path, rows: list[bytes], daemon: Process) -> None:
    """Write the rows one by one, once the first ones were read."""
    until(lambda: "watching " in daemon.said(), daemon.child)
    pause = threading.Event()
    with next(folder.rglob("logging.jsonl")).open("ab", buffering=0) as log:
        for row in rows:
            log.write(row)
            pause.wait(0.01)


def documents(server: Receiving) -> list[dict[str, Any]]:
    return [json.loads(sent.body) for sent in server.sent]


@pytest.mark.slow
@pytest.mark.system("alertmanager")
def test_alertmanager_has_the_alert_and_has_it_after_kill_minus_nine(
    tmp_path: Path, lines: list[bytes], program: Callable[[str], str]
) -> None:
    """One alert, before and after: a restarted watcher notifies Alertmanager of it again, as the same.

    How fast: ``make bench``.
    """
    port = free_port()
    quiet = tmp_path / "am.yml"
    quiet.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    command = alertmanager_command(program("alertmanager"), quiet, tmp_path, port)

    def alerts() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = httpx.get(f"http://127.0.0.1:{port}/api/v2/alerts").json()
        return [alert for alert in found if alert["labels"].get("rule") == RULE]

    def alive() -> list[str]:
        found = httpx.get(f"http://127.0.0.1:{port}/api/v2/alerts").json()
        return [alert["updatedAt"] for alert in found if alert["labels"]["alertname"] == "GrpoWatchAlive"]

    runs = [{"path": str(tmp_path / "runs" / "*"), "labels": {"team": "math"}}]
    sinks = [{"type": "alertmanager", "url": f"http://127.0.0.1:{port}", "heartbeat": True}]
    config = configured(tmp_path, sinks, runs=runs, web={"url": "https://grpo.example.org"})
    run, state, options = tmp_path / "runs" / FROZEN, tmp_path / "state", ("--config", str(config))
    with serving(command, port, "/-/ready"):
        with watching(run, state=state, options=options) as daemon:
            grow(tmp_path / "runs", lines[2:40], daemon)
            (alert,) = until(alerts, daemon.child)
            own = {"alertname": "GrpoRunAlert", "rule": RULE, "run": FROZEN, "severity": "critical", "team": "math"}
            assert alert["labels"] == own
            assert "reference KL 0" in alert["annotations"]["evidence"]
            assert alert["annotations"]["page"].startswith("https://grpo.example.org/#/run/")
            before = until(alive, daemon.child)
            daemon.child.send_signal(signal.SIGKILL)
            daemon.ends()
        with watching(run, state=state, options=options) as daemon:
            until(lambda: alive() > before, daemon.child)
            (again,) = alerts()
            assert again["fingerprint"] == alert["fingerprint"]
            assert again["updatedAt"] >= alert["updatedAt"]
