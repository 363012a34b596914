"""The daemon, turned by hand over real runs: it says what ``check`` says, whatever interrupts it."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.daemon import daemon
from grpo_watch.daemon.daemon import Daemon
from grpo_watch.daemon.dispatcher import NotificationDispatcher
from grpo_watch.daemon.run_detail import RunDetail
from grpo_watch.daemon.run_end import LOST_LOOKS, LOST_SECONDS, QUIET_STALLED
from grpo_watch.daemon.run_reader import WatchOptions
from grpo_watch.engine.records import AlertState, Tick, Transition
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.errors import RuleError
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from grpo_watch.notify.receiver import Route, RoutedReceiver
from grpo_watch.pipeline.offline import replay
from grpo_watch.pipeline.open_run import open_run
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.rules.packs import load_rules
from grpo_watch.rules.rule_changes import RuleSet, rule_set
from grpo_watch.sources.checkpoints.source import SETTLED
from grpo_watch.sources.discovery.discover import Discoverer
from grpo_watch.sources.files.reading import BUDGET
from grpo_watch.web.run_pages import columns_document
from tests.support.bundles import RECORDED, bundled_runs, unpack
from tests.support.high import Run
from tests.support.live import SHIPPED, Live, each_time, transitions_in
from tests.support.postbox import Named

DAY = 86_400.0
FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"
BROKEN = RuleError("mine.yaml:3:5: no")


def findings(snapshot: RunSnapshot) -> list[tuple[object, ...]]:
    return sorted(
        (f.rule, f.key, f.severity.value, f.attempt, f.first_step, f.fired_step, f.resolved_step, f.caused_by)
        for f in snapshot.findings
    )


def checked(path: Path, now: float) -> dict[str, list[tuple[object, ...]]]:
    """What ``check`` finds."""
    found = {}
    for run in Discoverer().discover(path):
        pipeline = Pipeline(run.name, SHIPPED.rules, SHIPPED.detectors)
        opened = open_run(run, pipeline)
        list(replay(opened, pipeline, Tick(now, live=False)))
        opened.close()
        found[run.name] = findings(pipeline.snapshot())
    return found


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    """A real ms-swift run whose optimizer does nothing, in a folder of its own."""
    run = unpack(FROZEN, tmp_path / "runs")
    os.utime(run, (RECORDED, RECORDED))
    return run


@pytest.fixture
def going_on(frozen: Path) -> Path:
    """The same run in its middle: 30 rows in its log, and no console."""
    for console in frozen.rglob("*.log"):
        console.unlink()
    log = next(frozen.rglob("logging.jsonl"))
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:30]))
    for path in (log, log.parent, frozen):
        os.utime(path, (RECORDED, RECORDED))
    return frozen


@pytest.mark.slow
@pytest.mark.parametrize("name", bundled_runs())
def test_an_old_run_gets_the_verdict_of_check(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path / "runs")
    os.utime(path, (RECORDED, RECORDED))  # the copy's own folder is as new as the machine's clock says, a day later too
    live = Live(path, tmp_path / "state", now=RECORDED + 2 * DAY)
    live.settle()
    assert {run.snapshot.run: findings(run.snapshot) for run in live.daemon.snapshot().runs} == checked(path, live.now)
    live.close()


def feed(target: Path, data: bytes, pieces: Sequence[int]) -> Iterator[None]:
    """Append ``data`` to ``target`` in pieces that end at the given offsets."""
    for start, end in zip([0, *pieces], [*pieces, len(data)], strict=True):
        with target.open("ab") as file:
            file.write(data[start:end])
        yield


def grown(frozen: Path, state: Path, cuts: Sequence[int], restarts: Sequence[int] = ()) -> list[Transition]:
    """The transitions of a run whose log grows under the daemon, which is killed at some of the cuts."""
    log = next(frozen.rglob("logging.jsonl"))
    data = log.read_bytes()
    log.write_bytes(b"")
    live = Live(frozen, state, now=RECORDED)
    live.settle()
    for number, _ in enumerate(feed(log, data, cuts)):
        live.settle()
        if number in restarts:
            live.kill()
            live = Live(frozen, state, now=live.now)
    live.settle()
    reported = live.transitions(live.run().run)
    live.close()
    return reported


def story(transitions: Sequence[Transition]) -> list[tuple[object, ...]]:
    return [(t.id, t.rule, t.from_state, t.to_state, t.step, t.first_step, t.severity, t.reading) for t in transitions]


@pytest.mark.slow
def test_chunks_and_restarts_change_nothing(tmp_path: Path) -> None:
    """The log arrives in random chunks, and the daemon dies after each: the same transitions, none twice."""
    copies = [unpack(FROZEN, tmp_path / f"{number}") for number in range(3)]
    size = next(copies[0].rglob("logging.jsonl")).stat().st_size
    chance = random.Random(5)
    cuts = sorted(chance.sample(range(1, size), 25))
    steady = grown(copies[0], tmp_path / "state0", [])
    assert {t.rule for t in steady if t.to_state is AlertState.FIRING} >= {"kl-stuck-at-zero"}
    assert story(grown(copies[1], tmp_path / "state1", cuts)) == story(steady)
    assert story(grown(copies[2], tmp_path / "state2", cuts, restarts=range(25))) == story(steady)


def test_a_restart_shows_what_was_reported_before_anything_is_read(frozen: Path, tmp_path: Path) -> None:
    first = Live(frozen, tmp_path / "state", now=RECORDED)
    first.settle()
    before = first.run()
    first.kill()
    again = Live(frozen, tmp_path / "state", now=RECORDED + 5)
    assert again.run() == before
    assert not again.daemon.ready()
    reported = again.transitions(before.run)
    again.settle()
    assert findings(again.run()) == findings(before)
    assert again.transitions(before.run) == reported
    again.close()


def test_a_run_of_endless_names_takes_no_other_run_along(frozen: Path, tmp_path: Path) -> None:
    """Also where its sentences are looked up in another language."""
    hostile = frozen.parent / "hostile"
    hostile.mkdir()
    names = [f"rewards/{name}{', a' * 320}/mean" for name in "abcd"] + [f"rewards/f{at}/mean" for at in range(500)]
    rows = [
        {"step": step, "reward": 0.3 + step % 7 / 70, "reward_std": 0.2, "kl": 0.01 * step, "loss": 0.1}
        | dict.fromkeys(names, 0.1 + step % 5 / 50 if step < 20 else float("nan"))
        for step in range(1, 30)
    ]
    (hostile / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for path in (hostile / "metrics.jsonl", hostile):
        os.utime(path, (RECORDED, RECORDED))
    chinese = rule_set(load_rules(language="zh"), catalogue())
    live = Live(frozen.parent, tmp_path / "state", now=RECORDED, rules=lambda: chinese)
    live.settle()
    found = {run.snapshot.run: {each.rule: each.summary for each in run.snapshot.findings} for run in _runs(live)}
    assert "reward-not-finite" in found["hostile"]
    assert "参考模型 KL" in found[frozen.name]["kl-stuck-at-zero"]
    live.close()


def _runs(live: Live) -> Sequence[RunOverview]:
    return live.daemon.snapshot().runs


def test_it_is_ready_once_the_picture_shows_the_runs(
    frozen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of another thread asks just before each snapshot is made, when all was read."""
    asked: list[tuple[bool, int]] = []
    take = Daemon._take_snapshot

    def asked_before(daemon: Daemon) -> DaemonSnapshot:
        asked.append((daemon.ready(), len(daemon.snapshot().runs)))
        return take(daemon)

    live = Live(frozen.parent, tmp_path / "state", now=RECORDED)
    monkeypatch.setattr(Daemon, "_take_snapshot", asked_before)
    live.settle()
    assert asked
    assert {runs for ready, runs in asked if ready} <= {1}
    unpack("trl-1.16.0-04-healthy-lora", frozen.parent)
    asked.clear()
    live.settle()
    assert asked
    assert {runs for ready, runs in asked if ready} <= {2}
    assert live.daemon.ready()
    live.close()


