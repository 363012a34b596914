"""Connections are bounded where they are accepted: who opens many keeps nobody else from being answered."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Semaphore

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from grpo_watch.web import limits
from grpo_watch.web.limits import MAX_CONNECTIONS, SlowClientLimit
from grpo_watch.web.server import Server, address, bind
from tests.support.process import PATIENCE as LONG
from tests.support.process import until
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


def answered(connection: socket.socket) -> bytes:
    """All that the server sends until it ends the connection."""
    answer = b""
    with suppress(ConnectionError):
        while piece := connection.recv(1 << 20):
            answer += piece
    return answer


PIPELINED = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200


def test_clients_that_pipeline_get_one_answer_each() -> None:
    """Sixty of them ask for 12,000 pages of metrics; their connections end, others are answered."""
    watch = Fake()
    asked = []
    snapshot = watch.snapshot()
    watch.snapshot = lambda: asked.append(1) or snapshot  # type: ignore[method-assign,func-returns-value]
    with web(watch) as place, opened(place, 60, PIPELINED) as clients:
        assert httpx.get(f"http://{place}/healthz").text == "ok\n"
        answers = [answered(client) for client in clients]
    assert {answer.count(b"HTTP/1.1 200") for answer in answers} == {1}
    assert all(b"connection: close" in answer.lower() for answer in answers)
    assert len(asked) == 60


def test_health_is_answered_while_metrics_are_made() -> None:
    """Sixty clients wait for one page that takes long; who asks for health waits for none of them."""
    watch, begun, go = Fake(), Semaphore(0), Event()
    snapshot = watch.snapshot()
    watch.snapshot = lambda: begun.release() or (go.wait(LONG) and snapshot)  # type: ignore[method-assign,func-returns-value]
    with web(watch) as place, opened(place, 60, PIPELINED) as clients:
        assert begun.acquire(timeout=LONG)
        assert [httpx.get(f"http://{place}{path}").status_code for path in FOR_MACHINES[:2]] == [200] * 2
        assert not begun.acquire(blocking=False)  # the others are not begun
        go.set()
        assert {answered(client).count(b"HTTP/1.1 200") for client in clients} == {1}


def test_a_client_that_waits_for_a_slow_daemon_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is looked at three times between its request and its answer."""
    looked, look, looks = Semaphore(0), SlowClientLimit._look, iter(range(3))

    def looking(connection: SlowClientLimit) -> None:
        if connection.cycle is None:  # it has not asked yet
            connection._look_again = connection.loop.call_later(0.02, connection._look)
        elif next(looks, None) is not None:
            look(connection)
            looked.release()

    monkeypatch.setattr(SlowClientLimit, "patience", 0.02)
    monkeypatch.setattr(SlowClientLimit, "_look", looking)
    watch = Fake()
    snapshot = watch.snapshot()
    watch.snapshot = lambda: all(looked.acquire(timeout=LONG) for _ in range(3)) and snapshot  # type: ignore[method-assign,return-value]
    with web(watch) as place:
        assert httpx.get(f"http://{place}/metrics", timeout=LONG).status_code == 200


def test_a_connection_is_asked_a_hundred_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_REQUESTS", 3)
    with web(Fake()) as place, httpx.Client(base_url=f"http://{place}") as client:
        closed = [client.get("/healthz").headers.get("connection") for _ in range(7)]
    assert closed == [None, None, "close", None, None, "close", None]


LARGE = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_answers_that_nobody_takes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four clients ask for 16 MB and read nothing, where as much may wait: the newest is answered in full."""
    monkeypatch.setattr(limits, "MOST_UNTAKEN", 16_000_000)
    monkeypatch.setattr(SlowClientLimit, "patience", LONG)
    size = 16_000_000  # of which the kernel takes a few

    async def large(request: Request) -> Response:
        return Response(b"x" * (size if request.url.path == "/large" else 1))

    listener = bind("127.0.0.1", 0)
    server = Server(Starlette(routes=[Route("/{name}", large)]), listener)
    server.start()
    try:
        with opened(address(listener), 3, LARGE, buffer=1), connected(address(listener)) as newest:
            newest.sendall(LARGE)
            assert httpx.get(f"http://{address(listener)}/small").text == "x"  # the four were asked before it
            taken = 0
            while taken < size and (piece := newest.recv(1 << 20)):
                taken += len(piece)
            assert taken >= size
            assert until(lambda: accepted(address(listener)) == 1)
    finally:
        server.stop()


def test_no_more_than_the_promised_connections_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are ended, the newest stay."""
    monkeypatch.setattr(SlowClientLimit, "patience", LONG)
    with web(Fake()) as place, opened(place, MANY) as silent:
        assert httpx.get(f"http://{place}/healthz").status_code == 200  # all before it were accepted
        assert MAX_CONNECTIONS - 1 <= accepted(place) <= MAX_CONNECTIONS
        over = [ended(connection) for connection in silent]
        gone = MANY - MAX_CONNECTIONS + 1  # one more for the request above
        assert over == [True] * gone + [False] * (MANY - gone)
