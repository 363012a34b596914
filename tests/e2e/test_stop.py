"""SIGTERM in the middle of everything: the process ends by itself, whatever hangs, and the next start tells the rest.

No time is measured here: within how many seconds it leaves is a matter of its deadline, which has tests of its own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.dripping import dripping
from tests.support.high import Run, options, ready, reported, transitions_of
from tests.support.process import UNHURRIED, Process, changed, command_of, until, watching
from tests.support.receiving import Answer, receiving, secret_file

LEFT_BEHIND = "shutdown timed out"
CHECKPOINT = 10 * 2**30
"""Bytes of weights, of which the disk holds none: a file with a hole."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def terminate(daemon: Process) -> int:
    """The exit code after SIGTERM."""
    daemon.child.send_signal(signal.SIGTERM)
    return daemon.ends()


def children(daemon: Process) -> list[int]:
    """The processes that multiprocessing started for work."""
    found: list[int] = []
    for each in Path(f"/proc/{daemon.child.pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended meanwhile
            found.extend(map(int, each.read_text().split()))
    return [pid for pid in found if "spawn_main" in command_of(pid)]


def opened(pid: int) -> set[str]:
    """The files that a process has open."""
    found = set()
    with suppress(OSError):
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(str(handle.readlink()))
    return found


@contextmanager
def watching_while_apprise_drips(run: Run, folder: Path) -> Iterator[Process]:
    """A daemon that has asked a service behind apprise, whose answer never ends."""
    asked = threading.Event()
    with dripping(b"X", asked) as url:
        file = secret_file(folder / "service", f"json://{url.removeprefix('http://')}/")
        given = transitions_of(folder, f"type: apprise, url_file: '{file}'")
        waiting = changed(notify__receivers__apprise__TOTAL_SECONDS=200.0)  # what ends it is the stop
        with watching(run.path, state=folder / "state", options=given, program=waiting) as daemon:
            ready(daemon)
            run.write(0.9)
            until(asked.is_set, daemon.child)
            yield daemon


@pytest.mark.slow
def test_a_stop_does_not_wait_for_a_receiver_that_hangs(run: Run, tmp_path: Path) -> None:
    """A message is under way; the same one goes after the next start."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hung = transitions_of(
            tmp_path, f"type: webhook, name: hook, url: 'http://127.0.0.1:{listener.getsockname()[1]}/'"
        )
        with watching(run.path, state=tmp_path / "state", options=hung) as daemon:
            ready(daemon)
            run.write(0.9)
            connection, _ = listener.accept()
            assert terminate(daemon) == 0
            connection.close()
    with receiving() as hook, watching(run.path, state=tmp_path / "state", options=options(tmp_path, hook)) as daemon:
        until(lambda: reported(hook), daemon.child)
        assert reported(hook) == [("firing", 2)]


@pytest.mark.slow
def test_a_stop_does_not_wait_for_an_apprise_service_that_drips(run: Run, tmp_path: Path) -> None:
    with watching_while_apprise_drips(run, tmp_path) as daemon:
        assert terminate(daemon) == 0


@pytest.mark.slow
def test_a_stop_does_not_wait_for_a_process_that_no_signal_ends(run: Run, tmp_path: Path) -> None:
    """apprise's process is frozen: Python would wait for it for ever at its exit. It ends once it can."""
    with watching_while_apprise_drips(run, tmp_path) as daemon:
        (child,) = children(daemon)
        os.kill(child, signal.SIGSTOP)
        try:
            assert terminate(daemon) == 0
            assert LEFT_BEHIND in daemon.said()
        finally:
            os.kill(child, signal.SIGCONT)
        until(lambda: not command_of(child))


@pytest.mark.slow
def test_a_stop_does_not_wait_for_ten_gigabytes_of_weights(run: Run, tmp_path: Path) -> None:
    """They are read at 1 MB per second, for hours; neither the daemon nor its worker is there after SIGTERM."""
    weights = run.path / "checkpoint-1" / "model.safetensors"
    weights.parent.mkdir()
    header = {"layer": {"dtype": "F32", "shape": [CHECKPOINT // 4], "data_offsets": [0, CHECKPOINT]}}
    head = json.dumps(header).encode()
    with weights.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.truncate(file.tell() + CHECKPOINT)
    (weights.parent / "trainer_state.json").write_text('{"global_step": 1, "log_history": []}')
    slow = ("--io-limit", "1MB")
    with watching(run.path, state=tmp_path / "state", options=slow, program=UNHURRIED) as daemon:
        child = until(
            lambda: next((pid for pid in children(daemon) if str(weights) in opened(pid)), None), daemon.child
        )
        assert terminate(daemon) == 0
        assert LEFT_BEHIND not in daemon.said()
        until(lambda: not command_of(child))


@pytest.mark.slow
def test_a_stop_does_not_wait_for_a_log_that_is_read_for_the_first_time(run: Run, tmp_path: Path) -> None:
    """Its rows are being counted at the signal, and the run was not read once when the daemon is gone."""
    run.write(*[0.2] * 100_000)
    with watching(run.path, state=tmp_path / "state") as daemon:
        until(lambda: re.search(r"^grpo_watch_records_total\{.*\} [1-9]", daemon.get("/metrics"), re.MULTILINE))
        assert terminate(daemon) == 0
    with closing(sqlite3.connect(tmp_path / "state" / "state.db")) as state:
        assert state.execute("SELECT looked FROM runs").fetchall() == [(0,)]


@pytest.mark.slow
def test_a_stop_in_the_middle_of_everything(run: Run, tmp_path: Path) -> None:
    """Thousands of rows are read while the receiver fails now and then: a clean end, and nothing lost."""
    pattern = [0.2] * 250 + [0.9] * 250
    fails = [Answer(status=500), Answer(), Answer(raw=b""), Answer()]
    with receiving(*fails) as hook:
        given = options(tmp_path, hook)
        with watching(run.path, state=tmp_path / "state", options=given) as daemon:
            ready(daemon)
            run.write(*pattern * 20)
            until(lambda: hook.sent, daemon.child)
            assert terminate(daemon) == 0
        with watching(run.path, state=tmp_path / "state", options=given) as daemon:
            until(lambda: len(reported(hook)) >= 39, daemon.child)
    assert reported(hook) == [("resolved" if n % 2 else "firing", 252 + 250 * n) for n in range(39)]
