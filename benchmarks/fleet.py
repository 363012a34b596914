"""Measures one daemon over many growing runs: processor time, memory, latency, alerts, page and scrape.

    python benchmarks/fleet.py [--runs 1000] [--minutes 15] [--rows-per-second 1000]

Each run gets a row in turn, as ms-swift writes it. In a tenth of them the gradient norm turns 0 at a row of its own.
Ends with 1 where an alert is missed, raised for a healthy run, or late.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from make_run import rows, swift_line
from measure import PAUSE, Live, machine, resident_mib, running

OURS = str(Path(sys.executable).with_name("grpo-watch"))
RULE = "gradient-lost"
FAULTY_EVERY = 10
FIRST_FAULT, FAULT_ROWS = 12, 8
"""Rows before the first gradient can be lost, and rows over which the faulty runs are spread."""
LATE_SECONDS = 10.0
"""An alert should show so long after the row that makes it fire at most."""
FIRES_AFTER = 5
"""Rows without gradient that it takes (``grpo-watch explain gradient-lost``)."""
SAMPLE_SECONDS = 15.0
LOOK_SECONDS = 0.1
"""Between two looks at a row that is waited for: each costs the daemon a page of JSON."""
REST_SECONDS = 150.0
"""After which logs are at rest: the daemon looks the less often at one, the longer it has given nothing."""


@dataclass
class Sample:
    """The daemon at one moment: its age in seconds, processor seconds so far, MiB, descriptors."""

    at: float
    cpu: float
    mib: float
    descriptors: int


@dataclass
class Measured:
    """Everything that is printed."""

    runs: int
    rate: float
    samples: list[Sample] = field(default_factory=list)
    behind: list[float] = field(default_factory=list)
    scrapes: list[float] = field(default_factory=list)
    pages: list[float] = field(default_factory=list)
    scrape_bytes: int = 0
    rows: int = 0
    late: list[float] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)
    idle_share: float = 0.0

    def lines(self) -> list[str]:
        """A table in Markdown."""
        first, last = self.samples[0], self.samples[-1]
        share = (last.cpu - first.cpu) / (last.at - first.at)
        half = self.samples[len(self.samples) // 2]
        cells = (
            (
                "rows written per second, of all runs",
                f"{self.rows / (last.at - first.at):,.0f} (asked: {self.rate:,.0f})",
            ),
            ("processor time while they grow, % of a core", f"{100 * share:.0f}"),
            ("processor time at rest, % of a core", f"{100 * self.idle_share:.1f}"),
            ("resident MiB, at half time and at the end", f"{half.mib:.0f}, {last.mib:.0f}"),
            ("file descriptors at the end", f"{last.descriptors}"),
            ("row written to shown by the API: p50, p99, longest s", _three(self.behind)),
            ("scrape: MiB, median s, longest s", f"{self.scrape_bytes / 2**20:.1f}, {_two(self.scrapes)}"),
            ("overview page: median s, longest s", _two(self.pages)),
            (
                "alerts: due, missed, false",
                f"{len(self.late) + len(self.missed)}, {len(self.missed)}, {len(self.false)}",
            ),
            ("alert after its row: median s, longest s", _two(self.late)),
        )
        head = (f"| one daemon, {self.runs:,} runs, {(last.at - first.at) / 60:.0f} minutes | measured |", "|---|---|")
        return [*head, *(f"| {name} | {value} |" for name, value in cells), "", f"({machine()})"]


def _two(values: list[float]) -> str:
    return f"{median(values):.2f}, {max(values):.2f}" if values else "-"


def _three(values: list[float]) -> str:
    ordered = sorted(values)
    return (
        f"{median(ordered):.2f}, {ordered[int(0.99 * (len(ordered) - 1))]:.2f}, {ordered[-1]:.2f}" if ordered else "-"
    )


class Fleet:
    """The runs' logs, and which row each has reached."""

    def __init__(self, folder: Path, runs: int, most: int) -> None:
        self.logs = [folder / f"run-{number:05}" / "logging.jsonl" for number in range(runs)]
        self.lines = [swift_line(row, most) + "\n" for row in islice(rows(most, seed=1), most)]
        self.reached = [0] * runs
        for log in self.logs:
            log.parent.mkdir(parents=True)

    def fault(self, number: int) -> int | None:
        """The first row without gradient of a faulty run."""
        return FIRST_FAULT + number // FAULTY_EVERY % FAULT_ROWS if number % FAULTY_EVERY == 0 else None

    def grow(self, number: int) -> int:
        """Write the next row of a run; its step."""
        step = self.reached[number] = self.reached[number] + 1
        line, fault = self.lines[(step - 1) % len(self.lines)], self.fault(number)
        if fault is not None and step >= fault:
            line = re.sub(r'"grad_norm": [^,]+', '"grad_norm": 0.0', line)
        with self.logs[number].open("a") as log:
            log.write(line)
        return step


