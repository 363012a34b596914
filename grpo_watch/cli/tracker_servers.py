"""Opens inputs that are not files: standard input, and runs on wandb and MLflow servers."""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec.structs import replace

from grpo_watch.archive.remote_folder import refuse_page
from grpo_watch.config.schema import Settings
from grpo_watch.engine.records import Scalar
from grpo_watch.errors import SourceError, UsageError
from grpo_watch.safe_text import visible
from grpo_watch.sources.discovery.discover import Discoverer, FoundRun, newest_write
from grpo_watch.sources.files.stdin import ROTATE_BYTES, Spool
from grpo_watch.sources.trackers.mlflow_server import MlflowServer, is_server
from grpo_watch.sources.trackers.wandb_api.remote import RemotePlace, is_remote, parse_place

if TYPE_CHECKING:
    from grpo_watch.sources.discovery.wandb_discovery import RemoteDiscoverer
    from grpo_watch.sources.trackers.wandb_api.hub import Hub


EVERY, PART = 10.0, 4.0
"""Least seconds between two polls of MLflow servers, and least multiple of the last poll's duration: each poll fetches
all values of every run in progress.
"""

log = logging.getLogger("grpo_watch.mlflow")


def local_paths(paths: Sequence[str]) -> list[str]:
    """The paths without server addresses."""
    return [path for path in paths if not is_remote(path) and not is_server(path)]


class MlflowCopies:
    """Copies of MLflow experiments and runs in a folder, kept up to date by a thread."""

    def __init__(self, addresses: Sequence[str], folder: Path) -> None:
        self.of = {MlflowServer(address, folder): address for address in addresses}
        self.thread = threading.Thread(target=self._run, name="mlflow", daemon=True)
        self.start = self.thread.start
        self._stopping = threading.Event()

    def close(self) -> None:
        """Stop polling; a pending request ends by itself."""
        self._stopping.set()

    def _run(self) -> None:
        problems = dict.fromkeys(self.of, "")
        while not self._stopping.is_set():
            began = time.monotonic()
            for server in self.of:
                problems[server] = self.copied(server, problems[server])
            self._stopping.wait(max(EVERY, PART * (time.monotonic() - began)))

    def copied(self, server: MlflowServer, before: str) -> str:
        """Copy a server's runs; returns why they can't be read, else an empty text. Logs when that changes."""
        problem = ""
        try:
            server.copy()
        except SourceError as error:
            problem = str(error)
        if problem and not before:
            log.error("an MLflow server can't be read", extra={"fields": {"error": problem}})
        elif before and not problem:
            log.warning("the MLflow server answers again", extra={"fields": {"place": server.address}})
        return problem


class Poller:
    """Finds runs; ``start`` begins to poll servers for remote ones, in threads.

    If one of ``threads`` dies, the daemon must end.

    Args:
        paths: paths and addresses to watch.
        settings: the settings in force.
        wake: called when there is new data to read; None: remote runs are read once, to their current end, and the
            caller blocks while the server answers.
        read: absolute paths of files read earlier.
        folder: where copies of MLflow runs are stored.

    Raises:
        UsageError: an address is not ``wandb://entity/project[/run]``, or MLflow is not installed.
    """

    def __init__(
        self,
        paths: Sequence[str],
        settings: Settings,
        wake: Callable[[], None] | None = None,
        read: Collection[str] = (),
        folder: Path | None = None,
    ) -> None:
        local, places = Discoverer(settings.allow_roots, read), [parse_place(path) for path in paths if is_remote(path)]
        self.discoverer: Discoverer | RemoteDiscoverer = local
        self.paths = [Path(path) for path in local_paths(paths)]
        """Paths on this machine, and local copies of runs on MLflow servers."""
        self._asking: list[Hub | MlflowCopies] = []
        self._addresses: dict[Path, str] = {}
        if places:
            self._remote(local, places, settings, wake)
        if folder is not None and (servers := [path for path in paths if is_server(path)]):
            copies = MlflowCopies(servers, folder)
            self._asking.append(copies)
            self._addresses = {server.path: address for server, address in copies.of.items()}
            self.paths.extend(self._addresses)
        self.threads = [part.thread for part in self._asking]

    def start(self) -> None:
        """Start polling the servers."""
        for part in self._asking:
            part.start()

    def close(self) -> None:
        """Stop polling."""
        for part in self._asking:
            part.close()

    def addressed(self, found: FoundRun) -> FoundRun:
        """The run with the server address it was copied from, which settings files use to name it."""
        address = next(filter(None, map(self._addresses.get, found.files)), "")
        return replace(found, remote=address) if address else found

    def _remote(
        self, local: Discoverer, places: Sequence[RemotePlace], settings: Settings, wake: Callable[[], None] | None
    ) -> None:
        """Set up polling of the wandb server in the settings, else of ``WANDB_BASE_URL``."""
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
        self._asking.append(hub)
        if wake is None:
            self.discoverer = RemoteDiscoverer(local, places, hub, pause=threading.Event().wait)
        else:
            self.discoverer = RemoteDiscoverer(local, places, hub, clock=time.time)


