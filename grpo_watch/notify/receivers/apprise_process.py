"""Runs apprise in a process of its own, the only way to end a request whose answer drips in, and records the answers.

apprise itself only reports whether the HTTP status was a good one.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from grpo_watch.children.child import Child, ChildLostError, follow_parent
from grpo_watch.errors import ConfigError
from grpo_watch.extras import install

START_SECONDS, TOTAL_SECONDS = 120.0, 9.0
"""Until the process has read apprise and all its services, and for one message from then on."""
IDLE_SECONDS = 60.0
"""After so long without a message the process ends; the next message starts one."""
MAX_BODY = 65_536
"""Bytes of an answer that are read."""


@dataclass(frozen=True, slots=True)
class AppriseMessage:
    """What to send where; ``kind`` is apprise's name of a kind of message."""

    url: str
    title: str
    body: str
    kind: str


@dataclass(frozen=True, slots=True)
class AppriseAnswer:
    """What a service answered to one request."""

    status: int
    retry_after: str
    body: bytes


@dataclass(frozen=True, slots=True)
class AppriseResult:
    """What became of it: what apprise thinks, the answer, whether one is recorded; ``problem`` has no secret."""

    taken: bool = False
    answer: AppriseAnswer | None = None
    recorded: bool = True
    problem: str = ""


class AppriseProcess:
    """One process, started with the first message and killed when a message takes too long."""

    def __init__(self) -> None:
        self._child: Child | None = None

    def post(self, message: AppriseMessage) -> AppriseResult:
        """Send one message; bounded in time, never raises."""
        try:
            child = self._started()
            child.send(message)
            result: AppriseResult = child.receive(TOTAL_SECONDS)
        except TimeoutError:
            problem = "no answer in time"
        except ChildLostError as lost:
            problem = f"apprise's process was ended by {lost}"
        else:
            return result
        self.close()
        return AppriseResult(problem=problem)

    def close(self) -> None:
        """End the process at once."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.close()

    def _started(self) -> Child:
        """A process that is ready.

        Raises:
            ChildLostError, TimeoutError: there is none.
        """
        if self._child is None or not self._child.alive:
            self.close()
            self._child = Child(serve, name="apprise")
            self._child.receive(START_SECONDS)
        return self._child


def serve(pipe: Connection) -> None:
    """Post what comes until nothing did for a while; ignores Ctrl-C, and ends with the daemon."""
    follow_parent()
    os.environ["NETRC"] = os.devnull  # the client would add a password of ~/.netrc to what a service is sent
    keep_quiet()
    with suppress(ConfigError):
        service_of("json://localhost")  # the first address reads every service, slowly: what follows is bounded in time
    pipe.send("ready")
    with suppress(EOFError, OSError):
        while pipe.poll(IDLE_SECONDS):
            pipe.send(posted(pipe.recv()))


def posted(message: AppriseMessage) -> AppriseResult:
    """Send one message here and now."""
    from apprise import NotifyFormat, NotifyType  # noqa: PLC0415  an extra

    try:
        service = service_of(message.url)
        recorder = recorder_of(service[0])
        content = {"title": message.title, "body": message.body, "notify_type": NotifyType(message.kind)}
        if recorder is None:
            return AppriseResult(bool(service.notify(**content, body_format=NotifyFormat.TEXT)), recorded=False)
        with recorder.recording() as answers:
            taken = service.notify(**content, body_format=NotifyFormat.TEXT)
        return AppriseResult(bool(taken), answers[-1] if answers else None)
    except ConfigError as problem:
        return AppriseResult(problem=str(problem))
    except Exception as problem:  # noqa: BLE001  a plugin's mistake must not end the process, nor its text leak
        return AppriseResult(problem=f"apprise failed ({type(problem).__name__})")


class AnswerRecorder:
    """Stands where a plugin has ``requests``: hands everything on, and keeps the answers to one message."""

    _ASKS = frozenset({"get", "post", "put", "patch", "delete", "request"})

    def __init__(self, requests: Any) -> None:
        self._requests = requests
        self._answers: ContextVar[list[AppriseAnswer] | None] = ContextVar("answers", default=None)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._requests, name)
        if name not in self._ASKS:
            return found

        def asked(*given: Any, **named: Any) -> Any:
            answers = self._answers.get()
            if answers is None:
                return found(*given, **named)
            answer = found(*given, **{**named, "stream": True})
            body = _beginning(answer)
            answers.append(AppriseAnswer(answer.status_code, answer.headers.get("retry-after", ""), body))
            return answer

        return asked

    @contextmanager
    def recording(self) -> Iterator[list[AppriseAnswer]]:
        """The answers inside the ``with`` block, also those to threads that apprise starts there with its context."""
        answers: list[AppriseAnswer] = []
        before = self._answers.set(answers)
        try:
            yield answers
        finally:
            self._answers.reset(before)


def _beginning(answer: Any) -> bytes:
    """As much of the body as is read; the plugin finds that too. The status is the answer, also where the body ends."""
    body = b""
    with suppress(OSError):  # what requests raises
        for piece in answer.iter_content(8_192):
            body += piece[: MAX_BODY - len(body)]
            if len(body) >= MAX_BODY:
                break
    answer.close()
    answer._content, answer._content_consumed = body, True  # noqa: SLF001  there is no other way to hand it on
    return body


def recorder_of(plugin: object) -> AnswerRecorder | None:
    """The answer recorder in a plugin's module, put there once; None for a service that does not use ``requests``."""
    module = sys.modules[type(plugin).__module__]
    found = getattr(module, "requests", None)
    if found is None or isinstance(found, AnswerRecorder):
        return found
    recorder = AnswerRecorder(found)
    module.requests = recorder  # type: ignore[attr-defined]
    return recorder


def service_of(url: str) -> Any:
    """An apprise object with one service.

    Raises:
        ConfigError: apprise is not installed, or the URL is unsupported or incomplete.
    """
    try:
        import apprise  # noqa: PLC0415  an extra, and slow to import
    except ImportError:
        raise ConfigError(f"apprise is not installed: {install('apprise')}") from None
    asset = apprise.AppriseAsset(app_id="grpo-watch", secure_logging=True, async_mode=False, http_redirects=False)
    service = apprise.Apprise(asset=asset)
    if not service.add(url):
        raise ConfigError("unsupported or incomplete apprise URL")
    return service


def keep_quiet() -> None:
    """Its log lines, and those of the HTTP client under it, hold addresses, which are secrets."""
    for name in ("apprise", "urllib3"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
