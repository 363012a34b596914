"""One server and one process of wandb's own client for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grpo_watch.sources.trackers.wandb_api.process import ClientProcess
from tests.support.wandb_server import KEY, WandbServer, served


@pytest.fixture(scope="session")
def _running() -> Iterator[tuple[WandbServer, ClientProcess]]:
    with served() as server:
        client = ClientProcess(server.url, http_seconds=(20, 60))
        yield server, client
        client.close()


@pytest.fixture
def server(_running: tuple[WandbServer, ClientProcess]) -> WandbServer:
    server = _running[0]
    server.projects.clear()
    server.asked.clear()
    server.variables.clear()
    server.faults.clear()
    server.standing = None
    return server


@pytest.fixture
def client(_running: tuple[WandbServer, ClientProcess], monkeypatch: pytest.MonkeyPatch) -> ClientProcess:
    """Started at its first question; the environment is this test's, as other tests come between."""
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_MODE", "disabled")  # of the training job's shell: must not stop the watcher
    return _running[1]
