"""Measures a command, ours or a peer's: seconds and peak memory; or keeps it running and queries it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile

KIB_PER_MIB = 1024
STARTER = Path(__file__).resolve().with_name("starter.py")
PAUSE = threading.Event()
"""Never set: waited on between two looks at a peer."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one command took: wall-clock seconds, peak resident MiB, and processor seconds, children included."""

    seconds: float
    peak_mib: float
    cpu_seconds: float = 0.0


def as_installed() -> dict[str, str]:
    """The environment without the setting that keeps Python from storing compiled modules, as installers do."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def once(command: Sequence[str], accepted: Sequence[int] = (0,)) -> Cost:
    """Run a command to its end, output thrown away.

    Raises:
        RuntimeError: it ended with another code than ``accepted``; the text is the end of its output.
    """
    with TemporaryFile() as output, TemporaryFile() as report:
        starter = [sys.executable, "-IS", str(STARTER), str(report.fileno()), *command]
        done = subprocess.run(
            starter,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[report.fileno()],
            env=as_installed(),
            check=False,
        )
        report.seek(0)
        code, seconds, peak, cpu = map(float, report.read().split() or (done.returncode, 0, 0, 0))
        if code not in accepted:
            output.seek(0)
            text = output.read().decode(errors="replace")[-500:]
            raise RuntimeError(f"{command[0]} ended with {code:.0f}: {text}")
    return Cost(seconds, peak / KIB_PER_MIB, cpu)


def side_by_side(commands: Sequence[Sequence[str]], repeats: int = 3, accepted: Sequence[int] = (0,)) -> list[Cost]:
    """The median cost of each command, taken in turns so that a slow moment of the machine hits all of them."""
    rounds = [[once(command, accepted) for command in commands] for _ in range(repeats)]
    costs = list(zip(*rounds, strict=True))
    return [
        Cost(median(c.seconds for c in each), max(c.peak_mib for c in each), median(c.cpu_seconds for c in each))
        for each in costs
    ]


def machine() -> str:
    """The machine in words that hold for any like it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, Linux, Python {version}"


def write_between(file: Path, begin: str, end: str, text: str) -> None:
    """Put a measured table between two marks of a file."""
    before, _, rest = file.read_text(encoding="utf-8").partition(begin)
    file.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def resident_mib(pid: int) -> float:
    """Resident memory of a running process, now."""
    found = re.search(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"process {pid} has no resident memory")
    return int(found[1]) / KIB_PER_MIB


@dataclass(frozen=True, slots=True)
class Live:
    """A running exporter."""

    pid: int
    metrics_url: str

    def step(self) -> int:
        """The newest ``grpo_step`` that it shows (-1: none yet)."""
        with urllib.request.urlopen(self.metrics_url, timeout=5) as answer:
            found = re.search(r"^grpo_step(?:\{[^}]*\})? (\S+)$", answer.read().decode(), re.MULTILINE)
        return int(float(found[1])) if found else -1

    def wait_for(self, step: int, limit: float = 20.0) -> float:
        """Ask until ``step`` shows; the seconds that took."""
        start = time.perf_counter()
        while self.step() < step:
            if time.perf_counter() - start > limit:
                raise RuntimeError(f"{self.metrics_url}: step {step} did not show within {limit} s")
            PAUSE.wait(0.001)
        return time.perf_counter() - start


@contextmanager
def running(command: Sequence[str], address: Callable[[Path], str | None], output: Path) -> Iterator[Live]:
    """Start an exporter, wait until ``address`` finds its metrics URL in the output; stop it at the end."""
    with output.open("wb") as file:
        child = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=as_installed())
    try:
        yield Live(child.pid, _address(child, address, output))
    finally:
        child.terminate()
        child.wait(timeout=20)


def _address(child: subprocess.Popen[bytes], address: Callable[[Path], str | None], output: Path) -> str:
    deadline = time.perf_counter() + 60.0
    while time.perf_counter() < deadline and child.poll() is None:
        found = address(output)
        if found is not None:
            return found
        PAUSE.wait(0.02)
    raise RuntimeError(f"did not start: {output.read_text(errors='replace')[-500:]}")
