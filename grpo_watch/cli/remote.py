"""Opens what reads runs from wandb servers when a command names ``wandb://…`` addresses, and closes it afterwards."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from grpo_watch.config.schema import Settings
from grpo_watch.sources.discover import Discoverer
from grpo_watch.sources.wandb_api.hub import Hub
from grpo_watch.sources.wandb_api.process import ClientProcess
from grpo_watch.sources.wandb_api.remote import RemotePlace, is_remote, parse_place
from grpo_watch.sources.wandb_projects import RemoteDiscoverer


def remote_places(paths: Sequence[str]) -> list[RemotePlace]:
    """The addresses among the paths that a user named.

    Raises:
        UsageError: one is written in another way than ``wandb://entity/project[/run]``.
    """
    return [parse_place(path) for path in paths if is_remote(path)]


def local_paths(paths: Sequence[str]) -> list[str]:
    """The others."""
    return [path for path in paths if not is_remote(path)]


@contextmanager
def discovering(paths: Sequence[str], settings: Settings) -> Iterator[Discoverer | RemoteDiscoverer]:
    """Finds local runs, and remote ones that are then read to the end of what there is now.

    Raises:
        UsageError: an address is not one.
    """
    local, places = Discoverer(settings.allow_roots), remote_places(paths)
    if not places:
        yield local
        return
    hub = make_hub(settings)
    try:
        yield RemoteDiscoverer(local, places, hub, pause=threading.Event().wait)
    finally:
        hub.close()


@contextmanager
def polling(
    paths: Sequence[str], settings: Settings, wake: Callable[[], None]
) -> Iterator[tuple[Discoverer | RemoteDiscoverer, list[threading.Thread]]]:
    """The same for the daemon: a thread of its own asks the server; its death must end the daemon.

    Raises:
        UsageError: an address is not one.
    """
    local, places = Discoverer(settings.allow_roots), remote_places(paths)
    if not places:
        yield local, []
        return
    hub = make_hub(settings, wake)
    hub.start()
    try:
        yield RemoteDiscoverer(local, places, hub, clock=time.time), [hub.thread]
    finally:
        hub.close()


def make_hub(settings: Settings, wake: Callable[[], None] = lambda: None) -> Hub:
    """What asks the server that the settings name (else ``WANDB_BASE_URL``'s); nothing is asked yet."""
    server = settings.wandb
    return Hub(
        ClientProcess(server.base_url.reveal() if server.base_url is not None else None),
        timer=time.monotonic,
        chance=random.SystemRandom(),
        per_minute=server.requests_per_minute,
        wake=wake,
    )
