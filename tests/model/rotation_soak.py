"""Rotates, copies, truncates, packs, deletes and moves logs below the real daemon, kills it, and counts their rows.

    python -m tests.model.rotation_soak [--histories 500] [--seed 0] [--at-once 20]

Each history is one run whose log has a row a step. What its file system permits to be followed must be in the state
once: rows that nobody could read any more are not written. Prints what was done to a run that lost a row or has one
twice; a batch of ``at-once`` histories is found again by its seed. The last line says PASS or FAIL, and the figures.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import DatabaseError

from tests.model import stored
from tests.model.kill_soak import ZYGOTE, Life

OPERATIONS = 25
"""What is done to a run, writing included."""
KILLS = 0.02
"""Share of the operations before which the daemon is killed; up to so many are done until the next one starts."""
DOWN = 8
LONGEST_PAUSE = 0.05
AWAY = 30
"""Operations of all runs during which a folder is elsewhere, at most."""
PATIENCE = 90.0
"""Seconds without a new row after which those that are missing count as lost."""
PAGE = 4096


@dataclass
class History:
    """A run, its log, and what was done to it. ``held``: a file that only the daemon has open may hold rows.

    ``empty``: the log holds no row yet, so that the daemon may not have it open.
    """

    folder: Path
    away: Path
    chance: random.Random
    done: list[str] = field(default_factory=list)
    rows: int = 0
    held: bool = False
    lost: bool = False
    empty: bool = True
    back: int = 0
    """In so many operations of any run its folder returns."""

    def __post_init__(self) -> None:
        self.name = self.folder.name
        self.folder.mkdir(parents=True)
        self._create()
        self.write()

    @property
    def log(self) -> Path:
        """Where the log is now."""
        return (self.away if self.back else self.folder) / "logging.jsonl"

    def _create(self) -> None:
        self._writer = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self) -> None:
        """One row or some, by the file that the job has open."""
        self.empty = False
        for _ in range(self.chance.randint(1, 4)):
            self.rows += 1
            row = {"loss": 0.1, "grad_norm": 1.0, "learning_rate": 1e-6, "reward": 0.2, "kl": 0.01}
            line = json.dumps({**row, "global_step/max_steps": f"{self.rows}/1000000"}) + "\n"
            os.write(self._writer, line.encode())

    def _again(self) -> None:
        self.empty = True
        os.close(self._writer)
        self._create()

    def _shift(self) -> None:
        """Each numbered file moves up by one."""
        numbered = {int(path.name.split(".")[2]): path for path in self.log.parent.glob("logging.jsonl.*")}
        for number in sorted(numbered, reverse=True):
            ending = ".gz" if numbered[number].suffix == ".gz" else ""
            numbered[number].rename(self.log.with_name(f"logging.jsonl.{number + 1}{ending}"))

    def rename(self) -> None:
        """As logrotate and Python's handler do; the job may write to the old file for a while."""
        self._shift()
        self.log.rename(self.log.with_name("logging.jsonl.1"))
        if self.chance.random() < 0.3:
            self.write()
        self._again()

    def copytruncate(self) -> None:
        """The job appends, so it goes on at the beginning."""
        self._shift()
        shutil.copyfile(self.log, self.log.with_name("logging.jsonl.1"))
        os.truncate(self.log, 0)
        self.empty = True

    def hole(self) -> None:
        """It grows by pages that nobody wrote."""
        size = self.log.stat().st_size
        os.truncate(self.log, (size // PAGE + self.chance.randint(1, 3)) * PAGE)

    def pack(self) -> None:
        """The newest rotated file is compressed, as logrotate does."""
        with suppress(FileNotFoundError):
            old = self.log.with_name("logging.jsonl.1")
            old.with_name("logging.jsonl.1.gz").write_bytes(gzip.compress(old.read_bytes()))
            old.unlink()

    def rename_and_pack(self) -> None:
        """Both at once: the file that the daemon has open has no name left."""
        self.rename()
        self.pack()
        self.held = True

    def recreate(self) -> None:
        """Deleted, and made again; some rows are only in the deleted file."""
        self.log.unlink()
        if self.chance.random() < 0.5:
            self.write()
        self._again()
        self.held = True

    def move(self) -> None:
        """The folder is elsewhere for a while, and the job writes on."""
        self.back = self.chance.randint(1, AWAY)
        self.folder.rename(self.away)

    def move_back(self) -> None:
        """The folder is where it was."""
        self.back = 0
        self.away.rename(self.folder)

    def close(self) -> None:
        """The job ends."""
        os.close(self._writer)


ANY: tuple[Callable[[History], None], ...] = (
    *[History.write] * 6,
    History.rename,
    History.copytruncate,
    History.hole,
    History.move,
)
"""What may be done at any time, also while no daemon runs …"""
READ: tuple[Callable[[History], None], ...] = (History.pack, History.rename_and_pack, History.recreate)
"""… and what needs a daemon that read all before."""


class Batch:
    """Histories below one daemon, which is killed now and then."""

    def __init__(self, place: Path, seed: int, histories: int) -> None:
        self._place, self._chance = place, random.Random(seed)
        (place / "away").mkdir()
        self.histories = [
            History(place / "runs" / f"h{number}", place / "away" / f"h{number}", random.Random(f"{seed}-{number}"))
            for number in range(histories)
        ]
        self._life: Life | None = None
        self._pause, self.kills, self._down = threading.Event(), 0, 0

    def play(self) -> list[str]:
        """What went wrong, a line for each history."""
        command = [sys.executable, "-c", ZYGOTE, "run", str(self._place / "runs"), "--listen", ":0", "--state-dir"]
        command += [str(self._place / "state")]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self._place
        ) as self._zygote:
            self._start()
            self._read(self.histories)
            left = [history for history in self.histories for _ in range(OPERATIONS)]
            self._chance.shuffle(left)
            for history in left:
                self._operate(history)
            for history in self.histories:
                if history.back:
                    history.move_back()
                history.close()
            self._start()
            self._read(self.histories)
            found = self._stored()
            self._kill()
        return [line for history in self.histories for line in self._wrong(history, found)]

    def _operate(self, history: History) -> None:
        if self._life is not None and self._chance.random() < KILLS:
            self._settle([each for each in self.histories if each.held])
            self._kill()
            self._down = self._chance.randint(1, DOWN)
        self._down -= 1
        if not self._down:
            self._start()
        for other in self.histories:
            if other.back == 1:
                other.move_back()
                other.done.append("move_back")
            other.back = max(0, other.back - 1)
        do = history.chance.choice((*ANY, *READ))
        if do in {History.move, History.copytruncate} and history.back:  # nobody finds the copy where it is then
            do = History.write
        if do in READ:
            if self._life is None or history.back or history.lost or history.empty:
                do = History.write
            else:
                self._settle([history])
        elif history.held and do is not History.write:
            self._settle([history])
        do(history)
        down = " (no daemon)" if self._life is None else ""
        history.done.append(f"{do.__name__} to {history.rows}{down}")
        self._pause.wait(self._chance.uniform(0.0, LONGEST_PAUSE))

    def _start(self) -> None:
        if self._life is None:
            self._life = Life(self._zygote, self._place / "daemon.log")

    def _kill(self) -> None:
        if self._life is not None:
            self._life.send_signal(signal.SIGKILL)
            self._life.wait()
            self._life, self.kills = None, self.kills + 1

    def _settle(self, histories: list[History]) -> None:
        """Wait until the daemon has their logs open: a row of before may have been read by the daemon before it."""
        for each in histories:
            each.write()
        self._read(histories)

    def _read(self, histories: list[History]) -> None:
        """Wait until the state holds all rows of these, or gets none any more."""
        self._start()
        before, since = -1, time.monotonic()
        while histories and time.monotonic() < since + PATIENCE:
            found = self._stored()
            if all(found[each.name, step] for each in histories for step in range(1, each.rows + 1)):
                break
            if len(found) > before:
                before, since = len(found), time.monotonic()
            if self._life is not None and self._life.poll() is not None:
                raise RuntimeError((self._place / "daemon.log").read_text())
            self._pause.wait(0.1)
        for each in histories:
            each.held, each.lost = False, time.monotonic() >= since + PATIENCE

    def _stored(self) -> Counter[tuple[str, int | None]]:
        with suppress(DatabaseError):  # not made yet
            return stored.rows(self._place / "state")
        return Counter()

    @staticmethod
    def _wrong(history: History, found: Counter[tuple[str, int | None]]) -> list[str]:
        lost = [step for step in range(1, history.rows + 1) if not found[history.name, step]]
        doubled = [step for step in range(1, history.rows + 1) if found[history.name, step] > 1]
        done = "; ".join(history.done)
        return [f"{history.name}: lost {lost}, twice {doubled}: {done}"] if lost or doubled else []


def main() -> int:
    """The exit code: 0 where no history lost a row or has one twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first batch")
    parser.add_argument("--at-once", type=int, default=20)
    given, began = parser.parse_args(), time.monotonic()
    played = rows = kills = wrong = 0
    for seed in range(given.seed, given.seed + -(-given.histories // given.at_once)):
        with tempfile.TemporaryDirectory(prefix="soak") as place:
            batch = Batch(Path(place), seed, given.at_once)
            lines = batch.play()
        print(*(f"seed {seed}: {line}" for line in lines), sep="\n", end="\n" * bool(lines), flush=True)  # noqa: T201
        played, wrong = played + len(batch.histories), wrong + len(lines)
        rows, kills = rows + sum(history.rows for history in batch.histories), kills + batch.kills
    print(  # noqa: T201  its output
        f"{'FAIL' if wrong else 'PASS'}: {played} histories of logs beside the daemon (seeds from {given.seed}), "
        f"{rows} rows, {kills} kills: {wrong} histories with rows lost or twice; {time.monotonic() - began:.0f} s"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
