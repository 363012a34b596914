"""Takes standard input (``-`` on the command line) or an MLflow server's runs in: into a temporary file."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryDirectory

from grpo_watch.engine.records import Scalar
from grpo_watch.errors import UsageError
from grpo_watch.sources.files.stdin import ROTATE_BYTES, Spool
from grpo_watch.sources.trackers.mlflow_server import MlflowServer, is_server

STDIN = "-"


@dataclass(frozen=True, slots=True)
class FollowedPaths:
    """What to watch; whether the input of the run in a folder has ended; where state lies that no later command uses.

    ``overrides`` are settings of every run (``--set``), over those of the file.
    """

    paths: list[str]
    ended: Callable[[Path], bool] = lambda _: False
    state: Path | None = None
    overrides: Mapping[str, Scalar] = field(default_factory=dict)


@contextmanager
def taken_in(paths: Sequence[str]) -> Iterator[list[str]]:
    """The paths with ``-`` and places on MLflow servers replaced by files that hold all that is there now.

    Raises:
        UsageError: nothing is there, or MLflow's client is not installed.
        SourceError: the server can't be asked.
    """
    if not any(path == STDIN or is_server(path) for path in paths):
        yield list(paths)
        return
    with TemporaryDirectory(prefix="grpo-watch-") as folder:
        yield [str(_taken(path, Path(folder)) if path == STDIN or is_server(path) else path) for path in paths]


def _taken(path: str, folder: Path) -> Path:
    """The file that holds what came."""
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
def followed(paths: Sequence[str]) -> Iterator[FollowedPaths]:
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