def watched_paths(paths: Sequence[str], settings: Settings) -> list[str]:
    """The paths of the command line, else those of the settings file, made absolute.

    Raises:
        UsageError: there are none, or one is of a kind that can't be watched.
    """
    named = list(paths) or [entry.path for entry in settings.runs]
    if not named:
        raise UsageError("nothing to watch: pass the run's output folder, or list it under runs: in grpo-watch.yaml")
    for path in named:
        if path == "-" or ("://" in path and not is_remote(path) and not is_server(path)):
            refuse_page(path)
            raise UsageError(
                f"{path}: unsupported; use a folder, glob, file, wandb://ENTITY/PROJECT[/RUN]"
                " or mlflow://HOST:PORT/EXPERIMENT"
            )
    return [_watched(path) for path in named]


def _watched(path: str) -> str:
    if is_server(path):
        return path
    return str(parse_place(path)) if is_remote(path) else str(Path(path).expanduser().absolute())


def newest_below(folder: Path, allow_roots: Sequence[Path], *, for_agent: bool = False) -> str:
    """The most recently written run below the folder, for a command without PATH; reports its choice on stderr.

    For an agent the report has the run's id from the answers instead: folder names are text written by the run.

    Raises:
        UsageError: there is no run.
    """
    found = Discoverer(allow_roots).discover(folder)
    if not found:
        raise UsageError(
            "no PATH was given and no run was found below the current folder: pass the run's output folder"
            " (`run` also takes runs: in grpo-watch.yaml)"
        )
    newest = max(found, key=newest_write)
    path = str(next(iter(newest.files), newest.root))
    others = f" of {len(found)}" if len(found) > 1 else ""
    shown = visible(path)
    if for_agent:
        from grpo_watch.report.agent import run_id  # noqa: PLC0415  only here

        shown = run_id((Discoverer(allow_roots).discover(Path(path)) or [newest])[0].name)
    sys.stderr.write(f"grpo-watch: no PATH given, taking the newest run{others} below this folder: {shown}\n")
    return path


def waiting_lines(places: Sequence[str]) -> Iterator[str]:
    """A line for each path that does not exist yet or is an empty folder."""
    for place in places:
        if not local_paths([place]) or any(char in place for char in "*?["):
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


STDIN = "-"


@dataclass(frozen=True, slots=True)
class FollowedPaths:
    """Paths to watch, whether a run folder's input has ended, and where temporary state is stored.

    ``overrides`` are settings of every run (``--set``); they win over the settings file.
    """

    paths: list[str]
    ended: Callable[[Path], bool] = lambda _: False
    state: Path | None = None
    overrides: Mapping[str, Scalar] = field(default_factory=dict)


@contextmanager
def local_copies(paths: Sequence[str]) -> Iterator[list[str]]:
    """The paths with ``-`` and MLflow addresses replaced by files that hold all their current data.

    Raises:
        UsageError: an input is empty or missing, or MLflow's client is not installed.
        SourceError: the server can't be read.
    """
    if not any(path == STDIN or is_server(path) for path in paths):
        yield list(paths)
        return
    with TemporaryDirectory(prefix="grpo-watch-") as folder:
        yield [str(_copied(path, Path(folder)) if path == STDIN or is_server(path) else path) for path in paths]


def _copied(path: str, folder: Path) -> Path:
    if path == STDIN:
        made = Spool(_stream(), folder).copy()
        if made is None:
            raise UsageError("-: standard input is empty")
        return made
    server = MlflowServer(path, folder)
    if not server.copy():
        raise UsageError(f"{server.address}: no such file or folder")
    return server.path


@contextmanager
def follow_stdin(paths: Sequence[str]) -> Iterator[FollowedPaths]:
    """The paths with ``-`` replaced by a file that grows with standard input."""
    if STDIN not in paths:
        yield FollowedPaths(list(paths))
        return
    with TemporaryDirectory(prefix="grpo-watch-") as folder:
        root = Path(folder)
        spool = Spool(_stream(), root, ROTATE_BYTES)
        threading.Thread(target=spool.copy, name="stdin", daemon=True).start()
        others = [path for path in paths if path != STDIN]
        yield FollowedPaths([*others, *map(str, spool.paths)], lambda run: spool.ended and run == root, root / "state")


def _stream() -> BufferedReader:
    if sys.stdin is None:  # a service manager may close it
        raise UsageError("-: standard input is closed")
    return open(sys.stdin.fileno(), "rb", closefd=False)
