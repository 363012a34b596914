"""Measures whether the daemon reports, while runs happen, what ``check`` finds once they are over; and how late.

    python benchmarks/live.py [--runs tests/runs] [--count 60] [--at-once 10] [--resting 940] [--busy 3]

Recorded runs are written again below one watched folder, each line, checkpoint and completion file in its turn. For
each root finding of ``check`` on the finished folder: did a webhook get it, and how long after the write that completed
it? Ends with 1 where a finding was not reported.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice, repeat
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory

from make_run import write_jsonl

OURS = str(Path(sys.executable).with_name("grpo-watch"))
ROOT = Path(__file__).resolve().parents[1]
TEXTS = {".jsonl", ".log", ".txt", ".out"}
STEP = re.compile(r"(?:checkpoint-|completions_|global_step_|^)0*(\d+)(?:\.\w+)?$")
LAST_STEP = re.compile(rb"\b\d+/(\d+) \[")
"""In a progress bar: rows of a console name no step."""
ROW_STEP = re.compile(r'"(?:step|gen_step|global_step)": *\[?"?(\d+)|"global_step/max_steps": *"(\d+)')
PAUSE = threading.Event()
RESTING_ROWS = 20
OK = 200
DRAIN_SECONDS = 45.0
"""After the last write: a checkpoint has to keep still before it is read."""


@dataclass(frozen=True)
class Part:
    """A piece of a file that is written at this share of the run, and the step that it is about."""

    share: float
    path: Path
    data: bytes
    step: int | None = None


@dataclass
class Replayed:
    """A run that was written again; ``written`` holds the share, the step and the time of each piece."""

    folder: Path
    written: list[tuple[int | None, float]] = field(default_factory=list)

    def completed(self, step: int) -> float:
        """When everything that is about this step had been written at first."""
        times = [at for about, at in self.written if about is not None and about <= step]
        return max(times, default=self.written[0][1])


@dataclass
class Received:
    """What the webhook got, by run and rule: when it came first."""

    came: dict[tuple[str, str], float] = field(default_factory=dict)

    def take(self, document: object) -> None:
        """Note the alerts of one request."""
        now = time.time()
        for each in _notifications(document):
            if each.get("status") == "firing":
                self.came.setdefault((str(each["run"]), str(each["rule"])), now)


def _notifications(document: object) -> Iterator[dict[str, object]]:
    if isinstance(document, dict):
        if "rule" in document and "run" in document:
            yield document
        for value in document.values():
            yield from _notifications(value)
    elif isinstance(document, list):
        for value in document:
            yield from _notifications(value)


def parts_of(run: Path) -> list[Part]:
    """The pieces of a recorded run in the order in which its job wrote them."""
    files = {
        path.relative_to(run): gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name != "expected.json"
    }
    files = {path.with_suffix("") if path.suffix == ".gz" else path: data for path, data in files.items()}
    steps = [step for path in files if (step := _step(path)) is not None]
    steps += [_row_step(line) or 0 for data in files.values() for line in data.splitlines()[-3:]]
    totals = [
        int(found[1]) for path, data in files.items() if path.suffix in TEXTS for found in LAST_STEP.finditer(data)
    ]
    last = max([*steps, *totals[-1:]], default=1)
    parts: list[Part] = []
    for path, data in files.items():
        step = _step(path)
        if step is not None:
            parts.append(Part(min(1.0, step / max(1, last)), path, data, step))
        elif path.suffix in TEXTS:
            lines = data.splitlines(keepends=True)
            shares = [(at + 1) / len(lines) for at in range(len(lines))]
            named = [_row_step(line) for line in lines]
            if not any(named):  # a console whose rows name no step
                named = [math.ceil(share * last) for share in shares]
            elif path.stem == "completions":  # recorded in part, maybe: not spread over the whole run
                shares = [min(1.0, max(filter(None, named[: at + 1]), default=0) / last) for at in range(len(lines))]
            parts += [Part(*of) for of in zip(shares, repeat(path), lines, named, strict=False)]
        else:
            late = path.name in {"trainer_state.json", "README.md", "model.safetensors"} or "tfevents" in path.name
            parts.append(Part(float(late), path, data))
    return sorted(parts, key=lambda part: part.share)


def _step(path: Path) -> int | None:
    found = [STEP.search(name) for name in path.parts]
    return next((int(match[1]) for match in found if match is not None), None)


def _row_step(line: bytes) -> int | None:
    found = ROW_STEP.search(line.decode(errors="replace"))
    return int(found[1] or found[2]) if found is not None else None


def replay(run: Path, folder: Path, seconds: float) -> Replayed:
    """Write a recorded run below ``folder`` within so many seconds."""
    replayed, began = Replayed(folder), time.monotonic()
    for part in parts_of(run):
        PAUSE.wait(max(0.0, began + part.share * seconds - time.monotonic()))
        path = folder / part.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(part.data)
        replayed.written.append((part.step, time.time()))
    return replayed


def usable(run: Path) -> bool:
    """Whether one process wrote it, from one start to one end."""
    versions = {name for path in run.rglob("v*-*") for name in path.parts if re.fullmatch(r"v\d+-\d{8}-\d{6}", name)}
    return run.is_dir() and len(versions) < 2 and not any(word in run.name for word in ("resume", "error"))


def findings(replayed: Sequence[Replayed]) -> Iterator[tuple[Replayed, str, int]]:
    """Rule and step of each root finding of ``check`` that is at least a warning."""
    by_folder = {one.folder: one for one in replayed}
    command = [OURS, "check", "--format", "json", *map(str, by_folder)]
    document = json.loads(subprocess.run(command, capture_output=True, check=False).stdout)
    for run in document["runs"]:
        name = str(run["run"]).partition("/")[0]
        of = next(one for folder, one in by_folder.items() if folder.name == name)
        for found in run["findings"]:
            if found["caused_by"] is None and found["severity"] in {"warning", "critical"}:
                yield of, found["rule"], found["fired_step"]


def ready(daemon: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the daemon has read every run that is there."""
    while daemon.poll() is None:
        PAUSE.wait(0.2)
        address = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        with suppress(urllib.error.URLError):
            if address is not None and urllib.request.urlopen(f"{address[0]}/readyz", timeout=60).status == OK:
                return
    raise RuntimeError(log.read_text())


