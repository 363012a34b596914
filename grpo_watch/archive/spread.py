"""Spreads pieces of work over processes of this machine; a piece that kills its process is tried once more, alone."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from grpo_watch.children.worker import follow_parent

T = TypeVar("T")
Work: TypeAlias = Callable[[T], bytes]
"""A top-level function of one piece of work, which can be sent to another process like its result."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of the piece of work at this place: the function's bytes, or why there are none."""

    place: int
    result: bytes = b""
    error: str = ""


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def in_processes(work: Work[T], pieces: Sequence[T], processes: int) -> Iterator[Answer]:
    """Do all pieces, ``processes`` at a time; answers come as they are ready, one for each piece.

    Where a process dies (killed, out of memory), the pieces in work are done again one by one: the one that kills its
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
    """Take pieces off ``left`` until none is left, or a process died; returns those in work at that moment."""
    pool = _pool(processes)
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
    pool = _pool(1)
    try:
        yield _answer(place, pool.submit(work, piece))
    finally:
        pool.shutdown(cancel_futures=True)


def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), follow_parent)


def _answer(place: int, future: Future[bytes]) -> Answer:
    try:
        return Answer(place, future.result())
    except BrokenExecutor:
        return Answer(place, error="the process that read it was killed, twice (out of memory?)")
    except Exception as error:  # noqa: BLE001  one piece of work never stops the others
        return Answer(place, error=f"{type(error).__name__}: {error}")
