"""Runs of a large fleet get their turns less often; no row and no alert is lost by that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.catalogue import catalogue
from grpo_watch.daemon import daemon
from grpo_watch.daemon.run_reader import RunReader, TurnResult
from grpo_watch.daemon.run_registry import WHOLE_LOOKS
from grpo_watch.daemon.schedule import FEW_RUNS, GROWING_SECONDS, Intervals, Rest, intervals
from grpo_watch.engine.records import AlertState
from grpo_watch.rules.packs import load_rules
from grpo_watch.rules.rule_changes import rule_set
from grpo_watch.store.state import Store
from tests.support.high import RULE, RULES, Run
from tests.support.live import Live

STORE_SECONDS = 30.0


def live(folder: Path, now: float) -> Live:
    """A daemon over a run whose rows say whether an alert fires."""
    (folder / "high.yaml").write_text(RULES)
    rules = rule_set(load_rules([folder / "high.yaml"]), catalogue())
    return Live(folder / "runs", folder / "state", now=now, rules=lambda: rules)


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are stored as seldom as in a large fleet."""
    monkeypatch.setattr(daemon, "intervals", lambda _: Intervals(store=STORE_SECONDS))


def stored(one: Live) -> int | None:
    """The step of the stored snapshot."""
    snapshot = one.store.snapshot("run")
    return snapshot.step if snapshot is not None else None


def test_few_runs_are_read_at_once_and_stored_within_a_second() -> None:
    assert intervals(FEW_RUNS) == Intervals(read=0.0, tick=1.0, listing=1.0, store=1.0)