def test_what_was_reached_before_the_first_sight_is_backlog(frozen: Path, tmp_path: Path) -> None:
    live = Live(frozen, tmp_path / "state", now=RECORDED)
    live.settle()
    name = live.run().run
    assert live.transitions(name)
    assert transitions_in(live.store, name, backlog=False) == []
    live.close()


def test_what_happens_while_the_daemon_is_down_is_no_backlog(frozen: Path, tmp_path: Path) -> None:
    next(frozen.rglob("train.log")).unlink()
    log = next(frozen.rglob("logging.jsonl"))
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:3]))
    live = Live(frozen, tmp_path / "state", now=RECORDED)
    live.settle()
    name = live.run().run
    live.kill()
    log.write_bytes(b"".join(lines))
    live = Live(frozen, tmp_path / "state", now=RECORDED + 60)
    live.settle()
    assert any(t.to_state is AlertState.FIRING for t in transitions_in(live.store, name, backlog=False))
    live.close()


def changed(**changes: object) -> RuleSet:
    """The shipped rules with ``kl-stuck-at-zero`` changed."""
    rules = [replace(r, **changes) if r.name == "kl-stuck-at-zero" else r for r in SHIPPED.rules]
    return rule_set(rules, SHIPPED.detectors)


def test_changed_rules_tell_what_changes_once(frozen: Path, tmp_path: Path) -> None:
    """Far more patience withdraws the alert, the old rules bring it back; nothing else fires, ids never repeat."""
    in_force = [SHIPPED]
    live = Live(frozen, tmp_path / "state", now=RECORDED, rules=lambda: in_force[0])
    live.settle()
    name, before = live.run().run, len(live.transitions(live.run().run))
    for rules in (changed(for_steps=10_000), SHIPPED, changed(hint="look again"), changed(for_steps=10_000)):
        in_force[0] = rules
        live.daemon.reload()
        live.settle()
    reported = live.transitions(name)[before:]
    assert [(t.rule, t.to_state.value) for t in reported] == [
        ("kl-stuck-at-zero", "resolved"),
        ("kl-stuck-at-zero", "firing"),
        ("kl-stuck-at-zero", "resolved"),
    ]
    assert len({t.id for t in live.transitions(name)}) == len(live.transitions(name))
    alert = next(a for a in live.run().alerts if a.rule == "kl-stuck-at-zero")
    assert (alert.state.value, alert.fired_total) == ("pending", 2)
    live.close()


