"""Turns settings into the HTTP side of a daemon: its socket, bound before anything else starts, and its addresses."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_watch.config.schema import Settings, Web, split_listen
from grpo_watch.errors import UsageError
from grpo_watch.web.access import AccessKeys, is_loopback
from grpo_watch.web.app import DaemonView, make_app, make_metrics_app
from grpo_watch.web.server import Server, address, bind
from grpo_watch.web.tls import Certificates

EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104  compared with, not bound
NO_LINK = "notifications contain no link to the status page because its public address is unknown; set web.url"
PLAIN = "the token and the page are sent unencrypted: set web.tls_cert and web.tls_key, or use an SSH tunnel"


@dataclass(frozen=True, slots=True)
class Protection:
    """``keys`` for the application, ``tls`` for the server; None where connections are not encrypted."""

    keys: AccessKeys
    tls: ssl.SSLContext | None

    @property
    def scheme(self) -> str:
        """How addresses of this server begin."""
        return "http" if self.tls is None else "https"

    def warnings(self, *, loopback: bool) -> list[str]:
        """What the user should know; ``loopback``: only peers on this machine can connect."""
        return [PLAIN] if self.keys.token is not None and self.tls is None and not loopback else []


@dataclass(frozen=True, slots=True)
class HttpServers:
    """The server of the page, and that of the metrics where they have an address of their own."""

    servers: Sequence[Server]

    @property
    def threads(self) -> list[threading.Thread]:
        """In which they answer."""
        return [server.thread for server in self.servers]

    def start(self) -> None:
        """Begin to answer."""
        for server in self.servers:
            server.start()

    def stop(self) -> None:
        """Stop answering, and give the sockets up."""
        for server in self.servers:
            server.stop()


class HttpListener:
    """The bound sockets, one of them for metrics and health where the settings name it, and what protects them.

    Raises:
        UsageError: an address is taken, or a token, a certificate or a key can't be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._url = settings.web.url
        self._allowed = settings.web.allowed_hosts
        self._protection = protection_of(settings.web)
        self._host, port = split_listen(settings.listen)
        self._listener = bind(self._host, port)
        self._metrics_host, self._metrics_listener = self._host, None
        if settings.metrics_listen:
            self._metrics_host, port = split_listen(settings.metrics_listen)
            try:
                self._metrics_listener = bind(self._metrics_host, port, "--metrics-listen")
            except UsageError:
                self._listener.close()
                raise

    @property
    def address(self) -> str:
        """``HOST:PORT`` as it is bound."""
        return address(self._listener)

    @property
    def metrics_address(self) -> str:
        """``HOST:PORT`` of ``/metrics`` as it is bound."""
        return address(self._metrics_listener or self._listener)

    @property
    def page(self) -> str:
        """The page's address for people and links, as the settings have it or as the page would answer; else empty.

        On another address than loopback it answers only with a key, and where it listens everywhere only under a name
        that is allowed.
        """
        everywhere, keys = self._host in EVERYWHERE, self._protection.keys.any
        if self._url or not (keys or is_loopback(self._host)) or (everywhere and not self._allowed):
            return self._url
        place = f"{self._allowed[0]}:{self.address.rpartition(':')[2]}" if everywhere else self.address
        return f"{self._protection.scheme}://{place}/"

    def start_lines(self) -> list[str]:
        """The lines printed at the start: addresses and warnings."""
        metrics = f"metrics: {self._protection.scheme}://{self.metrics_address}/metrics"
        page = [f"page: {self.page}", metrics] if self.page else [metrics, NO_LINK]
        return [*page, *self._protection.warnings(loopback=is_loopback(self._host))]

    def serve(self, watch: DaemonView) -> HttpServers:
        """The servers over a daemon, not started yet; they close the sockets when they stop."""
        hosts = [*hosts_of(self._host), *self._allowed]
        keys, loopback = self._protection.keys, is_loopback(self._host)
        app = make_app(
            watch,
            time.time,
            hosts,
            keys,
            loopback=loopback,
            metrics=self._metrics_listener is None,
        )
        servers = [Server(app, self._listener, self._protection.tls)]
        if self._metrics_listener is not None:
            names = [*hosts_of(self._metrics_host), *self._allowed]
            metrics = make_metrics_app(watch, time.time, names, loopback=is_loopback(self._metrics_host))
            servers.append(Server(metrics, self._metrics_listener, self._protection.tls, name="metrics"))
        return HttpServers(servers)

    def close(self) -> None:
        """Give the sockets up, where no server took them."""
        self._listener.close()
        if self._metrics_listener is not None:
            self._metrics_listener.close()


def hosts_of(host: str) -> list[str]:
    """Names under which the page may be opened because the daemon listens there."""
    return [] if host in EVERYWHERE else [f"[{host}]" if ":" in host else host]


def protection_of(web: Web) -> Protection:
    """The protection that these settings ask for.

    Raises:
        ConfigError: a token, a certificate or a key can't be used.
    """
    if web.token_file is not None:
        web.token_file.read()
    keys = AccessKeys(web.token_file, web.tls_client_ca is not None)
    if web.tls_cert is None or web.tls_key is None:
        return Protection(keys, None)
    return Protection(keys, Certificates(web.tls_cert, web.tls_key, web.tls_client_ca).context())
