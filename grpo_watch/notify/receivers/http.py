"""Receivers reached over HTTP: a request becomes an outcome, bounded in time and size, with no secret in any text."""

from __future__ import annotations

import json
import logging
import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from grpo_watch import __version__
from grpo_watch.config.fields import SecretFile, Url
from grpo_watch.config.schema import BaseSink
from grpo_watch.errors import ConfigError, FilePlace
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult, Receiver, ReceiverContext
from grpo_watch.safe_text import plain
from grpo_watch.store.messages import Notification

if TYPE_CHECKING:
    from grpo_watch.notify.receivers.http_client import HttpClient

log = logging.getLogger("grpo_watch.delivery")

MAX_RETRY_AFTER = 900.0
"""Most seconds of ``Retry-After``: an answer can't silence alerts for longer."""

MAX_SKEW = 60.0
"""Seconds of difference between our clock and a receiver's from which it is logged."""
LEAST_SKEW = 6.0
"""Smaller differences are ignored: ``Date`` has whole seconds, and is of any moment in a request of up to 9 seconds."""
LATEST = 2.0**33
"""A ``Date`` after this (the year 2242) is no date."""

FIXABLE = frozenset({401, 403, 404, 407})
"""Refusals that end when somebody corrects a password or an address."""
FIXABLE_TRIES = 1_500
"""Attempts after which nobody will: about a day at one a minute."""
RETRIED = FIXABLE | {408, 409, 421, 423, 425, 429}
"""Client errors that may pass; every other 4xx is about the message itself and is not retried."""
SERVER_ERROR = 500
CODES = ("errcode", "code", "StatusCode")
"""Keys under which DingTalk and WeCom, and Feishu, return their own error code; 0 is success."""
JSON = {"Content-Type": "application/json"}
NEVER_SERVED = frozenset({501, 505})
REDIRECTS = range(300, 400)
ACCEPTED = range(200, 300)


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """How to reach a receiver: headers with secret values, and authorities to trust instead of the system's."""

    headers: Mapping[str, SecretFile] = field(default_factory=dict)
    ca_file: Path | None = None

    @classmethod
    def of(cls, sink: BaseSink) -> HttpAccess:
        """The sink's headers and authorities; checks that their files can be read.

        Raises:
            ConfigError: a file can't be read.
        """
        headers: Mapping[str, SecretFile] = getattr(sink, "header_files", {})
        ca_file: Path | None = getattr(sink, "ca_file", None)
        for file in headers.values():
            file.read()
        try:
            ssl.create_default_context(cafile=ca_file) if ca_file else None
        except OSError as problem:  # an SSLError is one
            raise ConfigError("ca_file holds no certificate that can be read", FilePlace(str(ca_file))) from problem
        return cls(headers, ca_file)


def address(sink: BaseSink, default: str = "") -> Callable[[], str]:
    """A function that returns the sink's address; reads a secret one each time, so that changes take effect at once.

    Raises:
        ConfigError: the file can't be read, or there is no address.
    """
    url: Url | None = getattr(sink, "url", None)
    if url is not None:
        return url.reveal
    file: SecretFile | None = getattr(sink, "url_file", None) or getattr(sink, "webhook_url_file", None)
    if file is None and not default:
        raise ConfigError("the receiver has no address", fix="give its settings a url or url_file")
    if file is None:
        return lambda: default
    file.read_url()
    return lambda: file.read_url().reveal()


def outcome_of(status: int, retry_after: float | None = None, refusal: str = "") -> DeliveryOutcome:
    """The outcome that an HTTP status means for the message.

    2xx is delivered, unless the body is one of Slack's refusals (``refusal``). Redirects are not followed but retried:
    a URL that redirects today (a login page, maintenance) may accept tomorrow; the same holds for ``RETRIED`` and for
    server errors.
    """
    detail = f"HTTP {status}{f' {refusal}' if refusal else ''}"
    if status in ACCEPTED and refusal:
        return DeliveryOutcome(DeliveryResult.RETRY, detail, status=status, most_tries=FIXABLE_TRIES)
    if status in ACCEPTED:
        return DeliveryOutcome(DeliveryResult.DELIVERED, detail, status=status)
    if status in REDIRECTS:
        return DeliveryOutcome(
            DeliveryResult.RETRY, f"{detail}: redirects are not followed, give the final address", status=status
        )
    if status in RETRIED or (status >= SERVER_ERROR and status not in NEVER_SERVED):
        return DeliveryOutcome(
            DeliveryResult.RETRY, detail, retry_after, status, FIXABLE_TRIES if status in FIXABLE else None
        )
    return DeliveryOutcome(DeliveryResult.REFUSED, detail, status=status)


def code_of(read: bytes) -> int:
    """The service's own error code in an answer; 0 if there is none."""
    try:
        said = json.loads(read)
    except (ValueError, RecursionError):  # a UnicodeDecodeError is a ValueError
        return 0
    codes = [said[name] for name in CODES if name in said] if isinstance(said, dict) else []
    return next((code for code in codes if isinstance(code, int)), 0)