def test_labels_and_settings_of_runs_apply_in_the_turn_after_a_reload(going_on: Path, tmp_path: Path) -> None:
    """Nothing is waited for: the clock stands still, and discovery does not look."""
    given = [WatchOptions(labels={"team": "a"})]
    live = Live(going_on, tmp_path / "state", now=RECORDED, options=lambda _: given[0])
    live.settle()
    before = findings(live.run())
    given[0] = WatchOptions(labels={"team": "b"}, settings={"beta": 0.25})
    live.daemon.turn()
    assert [run.labels for run in live.daemon.snapshot().runs] == [{"team": "a"}]
    live.daemon.reload()
    live.daemon.turn()
    assert [run.labels for run in live.daemon.snapshot().runs] == [{"team": "b"}]
    live.settle(0.0)
    assert live.run().config["beta"].value == 0.25
    assert findings(live.run()) == before
    live.close()


def test_a_run_that_begins_again_is_stored_by_its_new_watch_alone(tmp_path: Path) -> None:
    """The old one stored its cursor over the newer one; after a crash, rows were read twice."""
    run, given = Run(tmp_path), [WatchOptions()]
    at, log = run.path.stat().st_mtime, run.path / "logging.jsonl"
    live = Live(tmp_path / "runs", tmp_path / "state", now=at, options=lambda _: given[0])
    live.settle()
    run.write(0.2)
    live.settle(6.0)
    with log.open("a") as stream:  # bytes without a row: a cursor waits to be stored
        stream.write("not a row\n")
    live.settle(1.0)
    given[0] = WatchOptions(labels={"team": "a"})
    live.daemon.reload()
    live.settle(0.0)
    run.write(0.2, 0.2)
    live.settle(1.0)
    live.now += 5.0
    live.daemon.turn((), live.folders())
    assert live.store.cursors("run")["logging.jsonl"].position == log.stat().st_size
    assert live.store.snapshot("run") == live.run()
    live.close()


def test_a_setting_that_is_removed_holds_no_more(going_on: Path, tmp_path: Path) -> None:
    """After a reload as after a restart, and one that is set back is as it was."""
    given = [WatchOptions()]

    def config(live: Live) -> dict[str, Any]:
        config = live.run().config
        return {name: config[name].value for name in ("beta", "world_size") if name in config}

    def begin() -> Live:
        live = Live(going_on, tmp_path / "state", now=RECORDED, options=lambda _: given[0])
        live.settle()
        return live

    live = begin()
    own = config(live)
    for settings in ({"beta": 0.25, "world_size": 8}, {"world_size": 4}, {"beta": 0.25, "world_size": 8}, {}):
        given[0] = WatchOptions(settings=settings)
        live.daemon.reload()
        live.settle()
        assert config(live) == own | settings
        live.kill()
        live = begin()
        assert config(live) == own | settings
    live.close()


