"""Opens what reads runs from wandb servers when a command names ``wandb://…`` addresses, and closes it afterwards."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_watch.config.schema import Settings
from grpo_watch.errors import UsageError
from grpo_watch.safe_text import visible
from grpo_watch.sources.discovery.discover import Discoverer
from grpo_watch.sources.trackers.wandb_api.remote import RemotePlace, is_remote, parse_place

if TYPE_CHECKING:
    from grpo_watch.sources.discovery.wandb_discovery import RemoteDiscoverer


def local_paths(paths: Sequence[str]) -> list[str]:
    """The paths that a user named, without addresses on a server."""
    return [path for path in paths if not is_remote(path)]


class Poller:
    """What finds runs; where remote ones are among them, a thread of its own asks their server once it is started.

    ``threads`` must stay alive: the death of one must end the daemon.

    Args:
        paths: what to watch.
        settings: the settings in force.
        wake: called when there is something new to read; None: remote runs are read to the end of what there is now,
            and finding and reading them waits for the server.
        read: absolute paths of files that were read before.

    Raises:
        UsageError: an address is written in another way than ``wandb://entity/project[/run]``.
    """

    def __init__(
        self,
        paths: Sequence[str],
        settings: Settings,
        wake: Callable[[], None] | None = None,
        read: Collection[str] = (),
    ) -> None:
        local, places = Discoverer(settings.allow_roots, read), [parse_place(path) for path in paths if is_remote(path)]
        self.discoverer: Discoverer | RemoteDiscoverer = local
        self.threads: list[threading.Thread] = []
        self.start: Callable[[], None] = lambda: None
        """Begins to ask."""
        self.close: Callable[[], None] = lambda: None
        """Stops asking."""
        if places:
            self._remote(local, places, settings, wake)

    def _remote(
        self, local: Discoverer, places: Sequence[RemotePlace], settings: Settings, wake: Callable[[], None] | None
    ) -> None:
        """Ask the server that the settings name (else ``WANDB_BASE_URL``'s), once it is started."""
        from grpo_watch.sources.discovery.wandb_discovery import RemoteDiscoverer  # noqa: PLC0415  few name a server
        from grpo_watch.sources.trackers.wandb_api.hub import Hub  # noqa: PLC0415  the same
        from grpo_watch.sources.trackers.wandb_api.process import ClientProcess  # noqa: PLC0415  the same

        server = settings.wandb
        hub = Hub(
            ClientProcess(server.base_url.reveal() if server.base_url is not None else None),
            timer=time.monotonic,
            chance=random.SystemRandom(),
            per_minute=server.requests_per_minute,
            wake=wake or (lambda: None),
        )
        self.start, self.close = hub.start, hub.close
        if wake is None:
            self.discoverer = RemoteDiscoverer(local, places, hub, pause=threading.Event().wait)
        else:
            self.threads.append(hub.thread)
            self.discoverer = RemoteDiscoverer(local, places, hub, clock=time.time)


@contextmanager
def discovering(paths: Sequence[str], settings: Settings) -> Iterator[Discoverer | RemoteDiscoverer]:
    """Finds local runs, and remote ones that are then read to the end of what there is now.

    Raises:
        UsageError: an address is not one.
    """
    poller = Poller(paths, settings)
    try:
        yield poller.discoverer
    finally:
        poller.close()


def watched_paths(paths: Sequence[str], settings: Settings) -> list[str]:
    """The paths of the command line, else those of the settings file, as absolute ones.

    Raises:
        UsageError: there are none, or one is of a kind that is not watched.
    """
    named = list(paths) or [entry.path for entry in settings.runs]
    if not named:
        raise UsageError("nothing to watch: pass the run's output folder, or list it under runs: in grpo-watch.yaml")
    for path in named:
        if path == "-" or ("://" in path and not is_remote(path)):
            raise UsageError(f"{path}: unsupported; use a folder, glob, file or wandb://ENTITY/PROJECT[/RUN]")
    return [str(parse_place(path)) if is_remote(path) else str(Path(path).expanduser().absolute()) for path in named]


def newest_below(folder: Path, allow_roots: Sequence[Path]) -> str:
    """The run below the folder that was written last, where a command names none; says on standard error which.

    Raises:
        UsageError: there is none.
    """
    found = Discoverer(allow_roots).discover(folder)
    if not found:
        raise UsageError(
            "no PATH was given and no run was found below the current folder: pass the run's output folder"
            " (`run` also takes runs: in grpo-watch.yaml)"
        )
    from grpo_watch.daemon.run_reader import newest_write  # noqa: PLC0415  for commands without a path

    newest = max(found, key=newest_write)
    path = str(next(iter(newest.files), newest.root))
    others = f" of {len(found)}" if len(found) > 1 else ""
    sys.stderr.write(f"grpo-watch: no PATH given, taking the newest run{others} below this folder: {visible(path)}\n")
    return path


def missing(places: Sequence[str]) -> Iterator[str]:
    """What is waited for: paths that are not there yet, and folders that hold nothing."""
    for place in places:
        if is_remote(place) or any(char in place for char in "*?["):
            continue
        if not Path(place).exists():
            yield f"waiting for {place}"
        elif Path(place).is_dir() and _is_empty(Path(place)):
            yield f"waiting for a run in {place}, which is empty"


def _is_empty(folder: Path) -> bool:
    try:
        return next(folder.iterdir(), None) is None
    except OSError:
        return False  # discovery reports the error
