"""Plays services of the internet: a proxy that answers for every host itself, and a mail server."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trustme

from tests.support.receiving import Answer, Receiving

Services = dict[str, Receiving]


@contextmanager
def internet(folder: Path) -> Iterator[tuple[str, Path, Services]]:
    """A proxy's address, the certificate of the authority to trust, and what each host was sent (``{host: …}``).

    Clients connect through the proxy as they would to the real host, TLS and all; a host that has no entry answers 200.
    """
    authority = trustme.CA()
    ca_file = folder / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    hosts: Services = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        host = ""

        def do_CONNECT(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.host = self.path.rpartition(":")[0]
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert(self.host).configure_cert(context)
            self.connection = context.wrap_socket(self.connection, server_side=True)
            self.rfile = self.connection.makefile("rb", -1)
            self.wfile = self.connection.makefile("wb", 0)
            self.close_connection = False

        def finish(self) -> None:
            super().finish()
            self.connection.close()

        def do_POST(self) -> None:
            given = hosts.setdefault(self.host, Receiving([Answer()])).take(self)
            self.send_response(given.status)
            for name, value in {"Content-Length": str(len(given.body)), **given.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(given.body)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    with _running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield f"http://127.0.0.1:{port}", ca_file, hosts


@contextmanager
def mail_server() -> Iterator[tuple[int, list[str]]]:
    """An SMTP server's port, and the messages that it took."""
    taken: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline():
                command = line[:4].upper()
                if command == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = []
                    while (part := self.rfile.readline()) != b".\r\n":
                        lines.append(part.decode())
                    taken.append("".join(lines))
                self.wfile.write(b"221 bye\r\n" if command == b"QUIT" else b"250 ok\r\n")
                if command == b"QUIT":
                    return

    with _running(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as port:
        yield port, taken


@contextmanager
def _running(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
