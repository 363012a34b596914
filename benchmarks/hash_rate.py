"""Times the reading of one weight file, start-up left out, in turns with ``xxh128sum`` on the same file."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grpo_watch.sources.checkpoints.tensor_hash import Layout, digest_file
from grpo_watch.sources.checkpoints.tensor_layout import read_layout, whole_file

ROUNDS, COLD_ROUNDS = 15, 3


@dataclass(frozen=True, slots=True)
class Rate:
    """MiB per second of the clock, and per second of processor time, which other jobs on the machine disturb less."""

    wall: float
    cpu: float


def best_rates(file: Path, rounds: int = ROUNDS) -> dict[str, Rate]:
    """Rates from the page cache, the best of several rounds taken in turns.

    ``whole`` is what ``xxh128sum`` does: one checksum of all bytes. ``each`` takes a checksum per tensor
    and looks at every element for numbers that are not finite. The best, not the median: other work on the machine
    can only make a round slower.
    """
    ways: dict[str, Callable[[], object]] = {
        "xxh128sum": lambda: _peer(file),
        "whole": lambda: _digest(file, whole_file),
        "each": lambda: _digest(file),
    }
    return _best(file, ways, rounds, lambda: None)


def cold_rates(file: Path, rounds: int = COLD_ROUNDS) -> dict[str, Rate]:
    """The same from the disk: the file's pages are dropped from the page cache before each reading."""
    ways: dict[str, Callable[[], object]] = {"xxh128sum": lambda: _peer(file), "each": lambda: _digest(file)}
    return _best(file, ways, rounds, lambda: _forget(file))


def _best(
    file: Path, ways: dict[str, Callable[[], object]], rounds: int, before: Callable[[], None]
) -> dict[str, Rate]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            before()
            wall, cpu = time.perf_counter(), _cpu()
            way()
            taken[name].append((time.perf_counter() - wall, _cpu() - cpu))
    mib = file.stat().st_size / (1 << 20)
    return {name: Rate(*(mib / min(column) for column in zip(*each, strict=True))) for name, each in taken.items()}


def _peer(file: Path) -> None:
    subprocess.run(["xxh128sum", str(file)], check=True, capture_output=True)


def _forget(file: Path) -> None:
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _cpu() -> float:
    """Processor seconds of this process and of the children that ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def _digest(file: Path, layout: Layout = read_layout) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        digest_file(descriptor, file.name, None, layout)
    finally:
        os.close(descriptor)
