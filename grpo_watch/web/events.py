"""Sends server-sent events to open pages about changed runs; bounded in number and time, over when the server stops."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable

import anyio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from grpo_watch.web.change_counter import ChangeCounter

STREAMS = 32
"""At once, of 128 connections; further pages are answered 503 and ask every few seconds instead."""
LOOK_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
LIFE_SECONDS = 600.0
"""A stream ends after that, and the browser opens another one: no client holds a place permanently."""
RETRY_MILLISECONDS = 3_000
FROM_ELSEWHERE = frozenset({"cross-site", "same-site"})


class Events:
    """The endpoint.

    Args:
        pulse: what notices changes.
        timer: monotonic seconds.
        stopping: whether the server is about to stop.
    """

    def __init__(self, pulse: ChangeCounter, timer: Callable[[], float], stopping: Callable[[], bool]) -> None:
        self._pulse, self._timer, self._stopping = pulse, timer, stopping
        self._open = 0

    async def endpoint(self, request: Request) -> Response:
        """A stream of ``change`` events, each with the slugs of the runs that changed (null: any may have).

        An event's id continues where ``Last-Event-ID`` left off: what was missed in between is sent at once.
        """
        if request.headers.get("sec-fetch-site") in FROM_ELSEWHERE:
            return PlainTextResponse("only the status page may subscribe to events\n", 403)
        if self._open >= STREAMS:
            return PlainTextResponse("too many open status pages; try again later\n", 503, {"Retry-After": "10"})
        request.state.stream = True  # see ``limits.SlowClientLimit``
        stream = self._stream(request.headers.get("last-event-id", ""))
        return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _stream(self, mark: str) -> AsyncIterator[str]:
        self._open += 1
        try:
            yield f"retry: {RETRY_MILLISECONDS}\n\n"
            end = self._timer() + LIFE_SECONDS
            quiet_until = 0.0
            while self._timer() < end and not self._stopping():
                newest = self._pulse.mark()
                if newest != mark:
                    yield _event(newest, self._pulse.since(mark))
                    mark = newest
                elif self._timer() >= quiet_until:
                    yield ": still here\n\n"
                else:
                    await anyio.sleep(LOOK_SECONDS)
                    continue
                quiet_until = self._timer() + HEARTBEAT_SECONDS
        finally:
            self._open -= 1


def _event(mark: str, slugs: frozenset[str] | None) -> str:
    data = json.dumps({"runs": None if slugs is None else sorted(slugs)})
    return f"event: change\nid: {mark}\ndata: {data}\n\n"
