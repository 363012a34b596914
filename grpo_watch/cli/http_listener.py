"""Builds the HTTP side of a daemon from settings: its socket, bound before anything else starts, and its addresses."""

from __future__ import annotations

import ssl
import threading
import time
from pathlib import Path

from grpo_watch.cli.daemon_client import forget_token, keep_token
from grpo_watch.config.schema import Settings, Web, split_listen
from grpo_watch.daemon.daemon import Daemon
from grpo_watch.web.access import AccessKeys, OwnToken, is_loopback
from grpo_watch.web.app import make_app
from grpo_watch.web.server import Server, address, bind, tls_context

EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104  compared with, not bound
NO_LINK = "notifications contain no link to the status page because its public address is unknown; set web.url"
PLAIN = "the token and the page are sent unencrypted: set web.tls_cert and web.tls_key, or use an SSH tunnel"


class HttpListener:
    """The bound socket with its access keys, TLS context and server.

    Raises:
        UsageError: the address is in use, or a token, a certificate or a key can't be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._web, self._allowed, self._sends = settings.web, settings.web.allowed_hosts, bool(settings.sinks)
        self._keys, self._tls = protection_of(settings.web)
        self._scheme = "http" if self._tls is None else "https"
        self._host, port = split_listen(settings.listen)
        self._listener = bind(self._host, port)
        self._server: Server | None = None
        self._state: Path | None = None

    @property
    def address(self) -> str:
        """The bound address as ``HOST:PORT``."""
        return address(self._listener)

    @property
    def page(self) -> str:
        """The page's URL: from the settings, else from the bound address; empty if the page would refuse requests.

        Beyond loopback the page needs an access key; on a wildcard address it also needs an allowed host name.
        """
        everywhere, anywhere = self._host in EVERYWHERE, self._keys.anywhere
        if self._web.url or not (anywhere or is_loopback(self._host)) or (everywhere and not self._allowed):
            return self._web.url and f"{self._web.url.rstrip('/')}/"
        place = f"{self._allowed[0]}:{self.address.rpartition(':')[2]}" if everywhere else self.address
        return f"{self._scheme}://{place}/"

    @property
    def sent(self) -> str:
        """The page's URL for messages: empty if only this machine can reach it and the settings have none."""
        return "" if is_loopback(self._host) and not self._web.url else self.page

    @property
    def link(self) -> str:
        """The URL that opens the page on this machine, with the generated token if any; empty without a page."""
        port = self.address.rpartition(":")[2]
        page = self.page or (f"{self._scheme}://127.0.0.1:{port}/" if self._host in EVERYWHERE else "")
        token = self._keys.token
        return f"{page}?token={token.read()}" if page and isinstance(token, OwnToken) else page

    def protect(self, state: Path) -> None:
        """Load the stored token or generate one, unless the settings configure access."""
        if not (self._web.open or self._keys.token or self._keys.anywhere):
            self._keys = AccessKeys(OwnToken(keep_token(state, self.address)))

    def unprotect(self, state: Path) -> None:
        """Forget the stored address, so that no client sends the token to a port where nobody listens."""
        if isinstance(self._keys.token, OwnToken):
            forget_token(state)

    def start_lines(self) -> list[str]:
        """The lines printed at the start: addresses and warnings."""
        lines = [f"page: {self.link}"] if self.link else []
        lines.append(f"metrics: {self._scheme}://{self.address}/metrics")
        lines += [NO_LINK] if self._sends and not self.sent else []
        plain = self._keys.anywhere and self._tls is None and not is_loopback(self._host)
        return [*lines, PLAIN] if plain else lines

    def serve(self, watch: Daemon, state: Path | None = None) -> HttpListener:
        """Create the server for a daemon with this state directory; ``start`` starts it."""
        self._state = state
        if state is not None:
            self.protect(state)
        hosts = [*hosts_of(self._host), *self._allowed]
        app = make_app(watch, time.time, hosts, self._keys, loopback=is_loopback(self._host))
        self._server = Server(app, self._listener, self._tls)
        return self

    @property
    def threads(self) -> list[threading.Thread]:
        """The server's threads, which must stay alive."""
        return [self._server.thread] if self._server is not None else []

    def start(self) -> None:
        """Start serving."""
        if self._server is not None:
            self._server.start()

    def stop(self) -> None:
        """Stop serving, close the socket, and remove the stored address."""
        if self._server is not None:
            self._server.stop()
        if self._state is not None:
            self.unprotect(self._state)

    def close(self) -> None:
        """Close the socket if no server was created."""
        self._listener.close()


def hosts_of(host: str) -> list[str]:
    """Host names under which the page may be opened because of the listen address; none for a wildcard address."""
    return [] if host in EVERYWHERE else [f"[{host}]" if ":" in host else host]


def protection_of(web: Web) -> tuple[AccessKeys, ssl.SSLContext | None]:
    """The page's access keys and TLS context (None: no encryption) from these settings.

    Raises:
        ConfigError: a token, a certificate or a key can't be used.
    """
    if web.token_file is not None:
        web.token_file.read()
    keys = AccessKeys(web.token_file, anywhere=web.token_file is not None or web.tls_client_ca is not None)
    if web.tls_cert is None or web.tls_key is None:
        return keys, None
    return keys, tls_context(web.tls_cert, web.tls_key, web.tls_client_ca)
