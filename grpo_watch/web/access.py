"""Decides who may see the page and the API: by peer, requested host name, and token."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from grpo_watch.config.fields import SecretFile
from grpo_watch.errors import ConfigError

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
FORWARDED = frozenset({"forwarded", "x-real-ip", "via", "cf-connecting-ip", "true-client-ip"})
"""Proxy headers, besides ``X-Forwarded-…``: behind a proxy, a peer on this machine may be any host."""

COOKIE_SECONDS = 30 * 86_400
ASKED = (
    "this page needs its token: open the link that grpo-watch printed at its start (`grpo-watch status` prints it "
    "too), add ?token=… to the address, or send Authorization: Bearer …\n"
)

log = logging.getLogger("grpo_watch.web")


@dataclass(frozen=True, slots=True)
class OwnToken:
    """The token that a daemon generated."""

    text: str

    def read(self) -> str:
        """The token."""
        return self.text


@dataclass(frozen=True, slots=True)
class AccessKeys:
    """The keys to the page.

    ``token``: required of every client; None: none is. ``anywhere``: clients on other machines are served too, because
    the settings name a token, or because TLS refuses those without a known certificate.
    """

    token: SecretFile | OwnToken | None = None
    anywhere: bool = False


class Guard:
    """Refuses requests.

    Args:
        keys: the keys to the page.
        hosts: names under which it may be opened, besides those of the loopback address.
    """

    def __init__(self, keys: AccessKeys, hosts: Iterable[str]) -> None:
        self._keys = keys
        self._hosts = LOCAL_HOSTS | {host.lower() for host in hosts}

    def refuse_unknown_host(self, request: Request) -> Response | None:
        """The refusal of a request for an unknown host name; None if the name is known."""
        if _host_name(request.headers.get("host", "")) in self._hosts:
            return None
        return PlainTextResponse("unknown Host header; add it to web: allowed_hosts\n", 421)

    def refusal(self, request: Request) -> Response | None:
        """The response to a request that is refused or redirected; None if it is allowed.

        A link with the right token sets a cookie and redirects to the page without the token in the address.
        """
        if not self._keys.anywhere and not _is_local(request):
            return PlainTextResponse("the status page is only available on the local machine; use an SSH tunnel\n", 403)
        if (refused := self.refuse_unknown_host(request)) is not None or self._keys.token is None:
            return refused
        try:
            token = self._keys.token.read()
        except ConfigError as problem:
            log.error("authentication unavailable; denying all requests", extra={"fields": {"error": str(problem)}})  # noqa: TRY400  one line
            return PlainTextResponse("can't read the token; see the log\n", 503)
        name, cookie = _cookie(token)
        if _equal(request.query_params.get("token", ""), token):
            return None if request.url.path != "/" else _let_in(name, cookie, secure=request.url.scheme == "https")
        if _equal(_bearer(request), token) or _equal(request.cookies.get(name, ""), cookie):
            return None
        return PlainTextResponse(ASKED, 401, {"WWW-Authenticate": 'Bearer realm="grpo-watch"'})


def _bearer(request: Request) -> str:
    scheme, _, value = request.headers.get("authorization", "").strip().partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""


def _cookie(token: str) -> tuple[str, str]:
    """Name and value of the token's cookie; the name differs by daemon, because all ports of a host share cookies."""
    digest = hmac.new(token.encode(), b"grpo-watch page", hashlib.sha256).hexdigest()
    return f"grpo-watch-{digest[:8]}", digest[8:]


def _let_in(name: str, cookie: str, *, secure: bool) -> Response:
    """Set the cookie and redirect; ``Lax``, as links in messages lead from other sites to the read-only page."""
    response = Response(status_code=303, headers={"Location": "./"})
    response.set_cookie(name, cookie, COOKIE_SECONDS, secure=secure, httponly=True, samesite="lax")
    return response


def _equal(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), known.encode())


def is_loopback(host: str) -> bool:
    """Whether an address, or the name ``localhost``, is a loopback address of this machine."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _is_local(request: Request) -> bool:
    """Whether the peer is on this machine and not a proxy."""
    proxied = any(name in FORWARDED or name.startswith("x-forwarded-") for name in request.headers)
    return request.client is not None and not proxied and is_loopback(request.client.host)


def _host_name(header: str) -> str:
    """The ``Host`` header without its port.

    Only known names pass: a page of another site whose name resolves to this machine sends its own name.
    """
    name, colon, port = header.lower().rpartition(":")
    return name if colon and port.isdigit() else header.lower()
