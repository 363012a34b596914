"""Two jobs below one watched output folder: neither resolves an alert of the other, unless it resumes from it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from grpo_watch.engine.records import AlertState
from tests.support.live import Live

BEGAN = 1_800_000_000.0
FROZEN, NEXT = "v0-20270115-080000", "v1-20270115-080300"


class Job:
    """A job of ms-swift, whose KL is zero in every row where ``frozen``."""

    def __init__(self, folder: Path, live: Live, *, frozen: bool = False, resumed_from: str | None = None) -> None:
        self.folder, self.live, self.frozen = folder, live, frozen
        folder.mkdir(parents=True)
        settings = {"swift_version": "4.6.0", "rlhf_type": "grpo", "beta": 0.04, "learning_rate": 1e-6, "max_steps": 80}
        self._write("args.json", json.dumps({**settings, "resume_from_checkpoint": resumed_from}))
        live.settle()

    def log(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            row = {"loss": 0.1, "grad_norm": 0.5 + step % 3 / 10, "learning_rate": 1e-6, "reward": 0.3 + step % 7 / 100}
            row |= {"reward_std": 0.2, "kl": 0.0 if self.frozen else step / 100, "completions/mean_length": 50.0 + step}
            self._write("logging.jsonl", json.dumps({**row, "global_step/max_steps": f"{step}/80"}) + "\n")
            self.live.settle()

    def _write(self, name: str, text: str) -> None:
        self.live.now += 2
        with (self.folder / name).open("a") as file:
            file.write(text)
        os.utime(self.folder / name, (self.live.now, self.live.now))


def states(live: Live, run: str) -> list[AlertState]:
    """What became of the run's alert over its KL."""
    ended = [one.to_state for one in live.transitions(run) if one.rule == "kl-stuck-at-zero"]
    return [state for state in ended if state is not AlertState.PENDING]


def frozen_job(tmp_path: Path) -> tuple[Live, str]:
    """A daemon over an output folder with one job that is frozen, and the name of its run."""
    (tmp_path / "output").mkdir()
    live = Live(tmp_path / "output", tmp_path / "state", now=BEGAN)
    Job(tmp_path / "output" / FROZEN, live, frozen=True).log(1, 30)
    name = live.run().run
    assert states(live, name) == [AlertState.FIRING]
    return live, name


def test_a_job_that_begins_resolves_no_alert_of_the_one_before(tmp_path: Path) -> None:
    """Same settings, and the first rests meanwhile: only its first row says that it is no second attempt."""
    live, name = frozen_job(tmp_path)
    second = Job(tmp_path / "output" / NEXT, live)
    assert live.run(name).attempt == 1
    second.log(1, 6)
    assert states(live, name) == states(live, FROZEN) == [AlertState.FIRING]
    assert (live.run(FROZEN).step, live.run(FROZEN).attempt) == (30, 1)
    assert (live.run(NEXT).step, live.run(NEXT).attempt) == (6, 1)
    assert states(live, NEXT) == []


def test_a_job_that_resumes_is_the_second_attempt(tmp_path: Path) -> None:
    live, name = frozen_job(tmp_path)
    Job(tmp_path / "output" / NEXT, live, resumed_from=f"/output/{FROZEN}/checkpoint-20").log(21, 24)
    assert [one.snapshot.run for one in live.daemon.snapshot().runs] == [name]
    assert (live.run(name).step, live.run(name).attempt) == (24, 2)