def test_a_changed_rule_after_a_restart(going_on: Path, tmp_path: Path) -> None:
    live = Live(going_on, tmp_path / "state", now=RECORDED)
    live.settle()
    name, before = live.run().run, len(live.transitions(live.run().run))
    live.kill()
    disabled = rule_set([replace(r, enabled=r.name != "kl-stuck-at-zero") for r in SHIPPED.rules], SHIPPED.detectors)
    for _ in range(2):
        live = Live(going_on, tmp_path / "state", now=RECORDED + 5, rules=lambda: disabled)
        live.settle()
        assert [(t.rule, t.to_state.value) for t in live.transitions(name)[before:]] == [
            ("kl-stuck-at-zero", "resolved")
        ]
        live.kill()


def test_rules_that_do_not_load_leave_the_old_in_force(going_on: Path, tmp_path: Path) -> None:
    live = Live(going_on, tmp_path / "state", now=RECORDED, rules=each_time(SHIPPED, BROKEN, SHIPPED))
    live.settle()
    before = findings(live.run())
    live.daemon.reload()
    live.settle()
    assert live.daemon.snapshot().reload_ok is False
    assert {f for f in findings(live.run()) if f[0] != "rule-broken"} == set(before)
    (alert,) = [alert for alert in live.run().alerts if alert.rule == "rule-broken"]
    assert (alert.key, alert.state.value, alert.evidence["error"]) == ("rule files", "firing", "mine.yaml:3:5: no")
    live.daemon.reload()
    live.settle()
    assert live.daemon.snapshot().reload_ok is True
    reported = [(t.key, t.to_state.value) for t in live.transitions(live.run().run) if t.rule == "rule-broken"]
    assert reported == [("rule files", "firing"), ("rule files", "resolved")]
    live.close()


def test_broken_rule_files_are_reported_where_all_runs_have_ended(frozen: Path, tmp_path: Path) -> None:
    """No alert can be about a finished run, so the snapshot (page, API) names the file and line itself."""
    live = Live(frozen, tmp_path / "state", now=RECORDED, rules=each_time(SHIPPED, BROKEN, SHIPPED))
    live.settle()
    assert live.daemon.snapshot().problems == ()
    live.daemon.reload()
    live.settle()
    (problem,) = live.daemon.snapshot().problems
    assert problem == "Settings or rules can't be loaded; the old ones stay in force: mine.yaml:3:5: no"
    live.daemon.reload()
    live.settle()
    assert live.daemon.snapshot().problems == ()
    live.close()


def test_rule_files_that_broke_are_forgotten_at_a_restart_with_good_ones(going_on: Path, tmp_path: Path) -> None:
    """The daemon does not start with broken files, so a new start ends the alert."""
    live = Live(going_on, tmp_path / "state", now=RECORDED, rules=each_time(SHIPPED, BROKEN))
    live.settle()
    live.daemon.reload()
    live.settle()
    live.kill()
    live = Live(going_on, tmp_path / "state", now=RECORDED + 5)
    live.settle()
    reported = [(t.key, t.to_state.value) for t in live.transitions(live.run().run) if t.rule == "rule-broken"]
    assert reported == [("rule files", "firing"), ("rule files", "resolved")]
    live.close()


def test_runs_and_channels_that_appear_later(tmp_path: Path) -> None:
    """A missing path is waited for; a second run and a new channel are found without a restart."""
    runs = tmp_path / "runs"
    live = Live(runs, tmp_path / "state", now=RECORDED)
    live.settle()
    assert live.daemon.snapshot().runs == ()
    source = unpack(FROZEN, tmp_path / "elsewhere")
    logs = next(source.rglob("logging.jsonl"))
    (runs / "a").mkdir(parents=True)
    shutil.copy(logs, runs / "a" / "logging.jsonl")
    live.settle()
    assert [run.snapshot.run for run in live.daemon.snapshot().runs] == ["a"]
    (runs / "b").mkdir()
    shutil.copy(logs, runs / "b" / "logging.jsonl")
    live.settle()
    assert [run.snapshot.run for run in live.daemon.snapshot().runs] == ["a", "b"]
    assert findings(live.run("a"))[0][2:] == findings(live.run("b"))[0][2:]
    kinds = {channel.source for channel in live.daemon.snapshot().runs[0].channels}
    shutil.copy(next(source.rglob("train.log")), runs / "a" / "train.log")
    live.settle()
    assert {channel.source for channel in live.daemon.snapshot().runs[0].channels} == kinds | {"console"}
    live.close()


