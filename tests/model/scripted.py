"""A receiver whose answers are written beforehand: the real webhook and HTTP client over a wire that a test holds."""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import urllib3
from urllib3.exceptions import NewConnectionError, ProtocolError, ReadTimeoutError

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import WebhookSink
from grpo_watch.notify.receiver import ReceiverContext
from grpo_watch.notify.receivers.http_client import HttpClient
from grpo_watch.notify.receivers.webhook import WebhookReceiver

SINK = converted(WebhookSink, {"type": "webhook", "url": "http://receiver.invalid/"})
ANSWERS = ("200", "200", "200", "500", "429", "302", "400", "refused", "timeout", "half-closed", "garbled", "killed")
"""What may become of a request; of ``timeout``, ``half-closed`` and ``killed`` the receiver has got the message."""
ASKED_SECONDS = 30
"""``Retry-After`` of the 429."""


class KilledError(BaseException):
    """Stands for ``kill -9``: nothing may catch it."""


@dataclass
class Wire:
    """What reached one receiver: messages in the order of their first arrival, and those that it refused.

    ``forgotten`` are ids that the sender does not know any more, and may use for something else.
    """

    name: str
    clock: Callable[[], float]
    answers: deque[str] = field(default_factory=deque)
    seen: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    at: dict[str, float] = field(default_factory=dict)
    refused: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    messages: int = 0

    def __post_init__(self) -> None:
        self._client = HttpClient(None)
        self._client._sent = self._take

    def receiver(self) -> WebhookReceiver:
        """A new daemon's end of the wire."""
        made = WebhookReceiver(SINK, self.name, ReceiverContext(self.clock))
        made._http._client = self._client
        return made

    def _take(
        self, _method: str, url: str, body: bytes, _headers: Mapping[str, str], _note: Callable[[socket.socket], None]
    ) -> urllib3.BaseHTTPResponse:
        answer = self.answers.popleft() if self.answers else "200"
        document = json.loads(body)
        pool = urllib3.connection_from_url(url)
        if answer in {"200", "timeout", "half-closed", "killed"}:
            self._note(document)
        if answer == "400" and not document.get("parts"):
            self.refused[document["id"]] = document
        if answer == "killed":
            raise KilledError
        if answer == "refused":
            raise NewConnectionError(pool, "refused") from ConnectionRefusedError()
        if answer == "timeout":
            raise ReadTimeoutError(pool, url, "silent")
        if answer in {"half-closed", "garbled"}:
            raise ProtocolError("closed")
        headers = {"429": {"Retry-After": str(ASKED_SECONDS)}, "302": {"Location": "http://elsewhere.invalid/"}}
        found = headers.get(answer, {})
        return urllib3.HTTPResponse(BytesIO(b"ok"), status=int(answer), headers=found, preload_content=False)

    def _note(self, document: Mapping[str, Any]) -> None:
        self.messages += 1
        for part in document.get("parts") or (document,):
            before = self.seen.setdefault(part["id"], part)
            self.at.setdefault(part["id"], self.clock())
            for field_ in ("run", "rule", "status", "step", "severity"):
                assert before[field_] == part[field_] or part["id"] in self.forgotten, "one id, two events"
