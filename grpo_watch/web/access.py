"""Decides who is shown the page and the API: by peer, by the name asked for, and by token if set."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from grpo_watch.errors import ConfigError

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
FORWARDED = frozenset({"forwarded", "x-real-ip", "via", "cf-connecting-ip", "true-client-ip"})
"""Headers of proxies, besides ``X-Forwarded-…``: behind one, a peer on this machine may be any host."""

log = logging.getLogger("grpo_watch.web")


class TokenSecret(Protocol):
    """Where a secret is read from."""

    def read(self) -> str:
        """The secret; raises ``ConfigError``."""


@dataclass(frozen=True, slots=True)
class AccessKeys:
    """What opens the page besides being on the machine: a token, or a certificate.

    ``certificates``: TLS refuses clients without one that a known authority signed.
    """

    token: TokenSecret | None = None
    certificates: bool = False

    @property
    def any(self) -> bool:
        """Whether something opens the page besides being on the machine."""
        return self.token is not None or self.certificates


class Guard:
    """Refuses requests.

    Args:
        keys: what opens the page.
        hosts: names under which it may be opened, besides those of the loopback address.
    """

    def __init__(self, keys: AccessKeys, hosts: Iterable[str]) -> None:
        self._keys = keys
        self._hosts = LOCAL_HOSTS | {host.lower() for host in hosts}

    def refuse_unknown_host(self, request: Request) -> Response | None:
        """The refusal of a request that asks for an unknown host name; None when the name is known."""
        if _host_name(request.headers.get("host", "")) in self._hosts:
            return None
        return PlainTextResponse("unknown Host header; add it to web: allowed_hosts\n", 421)

    def refusal(self, request: Request) -> Response | None:
        """Why this request is not answered; None when it is."""
        if not self._keys.any and not _is_local(request):
            return PlainTextResponse("the status page is only available on the local machine; use an SSH tunnel\n", 403)
        if (refused := self.refuse_unknown_host(request)) is not None or self._keys.token is None:
            return refused
        try:
            token = self._keys.token.read()
        except ConfigError as problem:
            log.error("authentication unavailable; denying all requests", extra={"fields": {"error": str(problem)}})  # noqa: TRY400  one line
            return PlainTextResponse("can't read the token; see the log\n", 503)
        given = _token_in(request.headers.get("authorization", ""))
        if given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
            return None
        asks = {"WWW-Authenticate": 'Basic realm="grpo-watch", charset="UTF-8"'}
        return PlainTextResponse("authentication required: the token\n", 401, asks)


def _token_in(header: str) -> str | None:
    """The token in an ``Authorization`` header: a bearer's, or the password of any user, as browsers send it."""
    scheme, _, value = header.strip().partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() != "basic":
        return None
    try:
        _, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return password if colon else None


def is_loopback(host: str) -> bool:
    """Whether an address, or the name ``localhost``, is a loopback address of this machine."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _is_local(request: Request) -> bool:
    """Whether the peer is on this machine and is no proxy."""
    proxied = any(name in FORWARDED or name.startswith("x-forwarded-") for name in request.headers)
    return request.client is not None and not proxied and is_loopback(request.client.host)


def _host_name(header: str) -> str:
    """The ``Host`` header without its port.

    Only known names pass: a page of another site whose name leads to this machine sends its own name.
    """
    name, colon, port = header.lower().rpartition(":")
    return name if colon and port.isdigit() else header.lower()
