"""Reads the dumped completions of a long run in several processes at once, for commands that read it to its end."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grpo_watch.children.worker import attach
from grpo_watch.sources.deferred import DeferredWork, Submit

LARGE = 128 << 20
"""Bytes of dumps from which it pays: a process takes half a second to start, these take one to two to read."""
MOST = 3
"""Processes: while they read, the calling one judges, and a fourth would wait for it."""


@contextmanager
def crew(backlog: int) -> Iterator[Submit | None]:
    """What so many bytes of dumps are read by; None where one process does it as well.

    Processes are started as work comes, as many as there are processors for, and none is left behind. Where one dies
    (out of memory, killed), what it should have read is read here.
    """
    size = min(MOST, len(os.sched_getaffinity(0)))
    if size == 1 or backlog < LARGE:
        yield None
        return
    pool = ProcessPoolExecutor(size, multiprocessing.get_context("spawn"), attach)
    try:
        yield _Crew(pool).submit
    finally:
        pool.shutdown(cancel_futures=True)


def size_of(path: Path) -> int:
    """Bytes of a file, or of the files of a folder; 0 where it can't be read, which its source reports."""
    try:
        if not path.is_dir():
            return path.stat().st_size
        with os.scandir(path) as listing:
            return sum(item.stat(follow_symlinks=False).st_size for item in listing)
    except OSError:
        return 0


class _Crew:
    """Hands work to a pool; what fails there, as where a process died, is done here, and raises here if it must."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def submit(self, function: Callable[..., Any], *arguments: Any) -> DeferredWork | _Answer:
        """Run a top-level function."""
        here = DeferredWork(function, arguments)
        try:
            return _Answer(self._pool.submit(function, *arguments), here)
        except BrokenExecutor:
            return here


class _Answer:
    """A result that comes from a process, or from here."""

    def __init__(self, future: Future[Any], here: DeferredWork) -> None:
        self._future, self._here = future, here

    def done(self) -> bool:
        """Whether it is there."""
        return self._future.done()

    def result(self) -> Any:
        """The result; waits for it, and raises what the work raised."""
        try:
            return self._future.result()
        except MemoryError:
            raise  # it would take as much here, where nothing bounds it
        except Exception:  # noqa: BLE001  any failure is found out here
            return self._here.result()
