"""Processes that do pieces of work for this one: the daemon's worker, and many runs at once.

If one dies (out of memory, killed), only its piece of work fails.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from grpo_watch.children.child import bound_memory, follow_parent, isolate

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

T = TypeVar("T")
Work: TypeAlias = Callable[[T], bytes]
"""A top-level function for one piece of work; it and its result can be sent between processes."""
IDLE_SECONDS = 90.0
"""A job that logs a step a minute keeps its process: starting one takes half a second, and longer on a busy machine."""
NICENESS = 10
LONG_WORK = 64 << 20
"""Bytes from which a piece of work is long: about a quarter of a second to hash, and more from a shared disk."""


def _pool(processes: int, initializer: Callable[[], None]) -> ProcessPoolExecutor:
    import multiprocessing  # noqa: PLC0415  most runs need none
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415  the same

    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer)


class Worker:
    """One process for short work and one for long, so that completions don't wait for another run's large checkpoint.

    Each is started at its first piece of work and ended when idle. If one dies (out of memory), its work fails, and a
    new one starts with the next piece.

    Args:
        done: called, from another thread, whenever a piece is done.
        clock: monotonic seconds.
    """

    def __init__(self, done: Callable[[], None], clock: Callable[[], float]) -> None:
        self._lanes = _Lane(done, clock), _Lane(done, clock)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run a top-level function in a process; after ``stop`` nothing is started and no future completes.

        Its duration is estimated from the files or folders among its arguments. Reading at a limited speed
        (``ReadLimits.io_limit``) counts as long: two at once would read at twice that speed.
        """
        size = sum(size_of(argument) for argument in arguments if isinstance(argument, Path))
        limited = any(getattr(argument, "io_limit", 0.0) for argument in arguments)
        return self._lanes[limited or size >= LONG_WORK].submit(function, *arguments)

    def rest(self) -> None:
        """End processes that were idle for a while; call it now and then."""
        for lane in self._lanes:
            lane.rest()

    def stop(self) -> None:
        """End at once; running work is dropped, and the daemon's exit does not wait for it."""
        for lane in self._lanes:
            lane.stop()

    @property
    def processes(self) -> tuple[int | None, int | None]:
        """The process ids for short and for long work, None if not running."""
        return self._lanes[0].process, self._lanes[1].process


class _Lane:
    """One process of a worker, and its waiting work."""

    def __init__(self, done: Callable[[], None], clock: Callable[[], float]) -> None:
        self._done, self._clock = done, clock
        self._pool: ProcessPoolExecutor | None = None
        self._open = 0
        self._used = 0.0
        self._stopped = False
        self._lock = threading.Lock()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        if self._stopped:
            return Future()
        for attempt in (1, 2):
            if self._pool is None:
                self._pool = _pool(1, _begin)
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
        if self._pool is not None and self._open == 0 and self._clock() - self._used >= IDLE_SECONDS:
            self._drop()

    def stop(self) -> None:
        self._stopped = True
        process = self.process
        self._drop()
        if process is not None:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    @property
    def process(self) -> int | None:
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
    """Set up a process that works for another one: it ignores the terminal's Ctrl-C and exits with its parent.

    Its input was written by others: it has no network if the kernel allows that (before it has threads), and a piece of
    work ends if it needs more memory than any honest file does.
    """
    isolate()
    bound_memory()
    follow_parent()


def size_of(path: Path) -> int:
    """Bytes of a file, or of the files of a folder; 0 if unreadable, which its source reports."""
    try:
        if not path.is_dir():
            return path.stat().st_size
        with os.scandir(path) as listing:
            return sum(item.stat(follow_symlinks=False).st_size for item in listing)
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one piece of work: the function's bytes, or the reason why there are none."""

    place: int
    result: bytes = b""
    error: str = ""


def processors() -> int:
    """The number of processors this process may use."""
    return len(os.sched_getaffinity(0))


def in_processes(work: Work[T], pieces: Sequence[T], processes: int) -> Iterator[Answer]:
    """Do all pieces, ``processes`` at a time; yields one answer per piece, in the order of completion.

    If a process dies (killed, out of memory), the pieces in work are repeated one by one: the one that kills its
    process a second time gets an error, the others their results.
    """
    left = deque(range(len(pieces)))
    while left:
        suspects = yield from _together(work, pieces, left, processes)
        for place in suspects:
            yield from _alone(work, pieces[place], place)


def _together(
    work: Work[T], pieces: Sequence[T], left: deque[int], processes: int
) -> Generator[Answer, None, list[int]]:
    """Do the pieces of ``left`` until none is left or a process dies; returns those in work at that moment."""
    pool = _pool(processes, follow_parent)
    running: dict[Future[bytes], int] = {}
    suspects: list[int] = []
    try:
        while left or running:
            while left and len(running) < processes and not suspects:
                place = left.popleft()
                try:
                    running[pool.submit(work, pieces[place])] = place
                except BrokenExecutor:
                    suspects.append(place)
            if not running:
                return suspects
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                place = running.pop(future)
                if isinstance(future.exception(), BrokenExecutor):
                    suspects.append(place)
                else:
                    yield _answer(place, future)
        return suspects
    finally:
        pool.shutdown(cancel_futures=True)


def _alone(work: Work[T], piece: T, place: int) -> Iterator[Answer]:
    pool = _pool(1, follow_parent)
    try:
        yield _answer(place, pool.submit(work, piece))
    finally:
        pool.shutdown(cancel_futures=True)


def _answer(place: int, future: Future[bytes]) -> Answer:
    try:
        return Answer(place, future.result())
    except BrokenExecutor:
        return Answer(place, error="the process that read it was killed, twice (out of memory?)")
    except Exception as error:  # noqa: BLE001  one piece of work never stops the others
        return Answer(place, error=f"{type(error).__name__}: {error}")
