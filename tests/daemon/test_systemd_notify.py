"""What the service manager hears of a daemon, on a real socket of the kind that systemd opens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_watch.daemon.service import SystemdNotifier, status_of
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from tests.support.short_path import short_folder

PID = 42


class Clock:
    """A timer that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Heard:
    """The end of the socket at which systemd listens."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)

    def __call__(self) -> list[str]:
        """The lines of the oldest message that was not yet read; none where there is no message."""
        try:
            return self.socket.recv(4096).decode().splitlines()
        except BlockingIOError:
            return []


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


@pytest.fixture
def heard(folder: Path) -> Iterator[Heard]:
    listening = Heard(str(folder / "notify"))
    yield listening
    listening.socket.close()


def reported(folder: Path, clock: Clock, **variables: str) -> SystemdNotifier:
    return SystemdNotifier({"NOTIFY_SOCKET": str(folder / "notify"), **variables}, PID, clock)


def test_ready_once_then_only_what_is_new(folder: Path, heard: Heard) -> None:
    manager = reported(folder, Clock())
    manager.notify(DaemonSnapshot(), ready=False, late=None)
    assert heard() == ["READY=1", "STATUS=reading; 0 runs, 0 alerts fire"]
    manager.notify(DaemonSnapshot(), ready=False, late=None)
    assert heard() == []
    manager.notify(DaemonSnapshot(), ready=True, late=None)
    assert heard() == ["STATUS=0 runs, 0 alerts fire"]
    manager.stopping()
    assert heard() == ["STOPPING=1", "STATUS=stopping"]


def test_a_sign_of_life_at_half_the_watchdogs_time_while_the_engine_turns(folder: Path, heard: Heard) -> None:
    """30 s: one at once, the next after 15 s; none while the engine is late, one as soon as it is not."""
    clock = Clock()
    manager = reported(folder, clock, WATCHDOG_USEC="30000000", WATCHDOG_PID=str(PID))
    manager.notify(DaemonSnapshot(), ready=True, late=None)
    assert heard()[-1] == "WATCHDOG=1"
    clock.now += 14.9
    manager.notify(DaemonSnapshot(), ready=True, late=None)
    assert heard() == []
    clock.now += 0.1
    manager.notify(DaemonSnapshot(), ready=True, late=None)
    assert heard() == ["WATCHDOG=1"]
    clock.now += 100
    manager.notify(DaemonSnapshot(), ready=True, late=11.0)
    assert heard() == ["STATUS=the engine is 11 s late"]
    manager.notify(DaemonSnapshot(), ready=True, late=None)
    assert heard() == ["STATUS=0 runs, 0 alerts fire", "WATCHDOG=1"]


@pytest.mark.parametrize(
    "variables",
    [{}, {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "-1"}],
    ids=["none", "another process's", "no number", "negative"],
)
def test_no_sign_of_life_without_a_watchdog_of_its_own(folder: Path, heard: Heard, variables: dict[str, str]) -> None:
    reported(folder, Clock(), **variables).notify(DaemonSnapshot(), ready=True, late=None)
    assert heard() == ["READY=1", "STATUS=0 runs, 0 alerts fire"]


def test_an_abstract_socket(folder: Path) -> None:
    """``@name`` in the variable is a name that begins with NUL."""
    name = f"grpo-watch-{folder}"
    listening = Heard(f"\0{name}")
    with listening.socket:
        SystemdNotifier({"NOTIFY_SOCKET": f"@{name}"}, PID, Clock()).stopping()
        assert listening() == ["STOPPING=1", "STATUS=stopping"]


def test_a_manager_that_is_gone_or_deaf_hurts_nothing(folder: Path, heard: Heard) -> None:
    """The socket's queue is filled until the kernel takes no more; then it is removed."""
    manager = reported(folder, Clock())
    for _ in range(1_000):
        manager.stopping()
    (folder / "notify").unlink()
    manager.notify(DaemonSnapshot(), ready=True, late=None)
    SystemdNotifier({}, PID, Clock()).notify(DaemonSnapshot(), ready=True, late=None)
    assert heard() == ["STOPPING=1", "STATUS=stopping"]


def test_numbers_only() -> None:
    assert status_of(DaemonSnapshot(), ready=True, late=12.6) == "the engine is 13 s late"
