"""The real daemon beside a receiver that is well, slow, gone or full of errors."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.bundles import unpack
from tests.support.process import PROGRAM, Process, until, watching
from tests.support.receiving import Answer, Receiving, receiving, secret_file
from tests.support.servers import free_port

FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"
KL = "kl-stuck-at-zero"
BURST = int(os.environ.get("GRPO_WATCH_BURST", "20000"))
"""Rows; ``make soak`` has 100,000."""


class Run:
    """A recorded frozen run, written bit by bit."""

    def __init__(self, folder: Path) -> None:
        self.path = unpack(FROZEN, folder / "runs")
        for console in self.path.rglob("*.log"):
            console.unlink()
        self._log = next(self.path.rglob("logging.jsonl"))
        self.rows = self._log.read_bytes().splitlines(keepends=True)
        self._log.write_bytes(b"".join(self.rows[:3]))

    def write(self, rows: int, since: int = 3) -> None:
        with self._log.open("ab") as log:
            log.write(b"".join(self.rows[since:rows]))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@contextmanager
def pushing(run: Run, folder: Path, *sinks: str, options: tuple[str, ...] = ()) -> Iterator[Process]:
    """A daemon over the run that was read once, with these receivers."""
    settings = folder / "grpo-watch.yaml"
    settings.write_text("sinks:\n" + "".join(f"  - {{{sink}}}\n" for sink in sinks))
    with watching(run.path, state=folder / "state", options=("--config", str(settings), *options)) as daemon:
        until(lambda: daemon.get("/readyz") == "ready\n", daemon.child)
        yield daemon


def reported(hook: Receiving) -> list[tuple[str, str]]:
    """Status and rule of each message."""
    documents = [json.loads(sent.body) for sent in list(hook.sent)]
    return [(document["status"], document["rule"]) for document in documents]


def hung() -> socket.socket:
    """A receiver that takes connections and never says anything."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.listen(8)
    return listener


def address(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}/"


@pytest.mark.slow
def test_an_alert_arrives_and_is_counted(run: Run, tmp_path: Path) -> None:
    with receiving() as hook, pushing(run, tmp_path, f"type: webhook, url: '{hook.url}'") as daemon:
        run.write(40)
        assert until(lambda: reported(hook), daemon.child) == [("firing", KL)]
        sample = 'grpo_watch_deliveries_total{outcome="delivered",sink="webhook:127.0.0.1'
        until(lambda: sample in daemon.get("/metrics"), daemon.child)
        assert json.loads(hook.sent[0].body)["page"] == ""  # nobody else reaches loopback
        assert "set web.url" in daemon.said()


@pytest.mark.slow
def test_a_receiver_that_hangs_does_not_hold_up_another(run: Run, tmp_path: Path) -> None:
    with hung() as listener, receiving() as hook:
        sinks = (f"type: webhook, name: slow, url: '{address(listener)}'", f"type: webhook, url: '{hook.url}'")
        with pushing(run, tmp_path, *sinks) as daemon:
            run.write(40)
            until(lambda: reported(hook), daemon.child)


@pytest.mark.slow
def test_a_receiver_whose_name_is_unknown_is_reported_through_the_other(run: Run, tmp_path: Path) -> None:
    """DNS fails: tried again and again, and after five times the other one is notified."""
    with receiving() as hook:
        sinks = ("type: webhook, name: gone, url: 'http://receiver.invalid/'", f"type: webhook, url: '{hook.url}'")
        with pushing(run, tmp_path, *sinks) as daemon:
            run.write(40)
            until(lambda: ("firing", "delivery-failing") in reported(hook), daemon.child)
            assert 'grpo_watch_delivery_queue_length{sink="gone"}' in daemon.get("/metrics")


ERRORS = [
    Answer(status=500),
    Answer(status=429, headers={"Retry-After": "0"}),
    Answer(status=302, headers={"Location": "http://127.0.0.1:1/elsewhere"}),
    Answer(raw=b"\x00\xffgarbage"),
    Answer(raw=b""),
]


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS, ids=["500", "429", "302", "garbage", "closed"])
def test_a_receiver_that_fails_first_gets_the_same_message_again(run: Run, tmp_path: Path, error: Answer) -> None:
    with receiving(error, Answer()) as hook, pushing(run, tmp_path, f"type: webhook, url: '{hook.url}'") as daemon:
        run.write(40)
        until(lambda: len(hook.sent) >= 2, daemon.child)
        first, second = (json.loads(sent.body)["id"] for sent in hook.sent[:2])
        assert first == second


