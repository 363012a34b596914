"""Starts real servers (Alertmanager, Pushgateway) for a test, on free ports of the loopback address."""

from __future__ import annotations

import os
import random
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx

from tests.support.process import PATIENCE, until

PORTS = range(12_000, 30_000)
"""Below those that the kernel gives to connections and to servers without a port of their own."""


@cache
def _ports() -> Iterator[int]:
    """Those of this worker of pytest-xdist, each once."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    mine = PORTS[worker::workers]
    return iter(random.SystemRandom().sample(mine, len(mine)))


def free_port() -> int:
    """A port that was free a moment ago, and that no other test is given."""
    for port in _ports():
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


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
            return httpx.get(f"{url}{ready}", timeout=PATIENCE).is_success
        except httpx.TransportError:
            return False

    try:
        until(answers, child)
        yield Served(url, child)
    finally:
        child.kill()
        child.wait()
