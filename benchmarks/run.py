"""Measures grpo-watch beside a baseline in the same run and prints one table: ``benchmarks/run.py [--only NAME…]``.

The peer for hashing is a Debian package (``make system-deps``): xxh128sum.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from alert_latency import direct, percentile, scraped
from hash_rate import best_rates, cold_rates
from make_run import rows as healthy_rows
from make_run import swift_line, write_jsonl, write_safetensors
from measure import Live, machine, resident_mib, running, side_by_side, write_between
from writers import FORMATS

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
OURS = str(Path(sys.executable).with_name("grpo-watch"))
FRAMEWORKS = HERE.parent / ".venv-frameworks" / "bin" / "python"
GB_OF_7B, SECONDS_BETWEEN_PROBES = 15.2, 300.0
DIRECT_TRIALS, SCRAPED_TRIALS = 40, 8
USUAL_ROWS = 200
"""Nine of ten recorded runs are no longer."""
LAUNCH = "swift rlhf --rlhf_type grpo --num_generations 8 --per_device_train_batch_size 3 --dataset data#8000"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: ours, the baseline's, and which of two is better shown as a factor."""

    what: str
    ours: str
    baseline: str
    factor: float | None = None

    def markdown(self) -> str:
        """The line as a Markdown table row."""
        factor = "" if self.factor is None else f"{self.factor:.2g}"
        return f"| {self.what} | {self.ours} | {self.baseline} | {factor} |"


@dataclass(frozen=True, slots=True)
class Options:
    """What the benchmarks share."""

    folder: Path
    rows: int
    hash_mib: int


