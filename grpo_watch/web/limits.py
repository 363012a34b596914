"""Limits the cost of a connection: no bodies, small heads, one request at a time, answers that are read."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 128
"""Most connections at once, if descriptors are plenty. A further one replaces the oldest."""
BACKLOG = 64
"""Connections completed before they are accepted; asyncio accepts at most this many in one turn."""
_SHARE = 16
"""One in so many of the process's descriptors is for connections, and as many for those just accepted."""
MOST_REQUESTS = 100
"""Most requests of one connection: an open page makes so many in 40 s, a Prometheus in 25 minutes."""
MOST_UNTAKEN = 32 * 1024 * 1024
"""Most unread bytes of all answers together: a thousand runs' ``/metrics`` are about 10 MB."""
PATIENCE = 10.0
"""Seconds in which a connection must have sent a new request and read its answer."""
MAX_HEAD = 16_384
"""Most bytes of a request's line and headers."""
_REFUSED = b"requests have no body here\n"
_TOO_LONG = b"the request's line and headers are too long\n"
_PLAIN = ((b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close"))


def room(most: int) -> int:
    """``most``, or fewer if the process may open few descriptors: logs and receivers need theirs."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft // _SHARE))


class SlowClientLimit(H11Protocol):
    """Ends a connection that drips its request or does not read its answer; answers non-HTTP with our headers.

    A client that sends a request before it has the last answer (pipelining, which neither browsers nor Prometheus do)
    gets that answer and no more: all clients share one queue, in which each has one place.

    Args:
        connections: the server's connections, the oldest first.
        options: uvicorn's options.
    """

    patience = PATIENCE

    def __init__(self, connections: dict[SlowClientLimit, None], **options: Any) -> None:
        super().__init__(**options)
        self._open = connections
        self._room, self._requests = room(MAX_CONNECTIONS), 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the watch; if there are too many connections, close the oldest, so that silent ones keep nobody out."""
        super().connection_made(transport)
        self._open[self] = None
        if len(self._open) > self._room:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._seen: Any = None
        self._look_again = self.loop.call_later(self.patience, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the watch."""
        self._open.pop(self, None)
        self._look_again.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Begin a request that has arrived; marks its answer if it is the connection's last."""
        before = self.cycle
        super().handle_events()
        cycle: Any = self.cycle  # none before the first request
        if cycle is None or cycle.response_complete:
            return
        self._requests += cycle is not before
        pipelined = self.conn.their_state is h11.DONE and self.conn.trailing_data[0]
        if (pipelined or self._requests >= MOST_REQUESTS) and CLOSE_HEADER not in self.headers:
            self.headers.append(CLOSE_HEADER)  # as if the client had asked for it
            cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """If too many bytes wait for clients that don't read, close the connection that has waited longest."""
        super().on_response_complete()
        while sum(map(_untaken, self._open)) > MOST_UNTAKEN:
            slow = next(filter(_untaken, self._open))
            del self._open[slow]
            slow.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer input that is not HTTP, with the headers of every answer (uvicorn leaves them out here)."""
        headers = [*self.server_state.default_headers, *_PLAIN]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=msg.encode()), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def _look(self) -> None:
        """Close the connection if it has not finished or begun a request since the last call.

        Idle connections are closed earlier by uvicorn itself. An answer that is not begun is waited for: the daemon is
        slow, not the client.
        """
        if self.cycle is self._seen and (self.cycle is None or self.cycle.response_started):
            self.transport.abort()
            return
        self._seen = self.cycle
        self._look_again = self.loop.call_later(self.patience, self._look)


def _untaken(connection: SlowClientLimit) -> int:
    return connection.transport.get_write_buffer_size()


class BodyLimit:
    """Refuses requests with a body, or with too long a head, which h11 only bounds while it is incomplete.

    Args:
        app: the application for all other requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and _head(scope) > MAX_HEAD:
            await _refuse(send, 431, _TOO_LONG)
        elif scope["type"] == "http" and _has_body(scope):
            await _refuse(send, 413, _REFUSED)
        else:
            await self._app(scope, receive, send)


def _has_body(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0"):
            return True
    return False


def _head(scope: Scope) -> int:
    line = len(scope["raw_path"]) + len(scope["query_string"])
    return line + sum(len(name) + len(value) for name, value in scope["headers"])


async def _refuse(send: Send, status: int, body: bytes) -> None:
    length = str(len(body)).encode()
    headers = [*_PLAIN, (b"content-length", length)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
