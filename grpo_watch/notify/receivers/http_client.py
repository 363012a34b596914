"""Asks over HTTP, bounded in time and size; failures are described in our own words.

Importing this costs 14 MB and a tenth of a second: only who has a receiver pays.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import certifi
import httpx

from grpo_watch.descriptors import stamp

CONNECT_SECONDS, ANSWER_SECONDS, TOTAL_SECONDS = 3.0, 5.0, 9.0
MAX_ANSWER = 65_536
"""Bytes of an answer that are read."""
_KNOWN_WORDS = frozenset(
    {
        "action_prohibited",
        "channel_is_archived",
        "channel_not_found",
        "invalid_attachments",
        "invalid_blocks",
        "invalid_blocks_format",
        "invalid_payload",
        "invalid_token",
        "missing_text_or_fallback_or_attachments",
        "no_active_hooks",
        "no_service",
        "no_service_id",
        "no_team",
        "no_text",
        "posting_to_general_channel_denied",
        "rate_limited",
        "team_disabled",
        "too_many_attachments",
        "user_not_found",
    }
)
"""What Slack's documentation of incoming webhooks says that a refusal reads; nothing else of an answer is repeated."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """What came back: the status, its ``Retry-After`` as it was written, a known word, and how the body begins."""

    status: int
    retry_after: str
    word: str
    date: str = ""
    body: bytes = b""


NO_PROXY = (
    "the proxy that the environment names can't be used: HTTP_PROXY, HTTPS_PROXY and ALL_PROXY begin with http:// or "
    "https://, special characters of a password as %XX"
)


class NoReplyError(Exception):
    """Nothing came back; ``str()`` says why, and holds neither address nor headers."""


class HttpClient:
    """Asks; keeps no connection, so that each request's deadline is that of its own connection.

    Args:
        ca_file: the authorities to trust instead of the system's.

    Raises:
        NoReplyError: the proxy that the environment names can't be used.
        OSError: the authorities can't be read.
    """

    def __init__(self, ca_file: Path | None) -> None:
        self._ca_file, self._written = ca_file, stamp(ca_file)
        trust = _trust(ca_file, self._written)
        try:
            self._client = httpx.Client(
                verify=trust,
                timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
                limits=httpx.Limits(max_keepalive_connections=0),
                follow_redirects=False,
                trust_env=True,
            )
        except (ValueError, httpx.InvalidURL, ImportError):  # texts that hold parts of the address, or ask for socksio
            raise NoReplyError(NO_PROXY) from None

    def ask(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        """Ask once.

        Raises:
            NoReplyError: nothing came back in time that is HTTP.
        """
        try:
            with (
                _deadline() as trace,
                self._client.stream(method, url, content=body, headers=headers, extensions={"trace": trace}) as answer,
            ):
                read = _body(answer)
                return HttpReply(
                    answer.status_code,
                    answer.headers.get("retry-after", ""),
                    _word(read),
                    answer.headers.get("date", ""),
                    read,
                )
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as problem:
            raise NoReplyError(_words(problem)) from None

    @property
    def outdated(self) -> bool:
        """Whether the authorities were renewed since; while their file is not there, the old ones are trusted."""
        return stamp(self._ca_file) not in {None, self._written}

    def close(self) -> None:
        """Free the connections."""
        self._client.close()


@lru_cache(maxsize=8)
def _trust(ca_file: Path | None, _written: tuple[int, int, int] | None) -> ssl.SSLContext:
    """The system's authorities and those that came with the client, or only the given ones, as they were written."""
    if ca_file is not None:
        return ssl.create_default_context(cafile=str(ca_file))
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


@contextmanager
def _deadline() -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
    """Ends a request after ``TOTAL_SECONDS`` however slowly its answer drips; gives what the client tells its steps.

    The system's look-up of a name can't be ended; a connection made too late is ended at once.
    """
    sockets: list[socket.socket] = []
    late = threading.Event()

    def note(step: str, info: Mapping[str, Any]) -> None:
        if step.endswith("connect_tcp.complete"):
            opened = info["return_value"].get_extra_info("socket")
            sockets.append(opened.dup())
            if late.is_set():
                end()

    def end() -> None:
        late.set()
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


def _body(answer: httpx.Response) -> bytes:
    """How the body begins. The status is the answer: a body that breaks off changes nothing."""
    read = b""
    with suppress(httpx.HTTPError):
        for piece in answer.iter_raw():
            read += piece[: MAX_ANSWER - len(read)]
            if len(read) >= MAX_ANSWER:
                break
    return read


def _word(read: bytes) -> str:
    """A known reason (``invalid_payload``); any other word could be a secret that was sent."""
    word = read[:64].decode("ascii", "replace").strip()
    return word if word in _KNOWN_WORDS else ""


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
