"""Starts real servers (Alertmanager, Pushgateway) for a test, on free ports of the loopback address."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.process import until


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def alertmanager_command(program: str, config: Path, folder: Path, port: int) -> list[str]:
    """A lone Alertmanager that keeps its state in ``folder``."""
    return [
        program,
        f"--config.file={config}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]


def prometheus_command(program: str, config: Path, folder: Path, port: int) -> list[str]:
    """A Prometheus that keeps its series in ``folder``."""
    return [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]


@dataclass
class Served:
    """A running server."""

    url: str
    child: subprocess.Popen[bytes]


@contextmanager
def serving(command: Sequence[str], port: int, ready: str) -> Iterator[Served]:
    """The server behind a command, once ``ready`` answers; killed at the end."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(f"{url}{ready}", timeout=5).is_success
        except httpx.TransportError:
            return False

    try:
        until(answers, child)
        yield Served(url, child)
    finally:
        child.kill()
        child.wait()
