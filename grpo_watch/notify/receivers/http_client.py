"""An HTTP client bounded in time and size; it describes failures in our own words."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import certifi
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from grpo_watch.descriptors import stamp

CONNECT_SECONDS, ANSWER_SECONDS, TOTAL_SECONDS = 3.0, 5.0, 9.0
MAX_ANSWER, PIECE = 65_536, 4_096
"""Most bytes read of an answer, and bytes per read."""
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
"""Refusals that Slack documents for incoming webhooks; nothing else of an answer is repeated."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """The answer: status, ``Retry-After`` as sent, a known word, and the beginning of the body."""

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
    """No answer came; ``str()`` says why, without address or headers."""


class HttpClient:
    """Sends requests; keeps no connections, so that each request's deadline applies to its own connection.

    Args:
        ca_file: the authorities to trust instead of the system's.

    Raises:
        OSError: the authorities can't be read.
    """

    def __init__(self, ca_file: Path | None) -> None:
        self._ca_file, self._written = ca_file, stamp(ca_file)
        self._trust = _trust(ca_file, self._written)

    def ask(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        """Send one request.

        Raises:
            NoReplyError: no HTTP answer came in time, or the proxy of the environment can't be used.
        """
        try:
            with _deadline() as (note, late), closing(self._sent(method, url, body, headers, note)) as answer:
                if late.is_set():  # its headers were cut off
                    raise TimeoutError
                read = _body(answer)
                given = answer.headers
                return HttpReply(answer.status, given.get("retry-after", ""), _word(read), given.get("date", ""), read)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as problem:
            raise NoReplyError(_words(problem)) from None

    def _sent(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], note: Callable[[socket.socket], None]
    ) -> urllib3.BaseHTTPResponse:
        """The unread answer; user and password of the address are sent as an ``Authorization`` header."""
        target = urllib3.util.parse_url(url)
        if target.auth:
            headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
            headers["Authorization"] = _basic(target.auth)
        return _connections(self._trust, _proxy(target), note).request(
            method,
            target._replace(auth=None).url,
            body=body,
            headers=headers,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=ANSWER_SECONDS),
            preload_content=False,
            retries=False,
            redirect=False,
        )

    @property
    def outdated(self) -> bool:
        """Whether the authorities' file changed since; while it is missing, the old ones are trusted."""
        return stamp(self._ca_file) not in {None, self._written}


def _proxy(target: urllib3.util.Url) -> urllib3.util.Url | None:
    """The proxy that the environment names for an address; None if there is none.

    Raises:
        NoReplyError: the proxy can't be used; the message leaves out its URL, which may hold a password.
    """
    named = getproxies()
    proxy = named.get(target.scheme or "") or named.get("all")
    if not proxy or proxy_bypass(target.netloc or "") or proxy_bypass((target.host or "").strip("[]")):
        return None
    try:
        found = urllib3.util.parse_url(proxy if "://" in proxy else f"http://{proxy}")
    except ValueError:
        raise NoReplyError(NO_PROXY) from None
    if found.scheme not in {"http", "https"} or not found.host:
        raise NoReplyError(NO_PROXY)
    return found


def _connections(
    trust: ssl.SSLContext, proxy: urllib3.util.Url | None, note: Callable[[socket.socket], None]
) -> urllib3.PoolManager:
    """A connection pool for one request that calls ``note`` with each new socket."""

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            note(opened := super()._new_conn())
            return opened

    class Secure(Plain, HTTPSConnection):
        pass

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Secure

    if proxy is None:
        manager = urllib3.PoolManager(ssl_context=trust)
    else:
        headers = {"Proxy-Authorization": _basic(proxy.auth)} if proxy.auth else {}
        place = proxy._replace(auth=None).url
        manager = urllib3.ProxyManager(place, proxy_headers=headers, proxy_ssl_context=trust, ssl_context=trust)
    manager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
    return manager


def _basic(auth: str) -> str:
    return f"Basic {base64.b64encode(unquote(auth).encode()).decode()}"


@lru_cache(maxsize=8)
def _trust(ca_file: Path | None, _written: tuple[int, int, int] | None) -> ssl.SSLContext:
    """The system's authorities and those shipped with the client, or only the given ones, as last written."""
    if ca_file is not None:
        return ssl.create_default_context(cafile=str(ca_file))
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


@contextmanager
def _deadline() -> Iterator[tuple[Callable[[socket.socket], None], threading.Event]]:
    """End a request after ``TOTAL_SECONDS``; yields a function that takes its sockets, and an event set at the end.

    A name lookup by the system can't be ended; a connection made too late is closed at once.
    """
    sockets: list[socket.socket] = []
    late = threading.Event()

    def note(opened: socket.socket) -> None:
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
        yield note, late
    finally:
        timer.cancel()
        for opened in sockets:
            opened.close()


def _body(answer: urllib3.BaseHTTPResponse) -> bytes:
    """The beginning of the body. The status is the answer: a broken-off body changes nothing."""
    read = b""
    with suppress(urllib3.exceptions.HTTPError):
        for piece in answer.stream(PIECE, decode_content=False):
            read += piece
            if len(read) >= MAX_ANSWER:
                break
    return read


def _word(read: bytes) -> str:
    """A known reason (``invalid_payload``); any other word could be a secret that was sent."""
    word = read[:64].decode("ascii", "replace").strip()
    return word if word in _KNOWN_WORDS else ""


def _words(problem: BaseException) -> str:
    """The error in our own words: its text may hold addresses and headers."""
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
    (urllib3.exceptions.ConnectTimeoutError, "no connection in time"),
    (urllib3.exceptions.TimeoutError, "no answer in time"),
    (TimeoutError, "no answer in time"),
    (urllib3.exceptions.ProxyError, "the proxy refuses"),
    (HTTPException, "the answer is not HTTP or broke off"),
    (ConnectionResetError, "the connection broke"),
    (urllib3.exceptions.ProtocolError, "the answer is not HTTP or broke off"),
    (urllib3.exceptions.NewConnectionError, "the connection broke"),
    (urllib3.exceptions.LocationValueError, "the address can't be used"),
    (ValueError, "the request can't be sent: a header file holds more than a header's value"),
)
