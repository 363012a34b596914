"""Kills the real daemon again and again while runs write and receivers misbehave; then counts rows and alerts.

    python -m tests.model.kill_soak [--trials 500] [--damage N]

Each row's reward says whether the alert fires, so the alerts that must arrive are known beforehand. All kills are those
of one state directory, in turns during the start, the first pass, the steady state and the shutdown. The last line says
PASS or FAIL, and the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.model import stored
from tests.model.soak_receivers import Hook, Key, serving

RULE = "soak-high"
HIGH, LOW = 0.9, 0.2
LONGEST_PAUSE = 0.2
"""Seconds between two writes."""
PHASES = {"start": "", "first pass": "metrics: ", "steady": "watching ", "shutdown": "watching "}
"""When a daemon is killed, in turns, and what it has printed by then: the last of these once per run."""
MOMENTS = {"start": 1.2, "first pass": 0.4, "steady": 1.2, "shutdown": 1.2}
"""Seconds that it lives at most after that."""
STOPPING = 0.3
"""Seconds between SIGTERM and the kill at most."""
FLIPS = 0.15
"""Share of the rows at which the alert fires or resolves: about as many alerts as the receivers take."""
ZYGOTE = """
import os, sys
import grpo_watch.cli.run, grpo_watch.notify.receivers.http_client as client
from grpo_watch.catalogue import catalogue
from grpo_watch.cli.main import main
client.ANSWER_SECONDS, client.TOTAL_SECONDS = 1.0, 1.8
catalogue()
for path in sys.stdin:
    if not (pid := os.fork()):
        log = os.open(path.strip(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for taken, place in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
            os.dup2(taken, place)
        main()
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""A process that has its modules, and forks a daemon for each path of a log that it reads; prints its pid, and its end.

The daemons wait for receivers a fifth as long as others do, so that their silence ends within a life.
"""
PROGRESS = 25
PAGE = 4096
DAMAGED = "the state database is damaged; moved it aside"
PATIENCE = 300.0
"""Seconds without a new message after which what is missing counts as lost."""


@dataclass
class Figures:
    """What is printed; ``waiting`` alerts had not arrived at the last kill, and took ``drained`` seconds then."""

    kills: int = 0
    rows: int = 0
    alerts: int = 0
    messages: int = 0
    lost: int = 0
    second_ids: int = 0
    out_of_order: int = 0
    rows_lost: int = 0
    rows_doubled: int = 0
    keyed_missing: int = 0
    keyed_doubled: int = 0
    texts: int = 0
    texts_lost: int = 0
    texts_wrong: int = 0
    texts_repeated: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    waiting: int = 0
    drained: float = 0.0
    damaged: int = 0
    aside: int = 0
    said: int = 0
    excused: int = 0

    @property
    def failed(self) -> bool:
        """Whether a promise was broken."""
        broken = self.lost or self.second_ids or self.out_of_order or self.rows_lost or self.rows_doubled
        keyed = self.keyed_missing or self.keyed_doubled or self.texts_lost or self.texts_wrong
        return bool(broken or keyed or self.aside != self.damaged or self.said != self.damaged)

    def __str__(self) -> str:
        phases = ", ".join(f"{name} {count}" for name, count in self.phases.items())
        reported = (
            f"{'FAIL' if self.failed else 'PASS'}: {self.kills} kills of one state ({phases}), {self.rows} rows, "
            f"{self.alerts} alerts, {self.messages} messages arrived: {self.lost} lost, "
            f"{self.second_ids} under a second id, {self.out_of_order} runs out of order, "
            f"{self.rows_lost} rows lost, {self.rows_doubled} counted twice; "
            f"at receivers that key alerts {self.keyed_missing} notifications lost and {self.keyed_doubled} doubled; "
            f"of {self.texts} for Slack and apprise {self.texts_lost} lost, {self.texts_wrong} wrong or out of order, "
            f"{self.texts_repeated} repeated; "
            f"{self.waiting} waited at the last kill and took {self.drained:.0f} s once the receivers were well; "
            f"requests: {', '.join(f'{name} {count}' for name, count in sorted(self.fates.items()))}"
        )
        if not self.damaged:
            return reported
        return (
            f"{reported}; the state was damaged {self.damaged} times: kept aside {self.aside} times, said {self.said} "
            f"times, {self.excused} of the alerts excused (over when the state was damaged, or their end) and not sent"
        )


class Life:
    """A daemon that the zygote forked."""

    def __init__(self, zygote: subprocess.Popen[str], log: Path) -> None:
        assert zygote.stdin is not None
        assert zygote.stdout is not None
        self._ends = zygote.stdout
        self.returncode: int | None = None
        zygote.stdin.write(f"{log}\n")
        zygote.stdin.flush()
        self._pid = int(self._ends.readline())

    def poll(self) -> int | None:
        """Its exit code once it has ended."""
        if self.returncode is None and select.select([self._ends], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> None:
        """Until it has ended."""
        if self.returncode is None:
            self.returncode = int(self._ends.readline())

    def send_signal(self, number: int) -> None:
        """Ask it to end, or kill it."""
        if self.poll() is None:
            os.kill(self._pid, number)


class Run:
    """A run's log, and the alerts that its rows must give."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.rows = 0
        self.expected: list[Key] = []
        self._high = False
        folder.mkdir(parents=True)
        self._log = folder / "logging.jsonl"

    def write(self, flips: Sequence[bool]) -> None:
        """Append rows; True is one at which the alert fires, or resolves."""
        lines = []
        for flip in flips:
            self.rows += 1
            if flip:
                self._high = not self._high
                self.expected.append((self.name, "firing" if self._high else "resolved", self.rows))
            reward = HIGH if self._high else LOW
            row = {"loss": 0.1, "grad_norm": 1.0, "learning_rate": 1e-6, "reward": reward, "kl": 0.01}
            lines.append(json.dumps({**row, "global_step/max_steps": f"{self.rows}/1000000"}) + "\n")
        with self._log.open("a") as log:
            log.write("".join(lines))


class Soak:
    """One state directory, some runs, five receivers, and a daemon that does not live long."""

    def __init__(self, folder: Path, seed: int, runs: int, damage: int = 0) -> None:
        self.folder, self.chance, self._damage = folder, random.Random(seed), damage
        self.hook = Hook(random.Random(seed + 1))
        self.runs = [Run(folder / "runs" / f"run{number}") for number in range(runs)]
        self.figures = Figures()
        self._excused: set[Key] = set()
        self._starts = 0

    def play(self, trials: int) -> Figures:
        """Kill the daemon so many times, then let it end in peace, and count."""
        for run in self.runs:
            run.write([False])
        with serving(self.hook):
            self._settings()
            with self._forking() as self._zygote:
                self._live(trials)
        self._count()
        return self.figures

    def _live(self, trials: int) -> None:
        self._live_until(self._looked)  # what is there at the first look is no news
        for trial in range(1, trials + 1):
            self._trial(list(PHASES)[trial % len(PHASES)])
            if self._damage and trial % self._damage == 0:
                self._spoil()
            if trial % PROGRESS == 0:
                missing = len(self._missing())
                print(f"{trial} kills, {missing} alerts wait", file=sys.stderr, flush=True)  # noqa: T201
        self.figures.waiting, began = len(self._missing()), time.monotonic()
        self.hook.well = True
        self._live_until(self._complete)
        self.figures.drained = time.monotonic() - began

    def _spoil(self) -> None:
        """Overwrite the state, or cut it; nothing is written to the runs until it has been rebuilt.

        What was over by then is a backlog of the new state and is reported no more, except what could still be read.
        """
        path = self.folder / "state" / "state.db"
        Path(f"{path}-wal").unlink(missing_ok=True)
        data = bytearray(path.read_bytes())
        kind = self.chance.choice(["header", "page", "cut"])
        if kind == "cut":
            del data[len(data) // 2 :]
        else:
            page = 0 if kind == "header" else self.chance.randrange(1, 4)
            data[page * PAGE : (page + 1) * PAGE] = b"\xff" * PAGE
        path.write_bytes(data)
        self.figures.damaged += 1
        self._live_until(lambda: self._aside() == self.figures.damaged and self._looked())
        self.figures.said += DAMAGED in self._said()
        over = {run.expected[-1] for run in self.runs if run.expected and run.expected[-1][1] == "firing"}
        self._excused |= self._missing() - over

    def _settings(self) -> None:
        rule = f"rules:\n  - name: {RULE}\n    when: reward_mean > 0.5\n    for_steps: 0\n    min_observations: 1\n"
        (self.folder / "soak.yaml").write_text(
            f"{rule}    keep_firing_steps: 0\n    severity: warning\n    summary: high\n"
        )
        sinks = self.hook.sinks(self.folder, RULE, keyed=not self._damage)
        (self.folder / "grpo-watch.yaml").write_text(f"rules: [soak.yaml]\nsinks: {sinks}\n")

    @contextmanager
    def _forking(self) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-c", ZYGOTE, "run", str(self.folder / "runs"), "--listen", ":0"]
        command += ["--state-dir", str(self.folder / "state"), "--config", str(self.folder / "grpo-watch.yaml")]
        environment = {**os.environ, "NO_COLOR": "1"}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as zygote:
            yield zygote

    def _start(self) -> Life:
        self._starts += 1
        self._log(self._starts).unlink(missing_ok=True)
        return Life(self._zygote, self._log(self._starts))

    def _log(self, number: int) -> Path:
        return self.folder / f"daemon-{number % 2}.log"

    def _said(self) -> str:
        """What the newest daemon wrote."""
        with suppress(FileNotFoundError):  # it has not begun yet
            return self._log(self._starts).read_text()
        return ""

    def _trial(self, phase: str) -> None:
        """A daemon's life: rows are written in pieces until it is killed, at a random moment of this phase."""
        child = self._start()
        pause = threading.Event()
        self._wait_for(PHASES[phase], child, pause)
        ends = time.monotonic() + self.chance.uniform(0.0, MOMENTS[phase])
        while (left := ends - time.monotonic()) > 0:
            self._write()
            pause.wait(min(left, self.chance.uniform(0.0, LONGEST_PAUSE)))
            if child.poll() is not None:
                raise RuntimeError(self._said())
        if phase == "shutdown":
            child.send_signal(signal.SIGTERM)
            pause.wait(self.chance.uniform(0.0, STOPPING))
        child.send_signal(signal.SIGKILL)
        child.wait()
        self.figures.kills += 1
        self.figures.phases[phase] += child.returncode == -signal.SIGKILL

    def _wait_for(self, word: str, child: Life, pause: threading.Event) -> None:
        """Until the daemon said it, of each run where it is reported of runs."""
        times = len(self.runs) if word == PHASES["steady"] else 1
        while self._said().count(word) < times and child.poll() is None:
            pause.wait(0.02)

    def _write(self) -> None:
        run = self.chance.choice(self.runs)
        first = not run.expected  # however few rows a slow machine writes in a life, there are alerts
        run.write([first or self.chance.random() < FLIPS for _ in range(self.chance.randint(1, 3))])

    def _live_until(self, done: Any) -> None:
        child = self._start()
        pause, got, since = threading.Event(), self.hook.arrived(), time.monotonic()
        while not done() and time.monotonic() < since + PATIENCE:
            pause.wait(0.1)
            if self.hook.arrived() > got:
                got, since = self.hook.arrived(), time.monotonic()
            if child.poll() is not None:
                raise RuntimeError(self._said())
        child.send_signal(signal.SIGTERM)
        child.wait()

    def _looked(self) -> bool:
        path = self.folder / "state" / "state.db"
        if not path.exists():
            return False
        with closing(sqlite3.connect(path, timeout=5)) as database:
            try:
                return database.execute("SELECT sum(looked) FROM runs").fetchone()[0] == len(self.runs)
            except sqlite3.DatabaseError:  # not made yet, or damaged
                return False

    def _aside(self) -> int:
        """How many damaged states were kept."""
        return len(list((self.folder / "state").glob("state.db.damaged-*[0-9]")))

    def _missing(self) -> set[Key]:
        with self.hook.lock:
            got = {key for key, _ in self.hook.got}
        return {key for run in self.runs for key in run.expected} - self._excused - got

    def _complete(self) -> bool:
        """Whether every alert is at every receiver and every row in the state: a row may be without an alert."""
        waits = self._missing() or self.hook.waited_for(self._expected())
        return not waits and self._rows_lost() == 0

    def _expected(self) -> dict[str, list[Key]]:
        return {run.name: run.expected for run in self.runs}

    def _count(self) -> None:
        figures, names = self.figures, dict[Key, set[str]]()
        for key, name in self.hook.got:
            names.setdefault(key, set()).add(name)
        expected = [key for run in self.runs for key in run.expected]
        figures.rows, figures.fates = sum(run.rows for run in self.runs), self.hook.fates
        figures.alerts, figures.messages = len(expected), len(self.hook.got)
        figures.lost, figures.excused = len(self._missing()), len(self._excused - names.keys())
        figures.aside = self._aside()
        figures.second_ids = sum(len(each) > 1 for each in names.values()) + len(names.keys() - set(expected))
        for run in self.runs:
            order = [key for key in dict.fromkeys(key for key, _ in self.hook.got) if key[0] == run.name]
            figures.out_of_order += order != [key for key in run.expected if key in names]
        counted = self._stored()
        figures.rows_lost, figures.rows_doubled = self._rows_lost(), sum(counted.values()) - len(counted)
        for one in self.hook.keyed.values():
            figures.keyed_missing += one.missing(self._expected())
            figures.keyed_doubled += one.doubled(self._expected())
        for texts in self.hook.texts.values():
            figures.texts += len(self._expected()[texts.run])
            figures.texts_lost += texts.missing(self._expected())
            figures.texts_wrong += texts.wrong(self._expected())
            figures.texts_repeated += texts.repeated

    def _rows_lost(self) -> int:
        """Rows that the state does not hold."""
        wanted = {(run.name, step) for run in self.runs for step in range(1, run.rows + 1)}
        return len(wanted - self._stored().keys())

    def _stored(self) -> Counter[tuple[str, int | None]]:
        """How often the state holds each row."""
        return stored.rows(self.folder / "state")


def main() -> int:
    """The exit code: 0 where every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--damage", type=int, default=0, help="damage the state after every so many kills")
    given, began = parser.parse_args(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak") as folder:
        figures = Soak(Path(folder), given.seed, given.runs, given.damage).play(given.trials)
    print(f"{figures}; {time.monotonic() - began:.0f} s")  # noqa: T201  its output
    return int(figures.failed)


if __name__ == "__main__":
    sys.exit(main())
