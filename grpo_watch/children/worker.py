"""Runs heavy work (checksums of a checkpoint, Parquet) in one low-priority process that ends when it is idle."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any

from grpo_watch.children.isolation import isolate

IDLE_SECONDS = 20.0
NICENESS = 10
MEMORY = 3 << 30
"""Bytes of address space in addition to the program. pyarrow reserves one GB, and a dump of 2,048 completions of 40 KB
takes 1.2 GB with that, of which 160 MB are used."""


class Worker:
    """One worker process, started at the first piece of work and ended when idle.

    A process that dies (out of memory) fails its work and is replaced by a new one at the next piece.

    Args:
        done: called, from another thread, whenever a piece is done.
        clock: monotonic seconds.
    """

    def __init__(self, done: Callable[[], None], clock: Callable[[], float]) -> None:
        self._done, self._clock = done, clock
        self._pool: ProcessPoolExecutor | None = None
        self._open = 0
        self._used = 0.0
        self._stopped = False
        self._lock = threading.Lock()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run a top-level function there; after ``stop`` nothing is begun, and nothing is ever done."""
        if self._stopped:
            return Future()
        for attempt in (1, 2):
            if self._pool is None:
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_begin)
            try:
                future = self._pool.submit(function, *arguments)
            except RuntimeError:  # the process had died (BrokenProcessPool)
                self._drop()
                if attempt == 2:  # noqa: PLR2004
                    raise
                continue
            break
        with self._lock:
            self._open += 1
        future.add_done_callback(self._finished)
        return future

    def rest(self) -> None:
        """End the process if nothing was to do for a while; called now and then."""
        if self._pool is not None and self._open == 0 and self._clock() - self._used >= IDLE_SECONDS:
            self._drop()

    def stop(self) -> None:
        """End at once; work under way is dropped, and the daemon's exit waits for none."""
        self._stopped = True
        process = self.process
        self._drop()
        if process is not None:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    @property
    def process(self) -> int | None:
        """The process id of the worker, None while there is none."""
        return next(iter(getattr(self._pool, "_processes", None) or {}), None)

    def _finished(self, _: Future[Any]) -> None:
        with self._lock:
            self._open -= 1
        self._used = self._clock()
        self._done()

    def _drop(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    os.nice(NICENESS)
    attach()


def attach() -> None:
    """Set a process up that works for another one: deaf to Ctrl-C of the terminal, gone when the other is gone.

    What it works on was written by others: it has no network where the kernel allows that (before it has threads), and
    more memory than any honest file needs ends the piece of work.
    """
    isolate()
    _bound_memory()
    follow_parent()


def follow_parent() -> None:
    """Ignore Ctrl-C, which the parent handles, and exit with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def _bound_memory() -> None:
    """Let the process grow by ``MEMORY`` bytes of address space at most."""
    import numpy  # noqa: PLC0415, F401, ICN001  the stacks of its threads grow with the number of processors

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([pages * resource.getpagesize() + MEMORY, *limits]), hard))


def _follow(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
