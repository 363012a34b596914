"""Processes that parse files of a run: no network where the kernel allows it, no core dumps, few descriptors."""

from __future__ import annotations

import multiprocessing
import os
import resource
import socket
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from grpo_watch.children import child
from grpo_watch.children.pool import attach


def _connect(port: int) -> str:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30):
            return "connected"
    except OSError:
        return "no network"


def _limits() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_CORE)[0], resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _isolate() -> bool:
    return child.isolate()


def test_a_process_that_parses_reaches_no_server_of_this_machine(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        if not pool.submit(_isolate).result():
            pytest.skip("Python before 3.12, or the kernel permits no namespaces")
    (tmp_path / "file").write_text("readable")
    (tmp_path / "file").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as server, ProcessPoolExecutor(1, context, attach) as pool:
        assert pool.submit(_connect, server.getsockname()[1]).result() == "no network"
        assert pool.submit(Path.read_text, tmp_path / "file").result() == "readable"
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert _connect(server.getsockname()[1]) == "connected"  # this process keeps its own


def test_a_process_that_parses_dumps_no_core_and_holds_few_descriptors() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), attach) as pool:
        core, files = pool.submit(_limits).result()
    assert core == 0
    assert files <= child.FILES


@pytest.mark.parametrize(
    ("capable", "refused", "asked", "left"),
    [
        (False, 0, [0x4000_0000], True),
        (False, 1, [0x4000_0000, 0x5000_0000], True),
        (False, 2, [0x4000_0000, 0x5000_0000], False),
        (True, 1, [0x4000_0000], False),
    ],
)
def test_one_that_has_capabilities_keeps_them(
    monkeypatch: pytest.MonkeyPatch, *, capable: bool, refused: int, asked: list[int], left: bool
) -> None:
    """A user namespace would take them, and with them files that it may read."""
    ways: list[int] = []

    def unshare(way: int) -> None:
        ways.append(way)
        if len(ways) <= refused:
            raise PermissionError

    monkeypatch.setattr(os, "unshare", unshare, raising=False)
    monkeypatch.setattr(child, "_is_capable", lambda: capable)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    assert child.isolate() is left
    assert ways == asked