def measure(options: argparse.Namespace, place: Path) -> int:
    """Write, watch, compare; the exit code."""
    received, runs = Received(), place / "runs"
    runs.mkdir()
    for number in range(options.resting):
        log = write_jsonl(runs / f"resting-{number:04}", 2 * RESTING_ROWS, seed=number)
        log.write_text("".join(log.read_text().splitlines(keepends=True)[:RESTING_ROWS]))

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.take(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = place / "config.yaml"
    config.write_text(f"sinks: [{{type: webhook, url: 'http://127.0.0.1:{server.server_port}/'}}]\n")
    daemon = subprocess.Popen(
        [
            OURS,
            "run",
            str(runs),
            "--config",
            str(config),
            "--state-dir",
            str(place / "state"),
            "--listen",
            "127.0.0.1:0",
        ],
        stdout=(place / "daemon.log").open("wb"),
        stderr=subprocess.STDOUT,
    )
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    chance = random.Random(options.seed)
    recorded = [run for run in sorted(Path(options.runs).iterdir()) if usable(run)]
    chosen = list(islice((run for _ in iter(int, 1) for run in recorded), options.count))
    ready(daemon, place / "daemon.log")
    began = time.monotonic()
    with ThreadPoolExecutor(options.at_once) as pool:
        written = []
        for number, run in enumerate(chosen):
            PAUSE.wait(max(0.0, began + number * 60.0 / options.per_minute - time.monotonic()))
            seconds = chance.uniform(*options.seconds)
            written.append(pool.submit(replay, run, runs / f"{number:03}-{run.name}", seconds))
        replayed = [each.result() for each in written]
    sys.stdout.write(f"{options.resting + options.count} runs, load {os.getloadavg()[1]:.0f}\n")
    PAUSE.wait(DRAIN_SECONDS)
    for process in (daemon, *busy):
        process.terminate()
        process.wait()
    return report(list(findings(replayed)), received)


def report(due: list[tuple[Replayed, str, int]], received: Received) -> int:
    """Print what was reported, and how late; the exit code."""
    late, missed = [], []
    for run, rule, step in due:
        at = next(
            (at for (name, of), at in received.came.items() if of == rule and name.startswith(run.folder.name)), None
        )
        if at is None:
            missed.append(f"{run.folder.name}: {rule}, step {step}")
        else:
            late.append((max(0.0, at - run.completed(step)), f"{run.folder.name}: {rule}, step {step}"))
    sys.stdout.write(f"reported {len(late)} of {len(due)} root findings\n")
    if len(late) > 1:
        cuts = quantiles((delay for delay, _ in late), n=100, method="inclusive")
        sys.stdout.write(f"delay p50 {cuts[49]:.1f} s, p99 {cuts[98]:.1f} s\n")
    sys.stdout.writelines(f"late {delay:.1f} s: {what}\n" for delay, what in sorted(late, reverse=True)[:5])
    sys.stdout.writelines(f"missed: {what}\n" for what in missed)
    return int(bool(missed))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else "")
    parser.add_argument("--runs", default=str(ROOT / "tests" / "runs"), help="folder of recorded runs")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--at-once", type=int, default=10)
    parser.add_argument("--per-minute", type=float, default=30.0, help="new folders a minute")
    parser.add_argument("--seconds", type=float, nargs=2, default=(20.0, 60.0), help="shortest and longest run")
    parser.add_argument("--resting", type=int, default=0, help="runs beside that are there before and don't grow")
    parser.add_argument("--busy", type=int, default=0, help="processes that use the processor beside")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep the written runs and the daemon's log here")
    options = parser.parse_args()
    if options.keep is not None:
        shutil.rmtree(options.keep, ignore_errors=True)
        options.keep.mkdir(parents=True)
        return measure(options, options.keep)
    with TemporaryDirectory() as place:
        return measure(options, Path(place))


if __name__ == "__main__":
    sys.exit(main())
