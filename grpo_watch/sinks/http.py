"""Turns a request to a receiver into an outcome: bounded in time and size, no redirects, no secret in what is said."""

from __future__ import annotations

import math
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import certifi
import httpx

from grpo_watch import __version__
from grpo_watch.errors import ConfigError
from grpo_watch.sinks.notification import Outcome, Result

CONNECT_SECONDS, ANSWER_SECONDS, TOTAL_SECONDS = 3.0, 5.0, 9.0
MAX_ANSWER = 65_536
"""Bytes of an answer that are read."""
MAX_RETRY_AFTER = 900.0
"""Seconds: a receiver can't silence alerts for longer by what it answers."""

RETRIED = frozenset({401, 403, 404, 407, 408, 409, 421, 423, 425, 429})
"""Refusals of clients that pass when somebody mends a password, an address or a load; every other 4xx is about the
message itself, and sending it again changes nothing."""
SERVER_ERROR = 500
NEVER_SERVED = frozenset({501, 505})
REDIRECTS = range(300, 400)
ACCEPTED = range(200, 300)
_WORD = re.compile(r"[a-z_]{1,40}")


class Secret(Protocol):
    """Where a secret is read from."""

    def read(self) -> str:
        """The secret; raises ``ConfigError``."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a receiver is reached: headers whose values are secrets, and authorities to trust instead of the system's."""

    headers: Mapping[str, Secret]
    ca_file: Path | None = None


def outcome_of(status: int, retry_after: float | None = None, said: str = "") -> Outcome:
    """The table of outcomes: what an HTTP status means for the message.

    2xx is delivered. Redirects are not followed, but what redirects today (a login page, maintenance) may accept
    tomorrow; the same holds for ``RETRIED`` and for errors of the server.
    """
    told = f"HTTP {status}{f' {said}' if said else ''}"
    if status in ACCEPTED:
        return Outcome(Result.DELIVERED, told, status=status)
    if status in REDIRECTS:
        return Outcome(Result.RETRY, f"{told}: redirects are not followed, give the final address", status=status)
    if status in RETRIED or (status >= SERVER_ERROR and status not in NEVER_SERVED):
        return Outcome(Result.RETRY, told, retry_after, status)
    return Outcome(Result.REFUSED, told, status=status)


class Http:
    """One receiver's HTTP side.

    Args:
        access: headers and authorities.
        clock: Unix seconds, for a ``Retry-After`` that is a date.
    """

    def __init__(self, access: Access, clock: Callable[[], float]) -> None:
        self._access, self._clock = access, clock
        self._client: httpx.Client | None = None

    def send(self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Outcome:
        """Ask once; whatever goes wrong is an outcome."""
        try:
            secret = {name: file.read() for name, file in self._access.headers.items()}
            sent = {"User-Agent": f"grpo-watch/{__version__}", **(headers or {}), **secret}
            return self._asked(method, url, body, sent)
        except ConfigError as problem:
            return Outcome(Result.RETRY, str(problem))
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as problem:
            return Outcome(Result.RETRY, _words(problem))

    def close(self) -> None:
        """Free the connections."""
        if self._client is not None:
            self._client.close()

    def _asked(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Outcome:
        if self._client is None:
            self._client = _client(self._access.ca_file)
        with (
            _deadline() as trace,
            self._client.stream(method, url, content=body, headers=headers, extensions={"trace": trace}) as answer,
        ):
            wait = _seconds(answer.headers.get("retry-after", ""), self._clock())
            return outcome_of(answer.status_code, wait, _beginning(answer))


def _client(ca_file: Path | None) -> httpx.Client:
    """A client that keeps no connection, so that each request's deadline is that of its own connection."""
    return httpx.Client(
        verify=_trust(ca_file),
        timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
        limits=httpx.Limits(max_keepalive_connections=0),
        follow_redirects=False,
        trust_env=True,
    )


@lru_cache(maxsize=8)
def _trust(ca_file: Path | None) -> ssl.SSLContext:
    """The system's authorities and those that came with the client, or only the given ones."""
    if ca_file is not None:
        return ssl.create_default_context(cafile=str(ca_file))
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


@contextmanager
def _deadline() -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
    """Ends a request after ``TOTAL_SECONDS`` however slowly its answer drips; gives what the client tells its steps."""
    sockets: list[socket.socket] = []

    def note(step: str, info: Mapping[str, Any]) -> None:
        if step.endswith("connect_tcp.complete"):
            opened = info["return_value"].get_extra_info("socket")
            sockets.append(opened.dup())

    def end() -> None:
        for opened in sockets:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(TOTAL_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield note
    finally:
        timer.cancel()
        for opened in sockets:
            opened.close()


def _beginning(answer: httpx.Response) -> str:
    """A one-word reason (``invalid_payload``); anything longer could repeat the secrets that were sent.

    The status is the answer: a body that breaks off changes nothing.
    """
    read = b""
    with suppress(httpx.HTTPError):
        for piece in answer.iter_raw():
            read += piece[: MAX_ANSWER - len(read)]
            if len(read) >= MAX_ANSWER:
                break
    word = read[:64].decode("ascii", "replace").strip()
    return word if _WORD.fullmatch(word) else ""


def _seconds(header: str, now: float) -> float | None:
    """``Retry-After`` as seconds from now, bounded; None when there is none or it makes no sense."""
    try:
        wait = float(header)
    except ValueError:
        try:
            moment = parsedate_to_datetime(header)
        except (ValueError, TypeError, IndexError):
            return None
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        wait = (zoned - datetime.fromtimestamp(now, timezone.utc)).total_seconds()
    return min(max(wait, 0.0), MAX_RETRY_AFTER) if math.isfinite(wait) else None


def _words(problem: BaseException) -> str:
    """What went wrong, in words of our own: texts of errors may hold addresses and headers."""
    chain: list[BaseException] = []
    cause: BaseException | None = problem
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    for kind, words in _WORDS:
        if any(isinstance(each, kind) for each in chain):
            return words
    return f"the request failed ({type(problem).__name__})"


_WORDS: tuple[tuple[type[BaseException], str], ...] = (
    (ssl.SSLCertVerificationError, "the certificate is not trusted"),
    (ssl.SSLError, "the TLS connection failed"),
    (socket.gaierror, "the host's name can't be resolved"),
    (ConnectionRefusedError, "the connection is refused"),
    (httpx.ConnectTimeout, "no connection in time"),
    (httpx.TimeoutException, "no answer in time"),
    (httpx.RemoteProtocolError, "the answer is not HTTP or broke off"),
    (httpx.LocalProtocolError, "the request can't be sent: a header file holds more than a header's value"),
    (httpx.ProxyError, "the proxy refuses"),
    (httpx.NetworkError, "the connection broke"),
    (UnicodeError, "the request can't be sent: a header file holds more than a header's value"),
)