def test_an_ended_run_lingers_and_goes(frozen: Path, tmp_path: Path) -> None:
    live = Live(frozen, tmp_path / "state", now=RECORDED + 10, linger=600.0)
    live.settle()
    live.settle()
    (run,) = live.daemon.snapshot().runs
    assert run.active is False
    assert run.ended == RECORDED
    assert len(live.daemon.detail(run.snapshot.run).series) > 10
    live.settle(300)
    assert len(live.daemon.snapshot().runs) == 1
    assert len(live.daemon.detail(run.snapshot.run).series) > 10
    live.settle(400)
    assert live.daemon.snapshot().runs == ()
    assert [past.snapshot.run for past in live.daemon.snapshot().past] == [run.snapshot.run]  # people still see it
    assert len(live.daemon.detail(run.snapshot.run).series) > 10
    live.kill()
    live = Live(frozen, tmp_path / "state", now=live.now + 300, linger=600.0)
    assert [past.snapshot.run for past in live.daemon.snapshot().past] == [run.snapshot.run]
    live.settle()
    assert [past.snapshot.run for past in live.daemon.snapshot().past] == [run.snapshot.run]
    live.close()


def test_runs_are_let_go_in_a_turn_that_concerns_all_of_them(tmp_path: Path) -> None:
    """A receiver that fails concerns every run; the engine died where one of them was let go in the same turn."""
    at = max(Run(tmp_path, name).path.stat().st_mtime for name in ("a", "b"))
    dispatcher = NotificationDispatcher([RoutedReceiver(Named(), Route())])
    live = Live(tmp_path / "runs", tmp_path / "state", now=at, dispatcher=dispatcher)
    live.settle()
    for _ in range(4):
        dispatcher._undelivered_reports = {("c", "hook"): "refused"}
        live.settle(2 * DAY)
    assert not live.daemon._registry.order.watches
    live.close()


def test_the_end_of_a_pipe_is_noticed_while_its_run_rests(tmp_path: Path) -> None:
    """Nothing is written then that would end its rest of up to 30 seconds."""
    run, given = Run(tmp_path), [False]
    options = WatchOptions(ended=lambda: given[0])
    live = Live(tmp_path / "runs", tmp_path / "state", now=run.path.stat().st_mtime, options=lambda _: options)
    live.settle()
    for seconds, ended in ((20.0, False), (20.0, False), (20.0, False), (1.0, True)):
        given[0] = ended
        live.now += seconds
        live.daemon.turn((), live.folders())
    assert live.daemon.snapshot().runs[0].ended is not None
    live.close()


def test_checkpoints_of_an_ended_run_that_was_copied_are_read_before_it_is_let_go(tmp_path: Path) -> None:
    """The copy left the weights newer than the marker, as in a save that is under way; both must keep still first."""
    run = unpack("ms-swift-4.6.0-21-late-freeze-full", tmp_path / "runs")
    for weights in run.rglob("model.safetensors"):
        os.utime(weights, (RECORDED + 5, RECORDED + 5))
    os.utime(run, (RECORDED, RECORDED))
    live = Live(run, tmp_path / "state", now=RECORDED + 70, linger=3_600.0, exit_when_done=True)
    for _ in range(4):
        live.settle()
    assert [(run.active, findings(run.snapshot)) for run in live.daemon.snapshot().runs] == [(False, [])]
    assert not live.daemon.done
    live.settle(SETTLED)
    for _ in range(4):
        live.settle()
    assert [found[0] for found in findings(live.run())] == ["parameters-unchanged"]
    assert live.daemon.done
    live.close()


def test_a_run_that_vanishes_is_reported_as_no_longer_watched(going_on: Path, tmp_path: Path) -> None:
    """A share that is unmounted looks like that: what fired stays, once; it goes on when the files are back."""
    live = Live(going_on.parent, tmp_path / "state", now=RECORDED + 60)
    live.settle()
    (known,) = live.daemon.snapshot().runs
    shutil.copytree(going_on, tmp_path / "aside")
    shutil.rmtree(going_on)
    live.lose()
    shown = live.daemon.snapshot()
    assert shown.problems == (f"Not found any more, and not watched: {known.snapshot.run}",)
    assert [(run.active, findings(run.snapshot)) for run in shown.runs] == [(False, findings(known.snapshot))]
    (tmp_path / "aside").rename(going_on)
    reported = live.transitions(known.snapshot.run)
    live.settle()
    live.settle()
    shown = live.daemon.snapshot()
    assert (shown.problems, [run.active for run in shown.runs]) == ((), [True])
    assert live.transitions(known.snapshot.run) == reported
    shutil.rmtree(going_on)
    live.lose()
    live.settle(3_700.0)
    assert live.daemon.snapshot().problems == ()
    live.close()


