"""What is shown of a run is what a snapshot of it says now, although one is made only after something has changed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_watch.daemon.watched_run import WatchedRun
from grpo_watch.engine.detector import QUIET, Detector, RunView
from grpo_watch.engine.engine import Engine
from grpo_watch.engine.records import Activity, EndState, EventKind, Item, MetricRow, Reading, RunEvent, Stream, Tick
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.snapshot import RuleStatus, RunSnapshot, moved_by_time, take_snapshot
from grpo_watch.rules.rule_changes import rule_set
from grpo_watch.store.state import Store, StoredBatch
from tests.support.bundles import RECORDED, bundled_runs
from tests.support.feeding import DETECTORS, RULES, RUN, recorded
from tests.support.live import Live, watched, watched_from
from tests.support.wandering import wander

RUNS = [name for name in bundled_runs() if "config-errors" not in name][::3]  # that one is several runs
FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"
HUNG = "trl-1.16.0-18-hang"
PAUSES = (0.2, 1.0, 30.0, 4_000.0)
"""Seconds between two ticks; the last one is a stall."""


@pytest.fixture
def one(tmp_path: Path) -> WatchedRun:
    return watched(tmp_path)


def in_time(items: list[Item], rng: random.Random) -> Iterator[Item]:
    """The items with ticks between them, then silence for hours, and one row more."""
    now = RECORDED
    for item in [*items[:-1], *(Tick(0.0) for _ in range(20)), items[-1]]:
        now += rng.choice(PAUSES if isinstance(item, Tick) else PAUSES[:2])
        yield Tick(now) if isinstance(item, Tick) else item
        if rng.random() < 0.2:
            yield Tick(now)
        if rng.random() < 0.02:
            yield RunEvent("hook", rng.choice((EventKind.DELIVERY_PROBLEM, EventKind.DELIVERY_RECOVERED)), text="500")


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_what_is_shown_is_what_is(name: str, one: WatchedRun) -> None:
    rng = random.Random(name)
    for number, item in enumerate(in_time(recorded(name).in_turn(), rng)):
        one.feed(item)
        if isinstance(item, Tick) or number % 7 == 0:
            assert one.snapshot() == take_snapshot(one.pipeline.state), item


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_what_a_tick_changes_is_known(seed: int) -> None:
    rng, engine, same = random.Random(seed), Engine(RUN, RULES, DETECTORS), 0
    engine.state.shows_end = True
    for record in wander(rng, 150):
        engine.feed(record)
        if rng.random() < 0.3:
            state = engine.state
            before, shown = moved_by_time(state), take_snapshot(state)
            engine.feed(Tick((state.latest_row_time or 0.0) + rng.choice(PAUSES)))
            if moved_by_time(state) == before:
                assert take_snapshot(state) == shown
                same += 1
    assert same > 0


def test_what_is_settled_or_not_readable_is_shown(one: WatchedRun, tmp_path: Path) -> None:
    for item in recorded(FROZEN).in_turn():
        one.feed(item)
    fired = {key: alert for key, alert in one.alerts().items() if alert.fired_step is not None}
    store = Store(tmp_path / "again", RECORDED)
    store.register("/runs/run", RUN, RECORDED)
    store.commit([StoredBatch(RUN, RECORDED, alerts=fired)])
    again = watched_from(store)
    assert fired
    assert fired.keys() <= {(view.rule, view.key) for view in again.snapshot().alerts}
    one.pipeline.state.refused = {"completions": "a link that leads out of the folder"}
    assert one.snapshot() == take_snapshot(one.pipeline.state)
    one.set_problem("mine.yaml:3:5: no", RECORDED)
    assert one.snapshot() == take_snapshot(one.pipeline.state)


def test_where_nothing_happens_no_snapshot_is_made(one: WatchedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    made, take = 0, one.pipeline.snapshot

    def counted() -> RunSnapshot:
        nonlocal made
        made += 1
        return take()

    monkeypatch.setattr(one.pipeline, "snapshot", counted)
    for item in recorded(FROZEN).in_turn():
        one.feed(item)
    one.feed(Tick(RECORDED))
    first, before = one.snapshot(), made
    for seconds in range(1, 60):
        one.feed(Tick(RECORDED + seconds))
        assert one.snapshot() is first
    assert made == before == 1


class RaisesAtNight(Detector):
    """Breaks at a tick."""

    reads = (Tick,)

    def observe(self, record: Tick, *_: RunView) -> tuple[Reading, ...]:
        return QUIET if record.now < RECORDED else (QUIET[7],)


def test_a_rule_that_breaks_at_a_tick_is_shown(tmp_path: Path) -> None:
    rules = rule_set([Rule("raises-at-night")], {"raises-at-night": RaisesAtNight})
    one = watched(tmp_path, rules, RECORDED - 10.0)
    for now in (RECORDED - 1.0, RECORDED):
        one.feed(Tick(now))
        (shown,) = one.snapshot().rules
        assert shown.status is (RuleStatus.OK if now < RECORDED else RuleStatus.BROKEN)


def test_an_alert_that_fires_at_a_tick_is_shown(one: WatchedRun) -> None:
    seen = RECORDED
    for item in recorded(HUNG).in_turn():
        one.feed(item)
    one.feed(Tick(seen))
    one.feed(RunEvent("train.log", EventKind.TRACEBACK, text="RuntimeError: no", seen=seen))
    states = []
    for later in (1.0, 2_000.0):
        one.feed(Tick(seen + later))
        states += [alert.rule for alert in one.snapshot().alerts if alert.rule == "run-crashed"]
    assert states == ["run-crashed"]


def test_what_a_stall_costs_grows_while_its_rule_says_nothing() -> None:
    engine, seen = Engine(RUN, RULES, DETECTORS), set()
    engine.state.shows_end = True
    for step in (1, 2, 3):
        engine.feed(MetricRow(RUN, Stream.TRAIN, 1, step, {"loss": 0.1}, time=float(step)))
    engine.feed(Tick(9_000.0))
    for now in (10_000.0, 20_000.0, 30_000.0):
        engine.feed(Tick(now, state=EndState.ENDED))
        (finding,) = (each for each in take_snapshot(engine.state).findings if each.rule == "run-stalled")
        seen |= {(finding.wasted, moved_by_time(engine.state))}
    assert len({wasted for wasted, _ in seen}) == len({moved for _, moved in seen}) == 3


def test_growth_between_two_ticks_is_a_sign_of_life_when_it_was(tmp_path: Path) -> None:
    """A bar that is drawn on gives no item; the cursor is stored in the turn that reads it, before the next tick."""
    log = tmp_path / "runs" / "run" / "train.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"{{'loss': 0.1, 'reward': {step / 10}, 'kl': 0.1}}\n" for step in range(1, 9)))
    live = Live(tmp_path / "runs", tmp_path / "state", now=log.stat().st_mtime)
    for _ in range(20):
        live.settle(1.0)
    live.now += 0.5
    with log.open("a") as file:
        file.write("waiting for the rollout server ...")
    live.daemon.turn([log.parent])
    drawn = live.now
    for _ in range(20):
        live.settle(1.0)
    live.close()
    again = Store(tmp_path / "state", live.now)
    (name,) = (run.name for run in again.runs())
    assert [item.time for item in again.items(name) if isinstance(item, Activity)] == [drawn]


def test_a_burst_in_a_watched_folder_is_read_to_its_end_at_once(tmp_path: Path) -> None:
    """One write rings once; what a turn leaves is read in the next, not after the longest rest."""
    (folder := tmp_path / "run").mkdir()
    log = folder / "logging.jsonl"
    line = '{"reward": 0.5, "kl": 0.01, "loss": 0.1, "global_step/max_steps": "%d/9000"}\n'
    log.write_text(line % 1)
    live = Live(folder, tmp_path / "state", now=RECORDED)
    live.settle()
    with log.open("a") as file:
        file.writelines(line % step for step in range(2, 5_002))
    live.now += 2.0
    live.daemon.turn({folder}, {folder})
    for _ in range(10):
        live.now += 0.01
        live.daemon.turn((), {folder})
    assert live.run().step == 5_001
