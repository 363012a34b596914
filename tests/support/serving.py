"""The HTTP side on a real socket, over a daemon that has one run."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from grpo_watch.daemon.daemon import Daemon
from grpo_watch.web.access import AccessKeys
from grpo_watch.web.app import make_app
from grpo_watch.web.server import Server, address, bind


@contextmanager
def web(
    watch: Daemon,
    keys: AccessKeys | None = None,
    tls: ssl.SSLContext | None = None,
    hosts: Iterable[str] = (),
    listen: str = "127.0.0.1",
    port: int = 0,
) -> Iterator[str]:
    """A server, on a free port unless one is given; gives ``HOST:PORT``."""
    listener = bind(listen, port)
    app = make_app(watch, lambda: 1000.0, hosts, keys)
    server = Server(app, listener, tls)
    server.start()
    try:
        yield address(listener)
    finally:
        server.stop()