@pytest.mark.slow
def test_a_daemon_that_ends_by_itself_delivers_first(run: Run, tmp_path: Path) -> None:
    """A batch job's epilogue: nothing is left for a next start that does not come."""
    with receiving(Answer(status=500), Answer(status=500), Answer()) as hook:
        sink = f"type: webhook, url: '{hook.url}', only_rules: [{KL}]"
        with pushing(run, tmp_path, sink, options=("--exit-when-done",)) as daemon:
            run.write(len(run.rows))
            assert daemon.ends() == 0
        assert reported(hook)[-1:] == [("firing", KL)]
        assert len(hook.sent) == 3


@pytest.mark.slow
def test_a_burst_of_rows(tmp_path: Path) -> None:
    """Written at once; each of the alerts in it is sent once, in order, with its end."""
    folder = tmp_path / "runs" / "burst"
    folder.mkdir(parents=True)
    log = folder / "logging.jsonl"
    log.write_text(row(1, 0.2))
    (tmp_path / "soak.yaml").write_text(
        "rules:\n  - {name: high, when: reward_mean > 0.5, for_steps: 0, min_observations: 1, keep_firing_steps: 0, "
        "severity: warning, summary: high}\n"
    )
    with receiving() as hook:
        settings = tmp_path / "grpo-watch.yaml"
        settings.write_text(
            f"rules: [soak.yaml]\nsinks:\n  - {{type: webhook, url: '{hook.url}', only_rules: [high]}}\n"
        )
        with watching(folder, state=tmp_path / "state", options=("--config", str(settings))) as daemon:
            until(lambda: daemon.get("/readyz") == "ready\n", daemon.child)
            rows = [row(step, 0.9 if step % 1_000 < 500 else 0.2) for step in range(2, BURST + 2)]
            with log.open("a") as file:
                file.write("".join(rows))
            changes = [step for step in range(2, BURST + 2) if step == 2 or step % 500 == 0]
            for number in range(len(changes)):
                until(lambda wanted=number + 1: len(hook.sent) >= wanted, daemon.child)
    documents = [json.loads(sent.body) for sent in hook.sent]
    assert [(each["status"], each["step"]) for each in documents] == [
        ("firing" if step % 1_000 < 500 else "resolved", step) for step in changes
    ]
    assert len({each["id"] for each in documents}) == len(changes)


def row(step: int, reward: float) -> str:
    values = {"loss": 0.1, "grad_norm": 1.0, "learning_rate": 1e-6, "reward": reward, "kl": 0.01}
    return json.dumps({**values, "global_step/max_steps": f"{step}/1000000"}) + "\n"


@pytest.mark.slow
def test_a_dead_receiver_is_reported_while_nothing_fires(tmp_path: Path) -> None:
    """A Pushgateway, an Alertmanager's heartbeat and a ping that nobody answers: before there is an alert to lose."""
    port = free_port()
    (tmp_path / "runs").mkdir()
    ping = secret_file(tmp_path / "ping", f"http://127.0.0.1:{port}/ping")
    sinks = [
        {"type": "alertmanager", "name": "pager", "url": f"http://127.0.0.1:{port}", "heartbeat": True},
        {"type": "pushgateway", "name": "gateway", "url": f"http://127.0.0.1:{port}"},
        {"type": "heartbeat", "name": "ping", "url_file": str(ping)},
    ]
    settings = tmp_path / "grpo-watch.yaml"
    settings.write_text(json.dumps({"sinks": sinks}))
    with watching(tmp_path / "runs", state=tmp_path / "state", options=("--config", str(settings))) as daemon:
        for sink in ("pager", "gateway", "ping"):
            until(lambda sink=sink: f"{sink} gets nothing: the connection is refused" in daemon.get("/api/v1/runs"))
            until(lambda sink=sink: f'grpo_watch_receiver_up{{sink="{sink}"}} 0.0' in daemon.get("/metrics"))
        until(lambda: daemon.said().count("a receiver gets nothing") == 3, daemon.child)
        status = subprocess.run(
            [
                *PROGRAM,
                "status",
                "--listen",
                daemon.url.removeprefix("http://"),
                "--state-dir",
                str(tmp_path / "state"),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "problem: pager gets nothing: the connection is refused" in status.stdout
