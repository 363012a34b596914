"""Measures what rows, runs, rules, tensors and start-up cost in processor time: ``benchmarks/costs.py [--write]``.

Prints a table, and the curves of docs/scale.md. ``--write`` puts both into their pages.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from make_run import rows, write_jsonl
from measure import machine, once, write_between
from writers import FORMATS

from grpo_watch.catalogue import catalogue
from grpo_watch.rules.packs import load_rules

HERE = Path(__file__).resolve().parent
OURS = str(Path(sys.executable).with_name("grpo-watch"))
TABLE, CURVES = HERE / "README.md", HERE.parent / "docs" / "scale.md"
ROWS, RUNS, TENSORS, RULES = (300, 3_000, 30_000, 100_000), (1, 10, 100, 500), (100, 1_000, 10_000, 100_000), 4
SHORT_ROWS = 50
REPEATS = 3
MILLION = 1e6
NOT_EVALUABLE = 3
"""The exit code of a check without any rule."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Processor time at several sizes; ``unit`` names what is counted."""

    unit: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    def marginal(self) -> float:
        """Microseconds that one more costs, from the smallest to the largest size."""
        return MILLION * (self.seconds[-1] - self.seconds[0]) / (self.sizes[-1] - self.sizes[0])

    def markdown(self) -> str:
        """The curve as a chart that GitHub and the documentation site draw, with its table."""
        top = max(self.seconds)
        cells = " | ".join(f"{size:,}" for size in self.sizes)
        times = " | ".join(f"{second:.2f}" for second in self.seconds)
        chart = [
            "```mermaid",
            "xychart-beta",
            f'    title "Processor seconds by {self.unit}; one more costs {self.marginal():,.0f} µs"',
            f"    x-axis [{', '.join(f'{size}' for size in self.sizes)}]",
            f'    y-axis "s" 0 --> {1.1 * top:.2f}',
            f"    bar [{', '.join(f'{second:.3f}' for second in self.seconds)}]",
            "```",
        ]
        grid = [f"| {self.unit} | {cells} |", "|---|" + "---|" * len(self.sizes), f"| processor seconds | {times} |"]
        return "\n".join([*chart, "", *grid])


def cpu(command: Sequence[str]) -> float:
    """Median processor seconds of a command, children included."""
    return median(once(command, accepted=(0, NOT_EVALUABLE)).cpu_seconds for _ in range(REPEATS))


def check(folder: Path, *more: str) -> float:
    """Median processor seconds of ``check`` of a folder."""
    return cpu([OURS, "check", str(folder), "--format", "json", "--fail-on", "never", "--ended", "--jobs", "1", *more])


def json_second(count: int) -> float:
    """Processor seconds of ``json.loads`` of so many rows as JSON, the least of several rounds."""
    lines = [json.dumps(row) for row in rows(count)]
    rounds = []
    for _ in range(REPEATS):
        begin = time.process_time()
        for line in lines:
            json.loads(line)
        rounds.append(time.process_time() - begin)
    return min(rounds)


def over_rows(folder: Path) -> Curve:
    """``check`` of one ms-swift log by its length."""
    for count in ROWS:
        write_jsonl(folder / str(count), count)
    return Curve("rows of one run", ROWS, tuple(check(folder / str(count)) for count in ROWS))


def over_runs(folder: Path) -> Curve:
    """``check`` of a folder of short runs by their number."""
    for count in RUNS:
        for run in range(count):
            write_jsonl(folder / str(count) / f"run-{run}", SHORT_ROWS, seed=run)
    seconds = tuple(check(folder / str(count)) for count in RUNS)
    return Curve(f"runs of {SHORT_ROWS} rows", RUNS, seconds)


def over_rules(folder: Path) -> Curve:
    """``check`` of one log by the number of enabled rules."""
    write_jsonl(folder / "run", ROWS[-2])
    names = [rule.name for rule in load_rules((), detectors=catalogue())]
    sizes = tuple(len(names) * part // (RULES - 1) for part in range(RULES))
    seconds = []
    for size in sizes:
        off = folder / f"{size}.yaml"
        entries = "".join(f"  - {{name: {name}, enabled: false}}\n" for name in names[size:])
        off.write_text(f"rules:\n{entries}" if entries else "rules: []\n")
        seconds.append(check(folder / "run", "--rules", str(off)))
    return Curve(f"rules, {ROWS[-2]:,} rows", sizes, tuple(seconds))


def over_tensors(folder: Path) -> Curve:
    """``digest`` of a checkpoint of small tensors by their number."""
    for count in TENSORS:
        write_tensors(folder / str(count), count)
    seconds = tuple(cpu([OURS, "digest", str(folder / str(count))]) for count in TENSORS)
    return Curve("tensors of 256 bytes", TENSORS, seconds)


def write_tensors(folder: Path, count: int) -> None:
    """A safetensors file of so many tensors of 128 bf16 numbers."""
    folder.mkdir(parents=True)
    header = json.dumps(
        {
            f"model.layers.{index}.weight": {
                "dtype": "BF16",
                "shape": [128],
                "data_offsets": [256 * index, 256 * index + 256],
            }
            for index in range(count)
        }
    ).encode()
    values = b"".join(struct.pack("<64I", *[index & 0x3FFF3FFF] * 64) for index in range(count))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + values)


def formats(folder: Path, count: int) -> list[str]:
    """A row of the table for each format: microseconds per row, and how many times that of ``json.loads``."""
    few = count // 10
    unit = json_second(count) / count
    lines = []
    for place, (name, write) in enumerate(FORMATS.items()):
        write(folder / f"{place}-few", few)
        write(folder / f"{place}", count)
        each = (check(folder / f"{place}") - check(folder / f"{place}-few")) / (count - few)
        lines.append(f"| {name}: one row, without start-up | {MILLION * each:.0f} µs | {each / unit:.1f} |")
    return [*lines, f"| `json.loads` of a row | {MILLION * unit:.1f} µs | 1 |"]


def start_ups(folder: Path) -> list[str]:
    """Rows of the table for commands that do next to nothing."""
    write_jsonl(folder / "ten", 10)
    bare = cpu([sys.executable, "-c", "pass"])
    taken = {
        "`grpo-watch --help`": cpu([OURS, "--help"]),
        "`grpo-watch rules list`": cpu([OURS, "rules", "list"]),
        "`grpo-watch check` of 10 rows": check(folder / "ten"),
    }
    return [
        f"| {name} | {seconds:.2f} s | {seconds / bare:.0f} × `python -c pass` |" for name, seconds in taken.items()
    ]


def main() -> None:
    """Command line of the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="rows of each format")
    parser.add_argument("--write", action="store_true", help="put table and curves into their pages")
    chosen = parser.parse_args()
    with TemporaryDirectory() as scratch:
        here = Path(scratch)
        curves = [measure(here / measure.__name__) for measure in (over_rows, over_runs, over_rules, over_tensors)]
        each = [f"| a run of {SHORT_ROWS} rows among {RUNS[-1]} | {curves[1].marginal() / SHORT_ROWS:.0f} µs a row | |"]
        lines = [*formats(here / "formats", chosen.rows), *each, *start_ups(here / "start")]
    table = "\n".join(["| what | processor time | times `json.loads` |", "|---|---|---|", *lines, "", f"({machine()})"])
    plots = "\n\n".join(curve.markdown() for curve in curves)
    print(table, plots, sep="\n\n")
    if chosen.write:
        write_between(TABLE, "<!-- costs: begin -->", "<!-- costs: end -->", table)
        write_between(CURVES, "<!-- curves: begin -->", "<!-- curves: end -->", plots)


if __name__ == "__main__":
    main()
