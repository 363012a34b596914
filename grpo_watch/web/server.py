"""Serves the application from a thread, on a socket that is bound before anything else is started."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from grpo_watch.config.fields import SecretFile
from grpo_watch.errors import ConfigError, FilePlace, UsageError
from grpo_watch.web.limits import BACKLOG, MAX_HEAD, SlowClientLimit, room

STOP_SECONDS = 2
SECURITY_HEADERS: Mapping[str, str] = {
    # Only the page's own files; texts never become markup, not even through a script.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        UsageError: the address is in use, not of this machine, or not permitted.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(room(BACKLOG))
    except OSError as error:
        listener.close()
        raise UsageError(f"--listen {host}:{port}: {error.strerror or error} (use `:0` for a free port)") from None
    return listener


def address(listener: socket.socket) -> str:
    """The bound address as ``HOST:PORT``, an IPv6 host in brackets."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Server:
    """uvicorn in its own thread; every answer has ``SECURITY_HEADERS``, also uvicorn's own.

    Args:
        app: the ASGI application.
        listener: a bound socket; closed by ``stop``.
        tls: the TLS context; None: no encryption.
    """

    def __init__(self, app: Any, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="error",  # errors of clients are no warnings
            access_log=False,
            lifespan="off",
            http=partial(SlowClientLimit, {}),  # type: ignore[arg-type]  # what makes one does as well as its class
            ws="none",
            loop="asyncio",
            server_header=False,
            headers=list(SECURITY_HEADERS.items()),
            proxy_headers=False,  # a peer may not state its own address
            backlog=room(BACKLOG),
            h11_max_incomplete_event_size=MAX_HEAD,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        config.load()
        config.ssl = tls
        self._listener = listener
        self._server = uvicorn.Server(config)
        self._server.server_state.default_headers = config.encoded_headers  # already before its first second
        self.thread = threading.Thread(target=self._serve, name="http", daemon=True)

    def start(self) -> None:
        """Start serving."""
        self.thread.start()

    def stop(self) -> None:
        """Stop serving; waits for answers under way, not for idle connections."""
        self._server.should_exit = True
        self.thread.join(STOP_SECONDS + 1)
        self._listener.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._listener])


def tls_context(certificate: Path, key: SecretFile, client_authority: Path | None = None) -> ssl.SSLContext:
    """The TLS context of the server.

    Args:
        certificate: PEM, with intermediate certificates.
        key: PEM.
        client_authority: PEM; signs the certificates that clients must show. None: clients need none.

    Raises:
        ConfigError: a file can't be used.
    """
    key.read()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key.path, password="")
    except (OSError, ValueError) as problem:  # an SSLError is an OSError
        raise ConfigError(f"not a certificate with a matching key ({_reason(problem)})", _place(certificate)) from None
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_authority)
        except OSError as problem:
            raise ConfigError(f"contains no certificate ({_reason(problem)})", _place(client_authority)) from None
    return context


def _place(path: Path) -> FilePlace:
    return FilePlace(str(path))


def _reason(problem: Exception) -> str:
    return str(getattr(problem, "reason", "") or getattr(problem, "strerror", "") or type(problem).__name__)