def test_one_missed_look_ends_no_run(going_on: Path, tmp_path: Path) -> None:
    """A folder that is moved away for a while, and a log that is renamed, are read on through their open files."""
    log = next(going_on.rglob("logging.jsonl"))
    live = Live(going_on.parent, tmp_path / "state", now=RECORDED + 60, exit_when_done=True)
    live.settle()
    step, rows = live.run().step, log.read_text().splitlines()
    going_on.rename(tmp_path / "aside")
    moved = tmp_path / "aside" / log.relative_to(going_on)
    for number in range(1, 6):
        with moved.open("a") as file:
            row = {**json.loads(rows[-1]), "global_step/max_steps": f"{step + number}/100"}
            file.write(json.dumps(row) + "\n")
        live.settle(90.0)
        assert live.daemon.snapshot().runs[0].active
        assert not live.daemon.done
        assert live.run().step == step + number
    (tmp_path / "aside").rename(going_on)
    live.settle()
    assert (live.run().step, live.daemon.snapshot().runs[0].lost) == (step + 5, False)
    live.close()


@pytest.mark.slow
@pytest.mark.parametrize("hole", [True, False])
def test_a_huge_log_of_one_run_delays_no_other(going_on: Path, tmp_path: Path, hole: bool) -> None:  # noqa: FBT001
    """No run waits for another longer than one budget, be it of bytes that nobody wrote or of noise."""
    evil = going_on.with_name("evil")
    shutil.copytree(going_on, evil)
    logs = {run: next(run.rglob("logging.jsonl")) for run in (going_on, evil)}
    live = Live(going_on.parent, tmp_path / "state", now=RECORDED + 60)
    live.settle()
    step = live.run(going_on.name).step
    if hole:
        os.truncate(logs[evil], 64 << 30)
    else:
        with logs[evil].open("a") as file:
            file.write("no row at all\n" * (BUDGET // 2))
    row = {**json.loads(logs[going_on].read_text().splitlines()[-1]), "global_step/max_steps": f"{step + 1}/100"}
    with logs[going_on].open("a") as file:
        file.write(json.dumps(row) + "\n")
    live.now += 1.1
    live.daemon.turn([log.parent for log in logs.values()])
    assert live.run(going_on.name).step == step + 1
    read = next(source for source in live.daemon._registry.get("evil").reader.channels if "jsonl" in source.name)  # type: ignore[union-attr]
    assert read.stats.bytes < 2 * BUDGET
    live.settle()
    live.close()


def test_a_lost_run_is_not_called_healthy(tmp_path: Path) -> None:
    """Its files are gone for a minute and three looks, and its end was not seen; so after a restart."""
    runs = tmp_path / "runs"
    unpack("trl-1.16.0-04-healthy-lora", runs)
    for log in runs.rglob("*.log"):
        log.write_text(log.read_text()[: len(log.read_text()) // 2])
    live = Live(runs, tmp_path / "state", now=RECORDED + 60)
    live.settle()
    shutil.rmtree(runs / "trl-1.16.0-04-healthy-lora")
    live.settle()
    assert live.daemon.snapshot().runs[0].active
    live.lose()
    (run,) = live.daemon.snapshot().runs
    assert (run.active, run.lost, run.snapshot.verdict.value) == (False, True, "lost")
    live.close()
    again = Live(runs, tmp_path / "state", now=RECORDED + 300)
    assert again.run().verdict.value == "lost"
    again.close()


def shown(detail: RunDetail) -> tuple[object, ...]:
    return columns_document(detail.series), detail.batches, detail.keys


def test_a_run_that_is_lost_before_it_was_read_again_keeps_its_history(
    going_on: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had ended and went on; while a daemon read others at its start, it vanished."""
    log, runs = next(going_on.rglob("logging.jsonl")), going_on.parent
    live = Live(runs, tmp_path / "state", now=RECORDED + 60)
    live.settle()
    live.settle(QUIET_STALLED + 60)
    before = live.daemon.detail(going_on.name)
    assert (live.daemon.snapshot().runs[0].active, len(before.series) > 0) == (False, True)
    row = next(line for line in log.read_text().splitlines() if '"global_step/max_steps"' in line)
    with log.open("a") as file:
        file.write(row.replace('"global_step/max_steps": "', '"global_step/max_steps": "9') + "\n")
    os.utime(log, (live.now, live.now))
    live.settle()
    assert live.daemon.snapshot().runs[0].active
    live.kill()
    again = Live(runs, tmp_path / "state", now=live.now + 1.0)
    monkeypatch.setattr(daemon, "STORE_SECONDS", 0.0)  # it has no turn
    again.look()
    again.daemon.turn()
    shutil.rmtree(going_on)
    for _ in range(LOST_LOOKS + 1):
        again.now += LOST_SECONDS / 2
        again.look()
        again.daemon.turn()
    (lost,) = again.daemon._registry
    assert (lost.life.lost, lost.begun, shown(lost.detail())) == (True, 1, shown(before))
    again.close()
    last = Live(runs, tmp_path / "state", now=again.now + 1.0)
    assert shown(last.daemon.detail(going_on.name)) == shown(before)
    last.close()


def test_a_renamed_run_is_not_read_twice(going_on: Path, tmp_path: Path) -> None:
    live = Live(going_on.parent, tmp_path / "state", now=RECORDED + 60)
    live.settle()
    going_on.rename(going_on.with_name("renamed"))
    live.settle()
    assert [run.snapshot.run for run in live.daemon.snapshot().runs if run.active] == ["renamed"]
    live.close()


def test_an_ended_run_that_goes_on_is_taken_up_again(frozen: Path, tmp_path: Path) -> None:
    log = next(frozen.rglob("logging.jsonl"))
    live = Live(frozen, tmp_path / "state", now=RECORDED + 10)
    live.settle()
    live.settle(100)
    live.settle(100)
    assert live.daemon.snapshot().runs[0].active is False
    row = next(line for line in log.read_text().splitlines() if '"global_step/max_steps"' in line)
    with log.open("a") as file:
        file.write(row.replace('"global_step/max_steps": "', '"global_step/max_steps": "9') + "\n")
    live.now = log.stat().st_mtime
    live.settle()
    (run,) = live.daemon.snapshot().runs
    assert run.active is True
    assert run.snapshot.step >= 90
    assert live.store.runs()[0].ended is None
    live.close()


def test_it_ends_when_all_is_done(frozen: Path, tmp_path: Path) -> None:
    live = Live(frozen, tmp_path / "state", now=RECORDED + 10, exit_when_done=True)
    assert live.daemon.done is False
    for _ in range(4):
        live.settle()
    assert live.daemon.done is True
    live.close()


def test_it_does_not_end_before_a_run_came_or_while_one_goes_on(frozen: Path, tmp_path: Path) -> None:
    log = next(frozen.rglob("logging.jsonl"))
    lines = log.read_bytes().splitlines(keepends=True)
    hidden = frozen.rename(tmp_path / "hidden")
    live = Live(frozen, tmp_path / "state", now=RECORDED, exit_when_done=True)
    for _ in range(4):
        live.settle()
    hidden.rename(frozen)
    log.write_bytes(b"".join(lines[:5]))
    for console in frozen.rglob("*.log"):
        console.unlink()
    live.now = log.stat().st_mtime
    for _ in range(4):
        live.settle()
    assert live.daemon.done is False
    live.close()


@pytest.mark.parametrize(
    ("broken", "repaired"),
    [("max_page_count = 1", "max_page_count = 100000"), ("query_only = ON", "query_only = OFF")],
    ids=["full", "read-only"],
)
def test_a_full_disk_is_reported_and_survived(frozen: Path, tmp_path: Path, broken: str, repaired: str) -> None:
    """The watch goes on in memory; once it can be written all is stored, and a restart finds it."""
    live = Live(frozen, tmp_path / "state", now=RECORDED)
    live.store._database.execute(f"PRAGMA {broken}")
    live.settle()
    assert live.daemon.snapshot().state_ok is False
    assert "memory" in live.daemon.snapshot().problems[0]
    seen = findings(live.run())
    assert seen
    live.store._database.execute(f"PRAGMA {repaired}")
    live.settle(20)
    assert live.daemon.snapshot().state_ok is True
    reported = live.transitions(live.run().run)
    live.kill()
    live = Live(frozen, tmp_path / "state", now=RECORDED + 60)
    live.settle()
    assert findings(live.run()) == seen
    assert live.transitions(live.run().run) == reported
    live.close()


def test_a_state_that_is_locked_at_the_start_is_taken_up_once_it_is_free(
    frozen: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then it judges and says so; then the daemon asks to be followed by one that has the state."""
    Live(frozen, tmp_path / "state", now=RECORDED).close()
    with closing(sqlite3.connect(tmp_path / "state" / "state.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        live = Live(frozen, tmp_path / "state", now=RECORDED + 10)
        live.settle()
        seen = findings(live.run())
        assert seen
        assert live.daemon.snapshot().state_ok is False
        assert "memory" in live.daemon.snapshot().problems[0]
        assert "watching without state" in caplog.messages
        live.settle(20)
        assert not live.daemon.begins_again
    live.settle(20)
    assert live.daemon.begins_again
    live.close()
    live = Live(frozen, tmp_path / "state", now=live.now)
    live.settle()
    assert findings(live.run()) == seen
    assert live.daemon.snapshot().state_ok is True
    assert not live.daemon.begins_again
    live.close()


def test_a_disk_that_stays_full_loses_nothing_of_the_run(frozen: Path, tmp_path: Path) -> None:
    live = Live(frozen, tmp_path / "state", now=RECORDED)
    pages = live.store._database.execute("PRAGMA page_count").fetchone()[0]
    live.store._database.execute(f"PRAGMA max_page_count = {pages}")
    live.settle()
    seen = findings(live.run())
    live.kill()
    live = Live(frozen, tmp_path / "state", now=RECORDED + 60)
    live.settle()
    assert findings(live.run()) == seen
    live.close()


def stalled(live: Live) -> bool:
    """Whether the run is reported as stalled, a good second later."""
    live.settle()
    return any(finding.rule == "run-stalled" and finding.resolved_step is None for finding in live.run().findings)


def test_a_clock_that_is_set_forward_stalls_no_run(going_on: Path, tmp_path: Path) -> None:
    """Two hours at once (the clock was wrong, the machine slept); silence is counted from there, and then tells."""
    live = Live(going_on, tmp_path / "state", now=RECORDED)
    live.settle()
    live.now += 7_200.0
    live.timer -= 7_200.0
    assert not stalled(live)
    live.now += 7_200.0
    assert stalled(live)
    live.close()


@pytest.mark.parametrize("table", ["items", "cursors"])
def test_a_damaged_run_is_read_again(frozen: Path, tmp_path: Path, table: str) -> None:
    live = Live(frozen, tmp_path / "state", now=RECORDED)
    live.settle()
    seen, reported = findings(live.run()), live.transitions(live.run().run)
    live.store._database.execute(f"UPDATE {table} SET data = x'00'")  # noqa: S608  a name of ours
    live.kill()
    live = Live(frozen, tmp_path / "state", now=RECORDED + 5)
    live.settle()
    assert findings(live.run()) == seen
    assert live.transitions(live.run().run) == reported
    live.close()


def test_damaged_alerts_end_nothing(frozen: Path, tmp_path: Path) -> None:
    live = Live(frozen, tmp_path / "state", now=RECORDED)
    live.settle()
    seen = findings(live.run())
    live.store._database.execute("UPDATE alerts SET data = x'00'")
    live.store._database.execute("UPDATE runs SET snapshot = x'00', ended = NULL, noted = NULL")
    live.kill()
    live = Live(frozen, tmp_path / "state", now=RECORDED + 5)
    assert live.daemon.snapshot().runs == ()
    live.settle()
    assert findings(live.run()) == seen
    live.close()


def test_a_source_that_raises_stops_alone(frozen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("grpo_watch.sources.console.source.ConsoleSource.poll", fail)
    live = Live(frozen, tmp_path / "state", now=RECORDED)
    live.settle()
    channels = {channel.source: channel for channel in live.daemon.snapshot().runs[0].channels}
    assert channels["console"].up is False
    assert "ZeroDivisionError" in channels["console"].problem
    assert channels["metrics-jsonl"].up is True
    assert findings(live.run())
    live.close()


def test_late_and_turns_are_measured(frozen: Path, tmp_path: Path) -> None:
    live = Live(frozen, tmp_path / "state", now=RECORDED)
    live.settle()
    assert live.daemon.late() is None
    live.timer += 11
    assert live.daemon.late() == 11
    assert sum(live.daemon.snapshot().turns.counts) >= 1
    live.close()


def test_each_run_is_reported_once(frozen: Path, tmp_path: Path) -> None:
    live = Live(frozen, tmp_path / "state", now=RECORDED)
    live.settle()
    live.settle()
    assert [snapshot.run for snapshot in live.reported] == [live.run().run]
    live.close()
    live = Live(frozen, tmp_path / "state", now=RECORDED + 60)  # it has ended and is not read again
    live.settle()
    assert [snapshot.run for snapshot in live.reported] == [live.run().run]
    live.close()
