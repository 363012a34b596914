"""Several runs in one file, named by a column: each is watched, and alerted on, under its own name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from grpo_watch.engine.records import AlertState
from grpo_watch.engine.snapshot import RunVerdict
from tests.support.live import Live

BEGAN = 1_800_000_000.0
RULE = "reward-collapse"


def row(step: int, *, dead: bool = False, **named: Any) -> dict[str, Any]:
    """A healthy row, or one of a run that gets no reward after step 20."""
    shown = {
        "loss": 0.1,
        "grad_norm": 0.5 + step % 3 / 10,
        "kl": 0.01 + step % 5 / 1000,
        "reward": 0.3 + step % 7 / 100,
    }
    shown |= {"reward_std": 0.2 + step % 4 / 100, "entropy": 1 + step % 3 / 10}
    shown |= {"reward": 0.0, "reward_std": 0.0} if dead and step > 20 else {}
    return {"step": step, **shown, "learning_rate": 1e-6, **named}


def write(path: Path, live: Live, rows: Iterable[dict[str, Any]]) -> None:
    """Append the rows and let the daemon read them."""
    live.now += 2
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in rows)
    os.utime(path, (live.now, live.now))
    live.settle()


def alerted(live: Live) -> set[str]:
    """The runs whose alert over their reward fires."""
    runs = [run.snapshot for run in live.daemon.snapshot().runs]
    return {run.run for run in runs for alert in run.alerts if alert.rule == RULE and alert.state is AlertState.FIRING}


def names(live: Live) -> list[str]:
    return [run.snapshot.run for run in live.daemon.snapshot().runs]


def test_the_dead_one_of_two_runs_is_named(tmp_path: Path) -> None:
    live = Live(tmp_path / "run", tmp_path / "state", now=BEGAN)
    rows = [row(step, dead=algo == "ppo", algo=algo) for step in range(1, 61) for algo in ("grpo", "ppo")]
    write(tmp_path / "run" / "metrics.jsonl", live, rows)
    assert names(live) == ["metrics.jsonl#grpo", "metrics.jsonl#ppo"]
    assert alerted(live) == {"metrics.jsonl#ppo"}
    assert [one.to_state for one in live.transitions("metrics.jsonl#ppo") if one.rule == RULE][-1] is AlertState.FIRING


def test_a_file_that_begins_to_hold_a_second_run(tmp_path: Path) -> None:
    """The first keeps its name, its alert and its rows alone, also after a restart; the second appears beside it."""
    path = tmp_path / "run" / "metrics.jsonl"
    live = Live(tmp_path / "run", tmp_path / "state", now=BEGAN)
    write(path, live, (row(step, dead=True, algo="grpo") for step in range(1, 61)))
    assert (names(live), alerted(live)) == (["run"], {"run"})
    for step in range(1, 31):
        write(path, live, [row(step, algo="ppo")])
    assert (names(live), alerted(live)) == (["run", "metrics.jsonl#ppo"], {"run"})
    assert (live.run("run").step, live.run("metrics.jsonl#ppo").step) == (60, 30)
    live.close()
    again = Live(tmp_path / "run", tmp_path / "state", now=live.now + 5, before=live)
    again.settle()
    assert (names(again), alerted(again)) == (["run", "metrics.jsonl#ppo"], {"run"})
    assert RunVerdict.LOST not in {run.snapshot.verdict for run in again.daemon.snapshot().runs}
    assert (again.run("run").step, again.run("metrics.jsonl#ppo").step) == (60, 30)


def test_of_runs_that_were_watched_as_one_the_one_of_that_name_keeps_what_is_stored(tmp_path: Path) -> None:
    """State of a version that knew a file by its path alone."""
    path = tmp_path / "run" / "metrics.jsonl"
    live = Live(tmp_path / "run", tmp_path / "state", now=BEGAN)
    live.store.register(str(path), "metrics.jsonl#ppo", BEGAN)
    write(path, live, (row(step, algo=algo) for step in range(1, 41) for algo in ("grpo", "ppo")))
    assert set(names(live)) == {"metrics.jsonl#grpo", "metrics.jsonl#ppo"}
    assert live.store.name_of(str(path)) == "metrics.jsonl#ppo"
    assert live.store.name_of(f"{path}#grpo") == "metrics.jsonl#grpo"
