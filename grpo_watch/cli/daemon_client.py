"""Asks the running daemon at the address of the settings, with its certificate and token.

A daemon without a configured token generates one and stores it in its state directory, where commands of the same user
find it.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpo_watch.config.schema import Settings, Web, split_listen
from grpo_watch.config.settings import state_home

ANSWER_SECONDS = 5.0
UNAUTHORISED = 401
TOKEN_FILE = "page.json"  # noqa: S105  a file's name
OWNER_READS = 0o600
TOKEN_BYTES = 24
"""Random bytes of a token: 192 bits."""
EVERYWHERE: Mapping[str, str] = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  asked at, not bound


class DaemonClient:
    """The daemon's API.

    Args:
        settings: the settings in force, with the daemon's address, certificate and token.

    Raises:
        ConfigError: the token file in the settings can't be used.
    """

    def __init__(self, settings: Settings) -> None:
        host, port = split_listen(settings.listen)
        host = EVERYWHERE.get(host, host)
        scheme = "https" if settings.web.tls_cert else "http"
        self.address = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        self._web = settings.web
        own = settings.web.token_file
        self._token = own.read() if own else known_token(settings.state_dir, host, port, os.environ)
        self.link = f"{self.address}/?token={self._token}" if self._token and not own else ""
        """The address that opens the page in a browser, if the daemon generated its token; else empty."""

    def ask(self, path: str) -> dict[str, Any]:
        """Request a path of the API and return its JSON answer.

        Raises:
            OSError: no daemon answers, it refuses (``HTTPError``), or the certificate can't be read.
            ValueError: the answer is not JSON.
        """
        with _opener(self._web, self._token).open(f"{self.address}{path}", timeout=ANSWER_SECONDS) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def why_not(self, problem: Exception) -> str:
        """One line that explains why ``ask`` failed."""
        if isinstance(problem, urllib.error.HTTPError) and problem.code == UNAUTHORISED:
            found = "use its --state-dir, or --config with its settings file"
            return f"the daemon at {self.address} requires a token; {found}"
        if isinstance(problem, urllib.error.HTTPError) and (said := _said(problem)):
            return said
        return (
            f"no daemon responds at {self.address} ({getattr(problem, 'reason', problem)}); "
            "use --listen for a different address"
        )


def _said(problem: urllib.error.HTTPError) -> str:
    """The reason our daemon gives for refusing a request; empty if another program answered."""
    try:
        return str(json.loads(problem.read(4_096))["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _opener(web: Web, token: str) -> urllib.request.OpenerDirector:
    """Opens requests to our own daemon: no proxy, the certificate from the settings, any host name.

    Raises:
        OSError: the certificate can't be read.
    """
    context = ssl.create_default_context(cafile=str(web.tls_cert) if web.tls_cert else None)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirects()
    )
    opener.addheaders = [("Authorization", f"Bearer {token}")] if token else []
    return opener


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, so that another program at the address can't send the token elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        """Return None, which makes the redirect an error."""


def keep_token(state: Path, address: str) -> str:
    """The token in this state directory, generated if missing; stores ``address`` (HOST:PORT) beside it.

    If the directory can't be written, every start uses a new token and commands don't find it.
    """
    token = _read(state).get("token") or secrets.token_urlsafe(TOKEN_BYTES)
    _write(state, token, address)
    return token


def forget_token(state: Path) -> None:
    """Remove the stored address on exit, so that no command sends the token to the next program on that port."""
    if token := _read(state).get("token"):
        _write(state, token, "")


def noted_address(state: Path) -> str | None:
    """Where the daemon of this state directory listens (HOST:PORT); None if no daemon runs or no address is stored."""
    return _read(state).get("address") or None


def known_token(state: Path | None, host: str, port: int, environ: Mapping[str, str]) -> str:
    """The token of the daemon at this address; empty if unknown.

    Searches ``state`` if given, else all state directories of this host in the default place, newest first.
    """
    usual = state_home(environ).glob(f"{socket.gethostname()}-*")
    for folder in [state] if state else sorted(usual, key=_noted, reverse=True):
        known = _read(folder)
        there, _, its_port = known.get("address", "").rpartition(":")
        there = there.strip("[]")
        if its_port == str(port) and host in {there, EVERYWHERE.get(there)}:
            return known.get("token", "")
    return ""


def _read(state: Path) -> dict[str, str]:
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads((state / TOKEN_FILE).read_bytes())
        if isinstance(found, dict) and all(isinstance(text, str) for text in found.values()):
            return found
    return {}


def _write(state: Path, token: str, address: str) -> None:
    """Replace the file atomically, so that a full disk keeps the old content; if unchanged, update its time only."""
    path, fresh, content = state / TOKEN_FILE, state / f"{TOKEN_FILE}.new", {"address": address, "token": token}
    with suppress(OSError):
        if _read(state) == content and stat.S_IMODE(path.lstat().st_mode) == OWNER_READS:
            os.utime(path)
            return
        try:
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, OWNER_READS)
            with os.fdopen(file, "w") as stream:
                os.fchmod(file, OWNER_READS)
                json.dump(content, stream)
            fresh.replace(path)
        except OSError:
            fresh.unlink(missing_ok=True)


def _noted(state: Path) -> float:
    with suppress(OSError):
        return (state / TOKEN_FILE).stat().st_mtime
    return 0.0