class HttpEndpoint:
    """Sends one receiver's requests.

    Args:
        access: headers and authorities.
        clock: Unix seconds, for a ``Retry-After`` that is a date.
        coded: whether a 2xx answer may be a refusal with an error code in the body.
    """

    def __init__(self, access: HttpAccess, clock: Callable[[], float], *, coded: bool = False) -> None:
        self._access, self._clock, self._coded = access, clock, coded
        self._client: HttpClient | None = None
        self._skewed = False
        self.ahead = 0.0
        """By how many seconds the receiver's clock is ahead of ours, by its newest ``Date``; 0 before the first."""

    def send(
        self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> DeliveryOutcome:
        """Send one request; every failure is an outcome."""
        from grpo_watch.notify.receivers.http_client import HttpClient, NoReplyError  # noqa: PLC0415  heavy

        try:
            secret = {name: file.read() for name, file in self._access.headers.items()}
            if self._client is None or self._client.outdated:
                self._client = HttpClient(self._access.ca_file)
            sent = {"User-Agent": f"grpo-watch/{__version__}", **(headers or {}), **secret}
            began = self._clock()
            reply = self._client.ask(method, url, body, sent)
        except (ConfigError, NoReplyError) as problem:
            return DeliveryOutcome(DeliveryResult.RETRY, str(problem))
        except OSError as problem:
            return DeliveryOutcome(
                DeliveryResult.RETRY, f"the authorities to trust can't be read ({type(problem).__name__})"
            )
        self._note_skew(reply.date, (began + self._clock()) / 2)
        code = code_of(reply.body) if self._coded else 0
        refusal = f"error {code}" if code else reply.word
        return outcome_of(reply.status, seconds_of(reply.retry_after, self._clock()), refusal)

    def _note_skew(self, date: str, ours: float) -> None:
        """Note the difference between the clocks, and log once if it is large."""
        try:
            theirs = parsedate_to_datetime(date).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            return
        if not 0 < theirs < LATEST:
            return
        skew = theirs - ours
        if abs(skew - self.ahead) > LEAST_SKEW:
            self.ahead = skew if abs(skew) > LEAST_SKEW else 0.0
        if abs(skew) > MAX_SKEW and not self._skewed:
            log.error("a receiver's clock and this machine's differ", extra={"fields": {"seconds": round(skew)}})
        self._skewed = abs(skew) > MAX_SKEW


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The content of a request; ``query`` is appended to the receiver's address."""

    body: bytes = b""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = "POST"

    @classmethod
    def of(cls, document: object, query: str = "") -> HttpRequest:
        """A POST of a document as strict JSON."""
        return cls(json.dumps(plain(document)).encode(), query, JSON)


class HttpReceiver(Receiver):
    """A receiver that is sent requests at the address of its sink; subclasses define their content.

    The sink's secret (``secret_file``) is read once at the start, so that an error shows then.

    Args:
        sink: the settings of the receiver.
        name: its name in metrics.
        context: access to the daemon.

    Raises:
        ConfigError: a file of the settings can't be used.
    """

    coded: ClassVar[bool] = False
    """Whether the service refuses with a 2xx answer and its own error code."""
    default_url: ClassVar[str] = ""
    """The default address."""

    def __init__(self, sink: BaseSink, name: str, context: ReceiverContext) -> None:
        super().__init__(name)
        self._url, self._clock = address(sink, self.default_url), context.clock
        self._secret: SecretFile | None = getattr(sink, "secret_file", None)
        if self._secret is not None:
            self._secret.read()
        self._http = HttpEndpoint(HttpAccess.of(sink), context.clock, coded=self.coded)

    @staticmethod
    def payload(notification: Notification) -> object:
        """The JSON document of one message."""
        raise NotImplementedError

    def request(self, notification: Notification) -> HttpRequest:
        """The request of one message.

        Raises:
            ConfigError: a secret can't be read.
        """
        return HttpRequest.of(self.payload(notification))

    def send(self, notification: Notification) -> DeliveryOutcome:
        """Post one message."""
        return self._ask(lambda: self.request(notification))

    def _ask(self, request: Callable[[], HttpRequest]) -> DeliveryOutcome:
        """Send one request; an unreadable secret is retried, as it may be back later."""
        try:
            url, asked = self._url(), request()
        except ConfigError as problem:
            return DeliveryOutcome(DeliveryResult.RETRY, str(problem))
        if asked.query:
            url += f"{'&' if '?' in url else '?'}{asked.query}"
        return self._http.send(asked.method, url, asked.body, asked.headers)


def seconds_of(header: str, now: float) -> float | None:
    """``Retry-After`` as seconds from now, bounded; None if missing or invalid."""
    try:
        wait = float(header)
    except ValueError:
        try:
            moment = parsedate_to_datetime(header)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        wait = (zoned - datetime.fromtimestamp(now, timezone.utc)).total_seconds()
    return None if math.isnan(wait) else min(max(wait, 0.0), MAX_RETRY_AFTER)
