"""Measures the reading of dumps beside pandas and polars: ``python -m benchmarks.rollouts.run --size 100``.

Each is a fresh process over the same files, start-up included, in turns; totals that differ end the run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Cost, machine, side_by_side, write_between
from benchmarks.rollouts.make import write_jsonl, write_parquet

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- rollouts: begin -->", "<!-- rollouts: end -->"
TOTALS = 5
"""Of the numbers that each prints, these are the same computation: rows, groups, repeated, empty, characters."""


@dataclass(frozen=True, slots=True)
class Way:
    """One program and what it is called in the table."""

    name: str
    module: str
    options: tuple[str, ...] = ()

    def command(self, path: Path) -> list[str]:
        """How it is started."""
        return [sys.executable, "-m", f"benchmarks.rollouts.{self.module}", str(path), *self.options]


OURS = Way("grpo-watch", "ours")
WAYS = (
    OURS,
    Way("pandas, counts only", "with_pandas"),
    Way("pandas, the same", "with_pandas", ("--same",)),
    Way("polars, counts only", "with_polars"),
    Way("polars, the same", "with_polars", ("--same",)),
)


def totals(way: Way, path: Path) -> list[str]:
    """What it counted."""
    done = subprocess.run(way.command(path), capture_output=True, text=True, check=True)
    return done.stdout.split()[:TOTALS]


def lines(what: str, path: Path, repeats: int) -> list[str]:
    """One line of the table per program.

    Raises:
        SystemExit: one of them counted something else.
    """
    counted = {way.name: totals(way, path) for way in WAYS}
    if len({tuple(each) for each in counted.values()}) != 1:
        raise SystemExit(f"{what}: the totals differ: {counted}")
    costs = side_by_side([way.command(path) for way in WAYS], repeats)
    ours = costs[0]
    return [_line(what, way, cost, ours) for way, cost in zip(WAYS, costs, strict=True)]


def _line(what: str, way: Way, cost: Cost, ours: Cost) -> str:
    factor = "" if way is OURS else f"{cost.seconds / ours.seconds:.2g}"
    cpu = "" if way is OURS else f"{cost.cpu_seconds / ours.cpu_seconds:.2g}"
    figures = f"{cost.seconds:.1f} | {cost.cpu_seconds:.1f} | {cost.peak_mib:.0f}"
    return f"| {what} | {way.name} | {figures} | {factor} | {cpu} |"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=float, default=1_000, metavar="MB", help="size of each dump (10^6 bytes)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=2, help="after a first round, which compares the totals")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    chosen = parser.parse_args()
    table = ["| dump | read by | s | CPU s | peak MiB | s / ours | CPU s / ours |", "|---|---|---|---|---|---|---|"]
    with TemporaryDirectory() as folder:
        for what, write in (("completions.jsonl", write_jsonl), ("Parquet", write_parquet)):
            path = write(Path(folder) / what, chosen.size, chosen.seed)
            table += lines(what, path, chosen.repeats)
            print(f"{what}: done", file=sys.stderr)
    today = datetime.now(tz=timezone.utc).date()
    text = "\n".join([*table, "", f"({chosen.size:,.0f} MB each, seed {chosen.seed}; {today}; {machine()})"])
    print(text)
    if chosen.write:
        write_between(README, BEGIN, END, text)


if __name__ == "__main__":
    main()
