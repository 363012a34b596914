"""A real HTTP server on this machine that plays a receiver: keeps what it was sent, answers what a test tells it."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from grpo_watch.engine.records import Scalar
from grpo_watch.store.messages import Notification


@dataclass(frozen=True)
class Sent:
    """One request; ``at`` is when it was there (monotonic seconds)."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float


@dataclass
class Answer:
    """What to answer, after so many seconds; ``raw`` replaces the whole answer, byte for byte."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    raw: bytes | None = None
    after: float = 0.0


Answering = Answer | Callable[[Sent], Answer]


class Receiving:
    """``answers``, or what they make of the request, are given one after the other, the last one again and again."""

    def __init__(self, answers: Sequence[Answering] = (Answer(),)) -> None:
        self.answers = list(answers)
        self.sent: list[Sent] = []
        self.came = threading.Condition()
        self.url = ""
        self.over = threading.Event()

    def take(self, handler: BaseHTTPRequestHandler) -> Answer:
        length = int(handler.headers.get("content-length") or 0)
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self.came:
            body = handler.rfile.read(length)
            request = Sent(handler.command, handler.path, headers, body, time.monotonic())
            self.sent.append(request)
            self.came.notify_all()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer if isinstance(answer, Answer) else answer(request)


@contextmanager
def receiving(*answers: Answering, tls: ssl.SSLContext | None = None, port: int = 0) -> Iterator[Receiving]:
    """A server on this port of the loopback address, or on a free one."""
    state = Receiving(answers or (Answer(),))

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            given = state.take(self)
            if given.after:
                state.over.wait(given.after)
            if given.raw is not None:
                self.wfile.write(given.raw)
                self.close_connection = True
                return
            self.send_response(given.status)
            for name, value in {"Content-Length": str(len(given.body)), **given.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(given.body)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_CONNECT = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            pass  # a client that gave up is what some tests are about

    server = Quiet(("127.0.0.1", port), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    state.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def a_notification(**changed: Any) -> Notification:
    """A frozen run's alert; times are of November 2026."""
    evidence: dict[str, Scalar] = {"kl_reference": 0.0, "reward_zero_std_ratio": 0.125}
    return Notification(
        **{
            "id": "f00d",
            "status": "firing",
            "headline": "Not learning since step 2 (8 steps)",
            "run": "v0-run",
            "attempt": 1,
            "rule": "kl-stuck-at-zero",
            "key": "",
            "severity": "critical",
            "step": 10,
            "first_step": 2,
            "max_steps": 80,
            "summary": "KL to the reference is exactly 0.",
            "message": "KL has been exactly 0 for 9 steps although rewards differ.",
            "evidence": evidence,
            "hint": "Stop the run.",
            "cause": "The optimizer does not hold the model's parameters.",
            "caused_by": None,
            "started": 1_795_000_000.0,
            "ended": None,
            "at": 1_795_000_001.0,
            "labels": {"team": "math"},
            "page": "http://127.0.0.1:9853/",
            "runbook": "grpo-watch explain kl-stuck-at-zero",
            "series": {"kl_reference": (0.0, 0.0, 0.0), "reward_mean": (0.1, 0.2, 0.4, 0.8)},
            **changed,
        }
    )


def secret_file(path: Path, content: str) -> Path:
    """A file that only its owner can read."""
    path.write_text(content)
    path.chmod(0o600)
    return path
