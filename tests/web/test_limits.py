"""Connections are bounded where they are accepted: who opens many keeps nobody else from being answered."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from grpo_watch.web.limits import MAX_CONNECTIONS, SlowClientLimit
from tests.support.process import PATIENCE as LONG
from tests.support.serving import web
from tests.web.test_app import Fake

MANY = 200
FOR_MACHINES = ("/healthz", "/readyz", "/metrics")


def connected(place: str) -> socket.socket:
    host, _, port = place.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=LONG)


def accepted(place: str) -> int:
    """Connections that the server holds, as the kernel counts them; one that is not accepted yet has no inode."""
    port = f":{int(place.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(port) and row[2][-4:] != "0000" and row[9] != "0" for row in rows)


@contextmanager
def opened(place: str, count: int, first: bytes = b"", buffer: int = 0) -> Iterator[list[socket.socket]]:
    """So many connections, each of which sends ``first`` and reads nothing."""
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            made.append(stack.enter_context(connected(place)))
            if buffer:
                made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            with suppress(ConnectionError):
                made[-1].sendall(first)
        yield made


def ended(connection: socket.socket) -> bool:
    """Whether the server has closed it, now."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [b"", b"GET / HTTP/1.1\r\nHost: local"],
    ids=["silent", "half a request"],
)
def test_slow_clients_keep_no_machine_from_being_answered(first: bytes) -> None:
    """Twice as many as there are places, from the same address as those who are to be answered."""
    with web(Fake()) as place, opened(place, MANY, first):
        for path in FOR_MACHINES * 3:
            answer = httpx.get(f"http://{place}{path}")
            assert (path, answer.status_code) == (path, 200)


@pytest.mark.slow
def test_clients_that_do_not_read_keep_no_machine_from_being_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their requests are under way, and stay so until the patience is over."""
    monkeypatch.setattr(SlowClientLimit, "patience", LONG)
    asked = b"GET /static/app.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40
    with web(Fake()) as place, opened(place, MANY, asked, buffer=1):
        assert [httpx.get(f"http://{place}{path}").status_code for path in FOR_MACHINES] == [200] * 3


def test_no_more_than_the_promised_connections_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are ended, the newest stay."""
    monkeypatch.setattr(SlowClientLimit, "patience", LONG)
    with web(Fake()) as place, opened(place, MANY) as silent:
        assert httpx.get(f"http://{place}/healthz").status_code == 200  # all before it were accepted
        assert MAX_CONNECTIONS - 1 <= accepted(place) <= MAX_CONNECTIONS
        over = [ended(connection) for connection in silent]
        gone = MANY - MAX_CONNECTIONS + 1  # one more for the request above
        assert over == [True] * gone + [False] * (MANY - gone)