def bench_check(options: Options) -> list[Line]:
    """``check`` of a run of usual length in each format, and of a long ms-swift log, also with an alert firing."""
    usual = []
    for what, write in FORMATS.items():
        folder = options.folder / f"usual-{what.replace(' ', '-')}"
        write(folder, USUAL_ROWS)
        usual += _check(f"check, {what}, {USUAL_ROWS} rows", folder)
    folder, faulty = options.folder / "jsonl", options.folder / "firing"
    write_jsonl(folder, options.rows)
    write_jsonl(faulty, options.rows, dead_from=options.rows // 50)
    return [
        *usual,
        *_check(f"check, ms-swift JSONL, {options.rows:,} rows", folder),
        *_check("check, the same with one alert firing", faulty),
    ]


def _check(what: str, folder: Path) -> list[Line]:
    command = [OURS, "check", str(folder), "--format", "json", "--fail-on", "never", "--ended"]
    (cost,) = side_by_side([command])
    return [
        Line(f"{what}: seconds of processor time", f"{cost.cpu_seconds:.2f}", ""),
        Line(f"{what}: peak MiB", f"{cost.peak_mib:.0f}", ""),
    ]


def bench_pipeline(options: Options) -> list[Line]:
    """Parse, normalise and detectors without start-up, beside ``json.loads``."""
    log = write_jsonl(options.folder / "pipeline", options.rows)
    command = [sys.executable, str(HERE / "pipeline_rows.py"), str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ours, peer = map(float, done.stdout.split())
    flat = [command[0], command[1], "--rows", str(options.rows), "--tenths"]
    rules, *tenths = map(float, subprocess.run(flat, capture_output=True, text=True, check=True).stdout.split())
    return [
        Line("pipeline alone: µs per row", f"{ours:.1f}", f"json.loads only {peer:.1f}", peer / ours),
        Line("all rules alone: µs per row", f"{rules:.1f}", ""),
        Line(
            f"normalise and rules over {options.rows:,} rows: µs per row, by tenth of the run",
            " ".join(f"{cost:.0f}" for cost in tenths),
            "",
        ),
    ]


def bench_start(_options: Options) -> list[Line]:
    """``--help`` and ``preflight`` of a launch that will be refused, beside a Python that does nothing."""
    commands = [[OURS, "--help"], [OURS, "preflight", "--", *LAUNCH.split()], [sys.executable, "-c", "pass"]]
    shown, judged, peer = side_by_side(commands, repeats=7, accepted=(0, 1))
    nothing = f"python -c pass {peer.seconds:.3f}"
    return [
        Line("--help: seconds", f"{shown.seconds:.3f}", nothing),
        Line("preflight, refused launch with suggestions: seconds (target 0.5)", f"{judged.seconds:.3f}", nothing),
    ]


def bench_daemon(options: Options) -> list[Line]:
    """Memory with one run, and the time from a row's write until /metrics shows it."""
    folder = options.folder / "live"
    output = options.folder / "daemon.log"
    command = [OURS, "run", str(folder), "--listen", "127.0.0.1:0", "--state-dir", str(options.folder / "state")]
    ours = _live(folder, command, _printed_address, output)
    return [
        Line("daemon, one run: resident MiB", f"{ours[0]:.0f}", ""),
        Line("write to /metrics: p50 ms", f"{ours[1]:.0f}", ""),
        Line("write to /metrics: p99 ms", f"{ours[2]:.0f}", ""),
    ]


def _live(
    folder: Path, command: Sequence[str], address: Callable[[Path], str | None], output: Path
) -> tuple[float, float, float]:
    """Resident MiB, and p50 and p99 of the latency in milliseconds over 100 appended rows."""
    start, more = 50, 100
    lines = [swift_line(row, start + more) for row in healthy_rows(start + more)]
    log = write_jsonl(folder, start)
    log.write_text("".join(lines[:start]))
    with running(command, address, output) as live:
        live.wait_for(start)
        delays = sorted(_delay(live, log, line, step) for step, line in enumerate(lines[start:], start + 1))
        return resident_mib(live.pid), 1000 * median(delays), 1000 * delays[98]


def _append(log: Path, line: str) -> None:
    with log.open("a") as out:
        out.write(line)


def _delay(live: Live, log: Path, line: str, step: int) -> float:
    _append(log, line)
    return live.wait_for(step)


def _printed_address(output: Path) -> str | None:
    found = re.search(r"http://127\.0\.0\.1:[0-9]+", output.read_text(errors="replace"))
    return f"{found[0]}/metrics" if found else None


def bench_hash(options: Options) -> list[Line]:
    """Checksums of every tensor of one checkpoint, beside one checksum of the whole file; both from the page cache."""
    file = write_safetensors(options.folder / "checkpoint-1", options.hash_mib)
    command = [OURS, "digest", str(file.parent), "--format", "json"]
    ours, peer = side_by_side([command, ["xxh128sum", str(file)]])
    mib = file.stat().st_size / (1 << 20)
    speed = [mib / cost.seconds for cost in (ours, peer)]
    rates, cold = best_rates(file), cold_rates(file)
    bare, one, theirs = rates["whole"], rates["each"], rates["xxh128sum"]
    whole, load = f"digest, {mib:.0f} MiB", os.getloadavg()[0]
    return [
        Line(f"{whole}: MiB/s", f"{speed[0]:,.0f}", f"xxh128sum {speed[1]:,.0f}", speed[0] / speed[1]),
        Line(f"{whole}: peak MiB", f"{ours.peak_mib:.0f}", f"xxh128sum {peer.peak_mib:.0f}"),
        _rate("one checksum of the file, one thread: MiB per CPU second", bare.cpu, theirs.cpu),
        _rate("one checksum of the file, one thread: MiB/s", bare.wall, theirs.wall),
        _rate("every tensor checked and hashed, one thread: MiB per CPU second", one.cpu, theirs.cpu),
        _rate("every tensor checked and hashed, one thread: MiB/s", one.wall, theirs.wall),
        _rate("the same from the disk, one thread: MiB/s", cold["each"].wall, cold["xxh128sum"].wall),
        Line("load average while it was measured (above 1 only ratios of CPU time count)", f"{load:.1f}", ""),
    ]


def _rate(what: str, ours: float, theirs: float) -> Line:
    return Line(what, f"{ours:,.0f}", f"xxh128sum {theirs:,.0f}", ours / theirs)


def bench_alerts(options: Options) -> list[Line]:
    """From a row's write until its alert is active in a real Alertmanager, sent directly and through Prometheus."""
    sent, asked = direct(options.folder, DIRECT_TRIALS), scraped(options.folder, SCRAPED_TRIALS)
    return [
        Line(
            f"write to Alertmanager, sent directly: p50, p95 s of {len(sent)} (target p95 2)",
            f"{median(sent):.2f}, {percentile(sent, 0.95):.2f}",
            "",
        ),
        Line(
            f"write to Alertmanager, through Prometheus at 15 s: median, longest s of {len(asked)} (target 60)",
            f"{median(asked):.1f}, {max(asked):.1f}",
            "",
        ),
    ]


def bench_callback(_options: Options) -> list[Line]:
    """A probe of weights on the CPU, beside a copy of the same bytes, and what a tensor of any size costs."""
    if not FRAMEWORKS.exists():
        raise SystemExit("callback: torch is needed (scripts/setup frameworks)")
    command = [str(FRAMEWORKS), str(HERE / "probe_cost.py"), "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    lines = [
        Line(
            f"callback, {row['type']}: s of processor time per GB on one core",
            f"{row['cpu']:.2f}",
            f"copy {row['copy']:.2f}",
            row["copy"] / row["cpu"],
        )
        for row in found["rows"]
    ]
    share = found["rows"][0]["cpu"] * GB_OF_7B / SECONDS_BETWEEN_PROBES
    each = 1e6 * found["seconds"] / found["tensors"]
    return [
        *lines,
        Line(
            "callback, 7.6 billion parameters in bf16 on one core, every 10 steps of 30 s: % of the time",
            f"{100 * share:.1f}",
            "",
        ),
        Line(f"callback, {found['tensors']:,} tensors: µs of processor time each", f"{each:.0f}", ""),
    ]


BENCHMARKS: Mapping[str, Callable[[Options], list[Line]]] = {
    "check": bench_check,
    "pipeline": bench_pipeline,
    "start": bench_start,
    "daemon": bench_daemon,
    "hash": bench_hash,
    "alerts": bench_alerts,
    "callback": bench_callback,
}


def table(lines: Sequence[Line]) -> str:
    """The lines as a Markdown table."""
    head = ["| what | grpo-watch | baseline | ours / baseline |", "|---|---|---|---|"]
    return "\n".join([*head, *(line.markdown() for line in lines)])


def main() -> None:
    """Command line of the runner."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [name for name in BENCHMARKS if name != "callback" or FRAMEWORKS.exists()]
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=usual)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--hash-mib", type=int, default=1024)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    chosen = parser.parse_args()
    peers = () if chosen.only == ["callback"] else ("xxh128sum", "prometheus")
    missing = [name for name in peers if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)} (make system-deps)")
    lines: list[Line] = []
    for name in chosen.only:
        with TemporaryDirectory() as folder:
            lines += BENCHMARKS[name](Options(Path(folder), chosen.rows, chosen.hash_mib))
        print(f"{name}: done", file=sys.stderr)
    text = f"{table(lines)}\n\n({machine()})"
    print(text)
    if chosen.write:
        write_between(README, BEGIN, END, text)


if __name__ == "__main__":
    main()