def measure(live: Live, fleet: Fleet, seconds: float, rate: float) -> Measured:
    """Let the runs grow for so long, sampling all the while."""
    base = live.metrics_url.rsplit("/", 1)[0]
    measured, began = Measured(len(fleet.logs), rate), time.monotonic()
    due: dict[str, float] = {}
    seen: dict[str, float] = {}
    number, next_sample, next_alerts, next_look = 0, 0.0, 0.0, 0.0
    watched: tuple[int, int, float] | None = None
    while (passed := time.monotonic() - began) < seconds:
        while measured.rows < rate * passed:
            step = fleet.grow(number)
            fault = fleet.fault(number)
            if fault is not None and step == fault + FIRES_AFTER - 1:
                due[f"run-{number:05}"] = time.monotonic()
            if watched is None and number % 97 == 0:
                watched = number, step, time.monotonic()
            measured.rows += 1
            number = (number + 1) % len(fleet.logs)
        if watched is not None and passed >= next_look:
            next_look = passed + LOOK_SECONDS
            if _step(base, watched[0]) >= watched[1]:
                measured.behind.append(time.monotonic() - watched[2])
                watched = None
        if passed >= next_alerts:
            next_alerts = passed + 1.0
            for run in _firing(base) - seen.keys():
                seen[run] = time.monotonic()
        if passed >= next_sample:
            next_sample = passed + SAMPLE_SECONDS
            measured.samples.append(_sample(live.pid, passed))
            measured.scrape_bytes = _timed(live.metrics_url, measured.scrapes)
            _timed(f"{base}/", measured.pages)
        PAUSE.wait(0.02)
    measured.late = [seen[run] - at for run, at in due.items() if run in seen]
    measured.missed = [run for run, at in due.items() if run not in seen and time.monotonic() - at > LATE_SECONDS]
    measured.false = sorted(seen.keys() - due.keys())
    measured.idle_share = _idle(live.pid)
    return measured


def _idle(pid: int) -> float:
    PAUSE.wait(REST_SECONDS)  # what was written last is read, and the logs rest
    before, began = _cpu(pid), time.monotonic()
    PAUSE.wait(30.0)
    return (_cpu(pid) - before) / (time.monotonic() - began)


def _step(base: str, number: int) -> int:
    try:
        with urllib.request.urlopen(f"{base}/api/v1/runs/run-{number:05}", timeout=60) as answer:
            return int(json.load(answer)["step"])
    except urllib.error.HTTPError:
        return -1  # not found yet


def _firing(base: str) -> set[str]:
    with urllib.request.urlopen(f"{base}/api/v1/alerts", timeout=60) as answer:
        return {alert["run"] for alert in json.load(answer)["alerts"] if alert["rule"] == RULE}


def _timed(url: str, into: list[float]) -> int:
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=120) as answer:
        size = len(answer.read())
    into.append(time.perf_counter() - began)
    return size


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _sample(pid: int, at: float) -> Sample:
    return Sample(at, _cpu(pid), resident_mib(pid), len(list(Path(f"/proc/{pid}/fd").iterdir())))


def main() -> int:
    """Print the table; 1 where an alert is missed, false or late."""
    parser = argparse.ArgumentParser(description="measure one daemon over many growing runs")
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--rows-per-second", type=float, default=1_000.0)
    chosen = parser.parse_args()
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rate, seconds = chosen.rows_per_second, 60.0 * chosen.minutes
        fleet = Fleet(folder / "runs", chosen.runs, max(100, int(rate * seconds / chosen.runs) + 1))
        (folder / "grpo-watch.yaml").write_text("web: {open: true}\n")
        command = [OURS, "run", str(folder / "runs"), "--listen", ":0", "--state-dir", str(folder / "state")]
        command += ["--config", str(folder / "grpo-watch.yaml")]
        with running(command, _address, folder / "output") as live:
            measured = measure(live, fleet, seconds, rate)
        shutil.rmtree(folder / "runs")
    print("\n".join(measured.lines()))
    late = [seconds for seconds in measured.late if seconds > LATE_SECONDS]
    for words, found in (("missed", measured.missed), ("false", measured.false), ("late", late)):
        if found:
            print(f"{words}: {len(found)}, first {found[0]}")
    return 1 if measured.missed or measured.false or late else 0


def _address(output: Path) -> str | None:
    found = re.search(r"metrics: (https?://\S+)", output.read_text(errors="replace"))
    return found[1] if found else None


if __name__ == "__main__":
    sys.exit(main())
