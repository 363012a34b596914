"""Many files, many runs, a line of 1 GB, and a mount that goes and comes back: the real daemon beside each of them.

    python -m tests.model.scale_soak [--files 100000] [--runs 500]

Each part prints PASS or FAIL, and its figures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.model.memory_soak import rows_read, sample
from tests.support.high import Run, ready
from tests.support.process import until, watching

ROWS = 5
"""Rows of each run."""
ENTRIES, BOUND = 15_000, 20_000
"""Files beside the runs, and entries after which a search ends: a run's folder and its log are two."""
LINE = 1 << 30
TEXT = b"a text, 32 bytes of it, in turn " * 32_768
MEMORY = 600e6
"""Resident bytes: what 200 runs take; a line that is held in memory would take more."""


def many(folder: Path, files: int, runs: int) -> str:
    """Files that are none of a run's lie beside runs; a search that reaches its bound names what it did not read."""
    for number in range(runs):
        Run(folder, f"run{number}").write(*[0.2] * (ROWS - 1))
    for number in range(files):
        place = folder / "runs" / f"other{number % 100}"
        place.mkdir(exist_ok=True)
        (place / f"sample-{number}.bin").write_bytes(b"\x7f")
    began = time.monotonic()
    with watching(folder / "runs", state=folder / "state") as daemon:
        whole = files + 2 * runs < BOUND
        if whole:
            until(lambda: rows_read(daemon) >= ROWS * runs, daemon.child)
        else:
            until(lambda: "search ended after" in daemon.said(), daemon.child)
        took, resident = time.monotonic() - began, sample(daemon, ROWS).resident
        assert daemon.get("/healthz") == "ok\n"
    what = "all read" if whole else "the bound of the search reached and named"
    return f"{files} files, {runs} runs: {what} after {took:.0f} s; {resident / 1e6:.0f} MB"


def long_line(folder: Path) -> str:
    """The log holds a line of 1 GB of text; what stands behind it is read."""
    run = Run(folder)
    log = run.path / "logging.jsonl"
    with watching(run.path, state=folder / "state") as daemon:
        ready(daemon)
        with log.open("ab") as file:
            file.write(b'{"loss": "')
            for _ in range(LINE // len(TEXT)):
                file.write(TEXT)
            file.write(b'"}\n')
        began = time.monotonic()
        run.write(0.2, 0.2)
        until(lambda: rows_read(daemon) >= 3, daemon.child)
        took, resident = time.monotonic() - began, sample(daemon, 3).resident
    assert resident < MEMORY, resident
    return f"a line of 1 GB: passed over in {took:.0f} s; {resident / 1e6:.0f} MB"


def lost_mount(folder: Path) -> str:
    """All runs go at once, and come back with more rows."""
    runs = [Run(folder, f"run{number}") for number in range(20)]
    away = folder / "away"
    with watching(folder / "runs", state=folder / "state") as daemon:
        ready(daemon)
        (folder / "runs").rename(away)
        until(lambda: "Not found at present" in daemon.get("/api/v1/runs"), daemon.child)
        for run in runs:
            run.path = away / run.path.name
            with (run.path / "logging.jsonl").open("a") as log:
                log.write((run.path / "logging.jsonl").read_text().splitlines()[-1].replace("1/", "2/") + "\n")
        away.rename(folder / "runs")
        began = time.monotonic()
        until(lambda: rows_read(daemon) >= 2 * len(runs), daemon.child)
        took, rows = time.monotonic() - began, rows_read(daemon)
    assert rows == 2 * len(runs), rows
    return f"a mount with {len(runs)} runs, lost and back: each row once, read within {took:.0f} s"


def two_daemons(folder: Path) -> str:
    """With states of their own they read one folder; neither disturbs the other."""
    run = Run(folder)
    before = sorted(path.name for path in run.path.iterdir())
    with watching(run.path, state=folder / "a") as one, watching(run.path, state=folder / "b") as two:
        ready(one)
        ready(two)
        run.write(*[0.2] * 50)
        for daemon in (one, two):
            until(lambda daemon=daemon: rows_read(daemon) >= run.step, daemon.child)
            assert rows_read(daemon) == run.step
    assert sorted(path.name for path in run.path.iterdir()) == before
    return f"two daemons over one folder: {run.step} rows each, nothing written there"


def main() -> int:
    """The exit code: 0 where every part passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=500)
    given, failed = parser.parse_args(), 0
    parts: list[Callable[[Path], str]] = [long_line, lost_mount, two_daemons]
    parts += [
        lambda folder: many(folder, ENTRIES - 1, given.runs),
        lambda folder: many(folder, given.files, given.runs),
    ]
    for part in parts:
        with tempfile.TemporaryDirectory(prefix="soak") as folder:
            try:
                print(f"PASS: {part(Path(folder))}", flush=True)  # noqa: T201  its output
            except AssertionError as error:
                failed += 1
                print(f"FAIL: {part}: {error}", flush=True)  # noqa: T201  its output
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