def test_the_rows_of_all_runs_are_stored_in_one_commit_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten runs log a row each, one after the other, within a second; an alert of one is stored at once, by itself."""
    runs, commits = [Run(tmp_path, f"run{number}") for number in range(10)], list[list[str]]()
    one = live(tmp_path, runs[-1].path.stat().st_mtime)
    one.settle()
    one.settle()
    commit = one.store.commit
    monkeypatch.setattr(
        one.store, "commit", lambda batches, sent: (commits.append([b.run for b in batches]), commit(batches, sent))
    )
    for number, run in enumerate(runs):
        run.write(0.9 if number == 5 else 0.2)
        one.now += 0.09
        one.daemon.turn([run.path])
    assert commits == [["run0"], ["run5"]]
    one.now += 0.5
    one.daemon.turn()
    rest = [run.path.name for run in runs if run.path.name not in {"run0", "run5"}]
    assert commits[2:] == [rest]
    one.close()


@pytest.mark.parametrize("seen_after", [0.0, 175.0])
def test_a_stall_is_reported_when_its_silence_is_too_long_though_the_run_rests(
    seen_after: float, tmp_path: Path
) -> None:
    """Writes end the rest of a watched run, which lasts half a minute; nothing is written here."""
    log = tmp_path / "runs" / "run" / "logging.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f'{{"reward": 0.5, "global_step/max_steps": "{step}/90"}}\n' for step in range(1, 6)))
    one = Live(log.parent, tmp_path / "state", now=log.stat().st_mtime + seen_after)
    one.settle()
    one.daemon.turn([], one.folders())
    began, fired = log.stat().st_mtime, 0.0
    while not fired and one.now < began + 400.0:
        one.now += 1.0
        one.daemon.turn([], one.folders())
        fired = one.now if any(found.rule == "run-stalled" for found in one.run().findings) else 0.0
    assert 300.0 < fired - began <= 302.0
    one.close()


def test_a_log_in_a_watched_folder_is_not_looked_at_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, read = Run(tmp_path), list[float]()
    one = live(tmp_path, run.path.stat().st_mtime)
    one.settle()
    taken = RunReader.read

    def noted(self: RunReader, now: float, *rest: Any) -> TurnResult:
        read.append(now)
        return taken(self, now, *rest)

    monkeypatch.setattr(RunReader, "read", noted)
    began = one.now
    watched = [run.path]
    one.daemon.turn((), watched)
    assert read == [began]  # what was written before it was watched did not ring
    for second in (100, 200):
        one.now = began + second
        one.daemon.turn((), watched)
    read.clear()
    for second in range(201, 210):
        one.now = began + second
        one.daemon.turn((), watched)
    assert read == []
    one.daemon.turn([run.path / "logging.jsonl"], watched)
    assert read == [began + 209]
    for second in range(210, 241):
        one.now = began + second
        one.daemon.turn((), watched)
    assert 2 <= len(read) <= 3  # a file system may say nothing of a write
    one.close()


def test_looks_that_find_nothing_new_give_no_run_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, read = Run(tmp_path), list[float]()
    one = live(tmp_path, run.path.stat().st_mtime)
    one.settle()
    watched = one.folders()
    one.daemon.turn((), watched)
    monkeypatch.setattr(RunReader, "read", lambda _, now, *__: read.append(now) or TurnResult(0, more=False))
    for _ in range(2 * WHOLE_LOOKS):
        one.look()
        one.daemon.turn((), watched)
    assert read == []
    one.daemon.turn([run.path], watched)
    assert read == [one.now]
    one.close()


def test_runs_at_rest_slow_down_no_run_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, growing = [Run(tmp_path, f"run{number}") for number in range(3)], list[int]()
    monkeypatch.setattr(daemon, "intervals", lambda runs: growing.append(runs) or Intervals())
    one = live(tmp_path, runs[-1].path.stat().st_mtime)
    one.settle()
    one.settle()
    assert growing[-1] == 3
    one.now += GROWING_SECONDS
    runs[0].write(0.2)
    one.settle()
    one.settle()
    assert growing[-1] == 1
    one.close()


@given(st.integers(0, 1_000))
def test_a_thousand_runs_are_read_within_half_a_second(runs: int) -> None:
    apart = intervals(runs)
    assert apart.read <= 0.5
    assert apart.tick <= 3.0
    assert apart.listing <= 5.0
    assert apart.store <= 5.0


def test_a_run_that_just_gave_a_row_rests_as_long_as_it_must() -> None:
    rest = Rest(100.0)
    rest.read(100.0, gave=True)
    assert rest.until(0.45) == 100.45


@pytest.mark.usefixtures("crowded")
def test_a_quiet_row_is_shown_at_once_and_stored_later(tmp_path: Path) -> None:
    run = Run(tmp_path)
    began = run.path.stat().st_mtime
    one = live(tmp_path, began)
    one.settle()
    run.write(0.2)
    one.settle()
    assert (one.run().step, stored(one)) == (2, 1)
    one.settle(STORE_SECONDS)
    assert stored(one) == 2
    one.close()


@pytest.mark.usefixtures("crowded")
def test_an_alert_is_stored_at_once_with_the_rows_before_it(tmp_path: Path) -> None:
    run = Run(tmp_path)
    one = live(tmp_path, run.path.stat().st_mtime)
    one.settle()
    run.write(0.2)
    one.settle()
    run.write(0.9)
    one.settle()
    assert stored(one) == 3
    assert one.transitions("run")[-1].to_state is AlertState.FIRING
    one.close()


@pytest.mark.usefixtures("crowded")
def test_rows_that_were_not_stored_are_read_again_after_a_crash(tmp_path: Path) -> None:
    run = Run(tmp_path)
    began = run.path.stat().st_mtime
    one = live(tmp_path, began)
    one.settle()
    run.write(0.9, 0.2)
    one.settle()
    run.write(0.2, 0.2)
    one.settle()
    before = one.transitions("run")
    assert (one.run().step, stored(one)) == (5, 3)
    one.kill()
    again = live(tmp_path, began + 10.0)
    again.settle()
    assert again.run().step == 5
    assert again.run().rows == 5
    assert again.transitions("run") == before
    assert [each.to_state for each in before if each.rule == RULE] == [AlertState.FIRING, AlertState.RESOLVED]
    again.close()


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("deleted", [False, True])
def test_what_waits_is_stored_when_the_run_is_let_go(tmp_path: Path, deleted: bool) -> None:  # noqa: FBT001
    run = Run(tmp_path)
    one = live(tmp_path, run.path.stat().st_mtime)
    one.settle()
    run.write(0.2)
    one.settle()
    assert stored(one) == 1
    if deleted:
        (run.path / "logging.jsonl").unlink()
        one.lose()
        assert stored(one) == 2
    one.close()
    kept = Store(tmp_path / "state", one.now)
    snapshot = kept.snapshot("run")
    assert snapshot is not None
    assert snapshot.step == 2
    kept.close()
