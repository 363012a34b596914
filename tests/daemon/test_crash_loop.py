"""A daemon that dies soon after each start tells, life by life, of the alerts that ended meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.daemon import daemon, first_turns, run_reader, run_registry, turn_order, watched_run
from grpo_watch.daemon.turn_order import first_in_line
from grpo_watch.daemon.watched_run import WatchedRun
from grpo_watch.engine.records import AlertState
from grpo_watch.rules.packs import load_rules
from grpo_watch.rules.rule_changes import rule_set
from grpo_watch.sources.discovery.discover import FoundRun, newest_write
from tests.support.high import RULE, RULES, Run
from tests.support.live import Live

ROWS, SLICE, RUNS = 40, 10, 8
LIFE = 16
"""Slices that a daemon lives: two runs take them, rebuilding four each and reading what is new."""


class Killed(Exception):  # noqa: N818  what happens, not an error
    """The daemon is gone."""


def _resolved(live: Live, run: Run) -> bool:
    states = [each.to_state for each in live.transitions(run.path.name) if each.rule == RULE]
    return states[-1] is AlertState.RESOLVED


@pytest.mark.slow
def test_each_short_life_reports_some_alerts_that_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_turns, "SLICE", SLICE)
    monkeypatch.setattr(run_reader, "SLICE", SLICE)
    (tmp_path / "high.yaml").write_text(RULES)
    rules = rule_set(load_rules([tmp_path / "high.yaml"]), catalogue())
    runs = [Run(tmp_path, f"run{number}") for number in range(RUNS)]

    def born(now: float) -> Live:
        return Live(tmp_path / "runs", tmp_path / "state", now=now, rules=lambda: rules)

    began = max(log.stat().st_mtime for log in (tmp_path / "runs").rglob("*.jsonl"))
    live = born(began)
    live.settle()
    for run in runs:
        run.write(*[0.9] * ROWS)
    live.settle()
    live.kill()
    for run in runs:
        run.write(0.2)
    turn, left = WatchedRun.turn, [0]

    def mortal(self: WatchedRun, now: float, listing: float) -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return turn(self, now, listing)

    monkeypatch.setattr(WatchedRun, "turn", mortal)
    resolved = []
    for life in range(RUNS):
        live, left[0] = born(began + 10.0 * life), LIFE
        with pytest.raises(Killed):
            live.settle()
        resolved.append(sum(_resolved(live, run) for run in runs))
        live.kill()
    assert resolved[-1] == RUNS, resolved


class Standing:
    """What ``first_in_line`` asks a run."""

    def __init__(self, *, ready: bool, urgent: bool, written: float = 0.0) -> None:
        self.ready, self.urgent, self.written = ready, urgent, written


def test_runs_that_are_read_go_on_while_others_wait() -> None:
    read, urgent, other = (
        Standing(ready=True, urgent=False),
        Standing(ready=False, urgent=True),
        Standing(ready=False, urgent=False),
    )
    assert first_in_line([read, other]) == [read, other]  # type: ignore[list-item]
    assert first_in_line([read, other, urgent]) == [read, urgent]  # type: ignore[list-item]
    assert first_in_line([urgent, Standing(ready=False, urgent=True)]) == [urgent]  # type: ignore[list-item]
    newer = Standing(ready=False, urgent=False, written=1.0)
    assert first_in_line([other, newer, read]) == [read, newer, other]  # type: ignore[list-item]
    urgent.ready = True
    assert first_in_line([read, other, urgent]) == [read, urgent, other]  # type: ignore[list-item]


def test_a_start_above_an_archive_asks_each_run_once_when_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every turn asked every run that waited, once to choose and once to store: files times turns."""
    asked, ask, turn = list[str](), newest_write, WatchedRun.turn
    for number in range(3 * RUNS):
        Run(tmp_path, f"run{number}")

    def counted(run: FoundRun) -> float:
        asked.append(run.name)
        return ask(run)

    def slow(self: WatchedRun, now: float, listing: float) -> bool:
        live.timer += 1.0
        return turn(self, now, listing)

    for module in (daemon, first_turns, run_reader, run_registry, turn_order, watched_run):
        monkeypatch.setattr(module, "newest_write", counted, raising=False)
    monkeypatch.setattr(WatchedRun, "turn", slow)
    live = Live(tmp_path / "runs", tmp_path / "state", now=(tmp_path / "runs").stat().st_mtime)
    live.settle()
    assert len(set(asked)) == len(asked) == 3 * RUNS
    live.close()
