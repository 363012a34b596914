"""Times the reading of one weight file, start-up left out, in turns with ``xxh128sum`` on the same file."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grpo_watch.extract.tensors import digest_file

ROUNDS = 15


@dataclass(frozen=True, slots=True)
class Rate:
    """MiB per second of the clock, and per second of processor time, which other jobs on the machine disturb less."""

    wall: float
    cpu: float


def best_rates(file: Path, rounds: int = ROUNDS) -> dict[str, Rate]:
    """Rates of ``xxh128sum`` and of ours with one thread and two: the best of several rounds, taken in turns.

    The best, not the median: whatever else the machine does can only make a round slower.
    """
    ways: dict[str, Callable[[], object]] = {
        "xxh128sum": lambda: subprocess.run(["xxh128sum", str(file)], check=True, capture_output=True),
        "1": lambda: _digest(file, 1),
        "2": lambda: _digest(file, 2),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            wall, cpu = time.perf_counter(), _cpu()
            way()
            taken[name].append((time.perf_counter() - wall, _cpu() - cpu))
    mib = file.stat().st_size / (1 << 20)
    return {name: Rate(*(mib / min(column) for column in zip(*each, strict=True))) for name, each in taken.items()}


def _cpu() -> float:
    """Processor seconds of this process and of the children that ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def _digest(file: Path, threads: int) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        digest_file(descriptor, file.name, threads=threads, expendable=True)  # as the command does, in a child
    finally:
        os.close(descriptor)
