"""The real daemon under a service manager: ready, what it sees, alive, stopping."""

from __future__ import annotations

import re
import signal
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.bundles import unpack
from tests.support.process import until, watching
from tests.support.short_path import short_folder

FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"
FIRES = re.compile(r"STATUS=1 runs, [1-9][0-9]* alerts fire")


@pytest.mark.slow
def test_from_ready_to_stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three signs of life, the frozen run's alerts, a clean stop."""
    heard: list[str] = []
    with short_folder() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        manager.setblocking(False)

        def listen() -> list[str]:
            with suppress(BlockingIOError):
                heard.extend(manager.recv(4096).decode().splitlines())
            return heard

        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        with watching(unpack(FROZEN, tmp_path / "runs"), state=tmp_path / "state") as daemon:
            until(lambda: listen().count("WATCHDOG=1") >= 3, daemon.child)
            until(lambda: any(FIRES.fullmatch(line) for line in listen()), daemon.child)
            daemon.child.send_signal(signal.SIGTERM)
            assert daemon.ends() == 0
        until(lambda: "STATUS=stopping" in listen())
    assert heard[0] == "READY=1"
    assert heard[-2:] == ["STOPPING=1", "STATUS=stopping"]
