"""Measures `check` of an archive by processes and by the processors of a local Ray cluster: one table.

    python benchmarks/archive_scaling.py [--runs 64] [--rows 5000] [--processors 1 2]

Needs Ray for its rows (``pip install 'grpo-watch[ray]'``); without it they are left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from make_run import write_jsonl
from measure import machine

OURS, RAY = (str(Path(sys.executable).with_name(name)) for name in ("grpo-watch", "ray"))
PORT = 26_379


def seconds(folder: Path, *more: str) -> float:
    """How long ``check`` takes."""
    began = time.perf_counter()
    command = [OURS, "check", str(folder), "--format", "json", "--fail-on", "never", "--ended", *more]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def on_cluster(folder: Path, processors: int) -> float:
    """The same on a cluster of one node with so many processors."""
    start = [RAY, "start", "--head", f"--port={PORT}", f"--num-cpus={processors}", "--include-dashboard=false"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(start, check=True, env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}, **quiet)
    try:
        return seconds(folder, "--engine", "ray", "--address", f"127.0.0.1:{PORT}")
    finally:
        subprocess.run([RAY, "stop", "--force"], check=True, **quiet)


def table(folder: Path, processors: Sequence[int]) -> list[str]:
    """The rows of the table: seconds, and how many times as fast as one process."""
    one = seconds(folder, "--jobs", "1")
    found = [("one process", one)]
    found += [(f"{count} processes", seconds(folder, "--jobs", str(count))) for count in processors if count > 1]
    if shutil.which(RAY):
        found += [(f"Ray, {count} processor{'s' * (count > 1)}", on_cluster(folder, count)) for count in processors]
    return [f"| {name} | {taken:.1f} | {one / taken:.2f} |" for name, taken in found]


def main() -> None:
    """Command line of the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--processors", type=int, nargs="+", default=[1, 2])
    chosen = parser.parse_args()
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for run in range(chosen.runs):
            write_jsonl(folder / f"run-{run}", chosen.rows, seed=run)
        head = [f"| {chosen.runs} runs of {chosen.rows:,} rows | s | times as fast |", "|---|---|---|"]
        print("\n".join([*head, *table(folder, chosen.processors), "", f"({machine()})"]))


if __name__ == "__main__":
    main()
