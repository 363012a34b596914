"""In watched folders, what another process reads or what has to keep still comes as soon as it can."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.daemon import first_turns
from grpo_watch.daemon.run_reader import RunReader, WatchOptions
from grpo_watch.daemon.run_registry import RunRegistry
from grpo_watch.daemon.watched_run import WatchedRun
from grpo_watch.engine.records import AlertState
from tests.support.bundles import RECORDED, unpack
from tests.support.high import Run
from tests.support.live import Live

NAME = "trl-1.16.0-21-late-freeze"


class Elsewhere:
    """A worker process: its work is done when the test says so."""

    def __init__(self) -> None:
        self.given: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        self.given.append((Future(), function, arguments))
        return self.given[-1][0]

    def do(self) -> None:
        given, self.given = self.given, []
        for future, function, arguments in given:
            future.set_result(function(*arguments))


def settled(live: Live, elsewhere: Elsewhere) -> Live:
    """The daemon once everything that is there was read."""
    for _ in range(20):
        live.now += 1.1
        live.look()
        for _ in range(4):
            live.daemon.turn(live.folders())
            elsewhere.do()
    assert live.daemon.ready()
    return live


def watched(live: Live) -> list[Path]:
    """The folders of its logs, which inotify watches, with nothing new in them."""
    folders = live.folders()
    live.daemon.turn((), folders)
    return folders


def records(live: Live, source: str) -> int:
    return live.daemon.snapshot().records[source]


def begun(live: Live) -> dict[str, int]:
    """How often each run began to be read."""
    return {run.name: run.begun for run in live.daemon._registry.order.watches}


@pytest.fixture
def later(tmp_path: Path) -> tuple[Path, Path]:
    """A run whose last checkpoint was not written yet, and that checkpoint."""
    run = unpack(NAME, tmp_path / "runs")
    log = run / "train.log"
    log.write_text(log.read_text()[: len(log.read_text()) // 2])
    os.utime(log, (RECORDED, RECORDED))
    (run / "output" / "checkpoint-40").rename(tmp_path / "checkpoint-40")
    return run, tmp_path / "checkpoint-40"


def test_a_checkpoint_is_looked_at_again_after_a_second_and_taken_when_it_is_hashed(
    later: tuple[Path, Path], tmp_path: Path
) -> None:
    """Its second look came up to 10 s later, and so did the turn that took what the other process had read."""
    run, checkpoint = later
    elsewhere = Elsewhere()
    live = settled(Live(run, tmp_path / "state", now=RECORDED + 30.0, submit=elsewhere.submit), elsewhere)
    folders, before = watched(live), records(live, "checkpoints")
    shutil.copytree(checkpoint, run / "output" / "checkpoint-40")
    live.now += 2.0
    live.daemon.turn([run / "output"], folders)
    assert not elsewhere.given
    live.now += 1.0
    assert live.daemon.turn((), folders) > 0.0
    assert len(elsewhere.given) == 1
    live.now += 0.1
    live.daemon.turn((), folders)
    assert records(live, "checkpoints") == before
    elsewhere.do()
    live.daemon.turn((), folders)
    assert records(live, "checkpoints") == before + 1
    live.close()


@pytest.mark.parametrize("rings", [True, False])
def test_what_completes_a_checkpoint_is_noticed_though_only_its_own_folder_changed(
    later: tuple[Path, Path],
    tmp_path: Path,
    rings: bool,  # noqa: FBT001
) -> None:
    """Weights take long to write; the marker comes last, in a folder that may not be watched yet."""
    run, checkpoint = later
    live = settled(Live(run, tmp_path / "state", now=RECORDED + 30.0), Elsewhere())
    marker = run / "output" / "checkpoint-40" / "trainer_state.json"
    shutil.copytree(checkpoint, marker.parent, ignore=shutil.ignore_patterns(marker.name))
    folders = watched(live)
    live.now += 2.0
    live.daemon.turn([run / "output"], folders)
    before = records(live, "checkpoints")
    shutil.copy(checkpoint / marker.name, marker)
    for changed in ([marker] if rings else [], [], []):
        live.now += 1.1
        live.daemon.turn(changed, folders)
    assert records(live, "checkpoints") == before + 1
    live.close()


def test_a_dump_of_rollouts_is_read_after_its_second_look(tmp_path: Path) -> None:
    """One that nothing marks as whole is read if it stayed as it was for a second."""
    dumps = tmp_path / "runs" / "run" / "rollouts"
    dumps.mkdir(parents=True)
    (dumps.parent / "train.log").write_text(
        "".join(f"step:{step} - actor/kl_loss:0.1 - critic/rewards/mean:0.5\n" for step in range(1, 4))
    )

    def write(step: int) -> None:
        rows = [
            {"input": f"{step}", "output": f"{step} {n}", "score": 0.5, "step": step, "gts": None} for n in range(4)
        ]
        (dumps / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    for step in (1, 2, 3):
        write(step)
    live = settled(Live(tmp_path / "runs", tmp_path / "state", now=dumps.stat().st_mtime), Elsewhere())
    folders, before = watched(live), live.daemon.snapshot().records
    write(4)
    for changed in ([dumps], [], []):
        live.now += 1.0
        live.daemon.turn(changed, folders)
    assert sum(live.daemon.snapshot().records.values()) == sum(before.values()) + 1
    live.close()


def test_runs_at_rest_are_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many runs one wrote a row: no other is read, shown again, counted or asked whether it is due."""
    runs = [Run(tmp_path, f"run-{number}") for number in range(20)]
    live = Live(tmp_path / "runs", tmp_path / "state", now=runs[0].path.stat().st_mtime)
    for _ in range(5):
        live.settle()
    folders, asked = watched(live), list[str]()
    for _ in range(2):
        live.now += 200.0
        live.daemon.turn((), folders)
    runs[7].write(0.2)
    for name, owner in (("is_due", WatchedRun), ("step", WatchedRun), ("waits", WatchedRun)):
        real = owner.__dict__[name]
        monkeypatch.setattr(
            owner, name, property(lambda self, real=real: (asked.append(self.name), real.fget(self))[1])
        )
    for name, owner in (("batch", WatchedRun), ("overview", WatchedRun), ("count", RunRegistry)):
        real = getattr(owner, name)
        monkeypatch.setattr(
            owner,
            name,
            lambda self, *rest, real=real, **named: (
                asked.append((rest[0] if isinstance(self, RunRegistry) else self).name),
                real(self, *rest, **named),
            )[1],
        )
    read = RunReader.read
    monkeypatch.setattr(RunReader, "read", lambda self, *rest: (asked.append(self.found.name), read(self, *rest))[1])
    live.now += 0.5
    live.daemon.turn([runs[7].path / "logging.jsonl"], folders)
    live.now += 0.5
    live.daemon.turn((), folders)
    assert set(asked) == {"run-7"}
    live.close()


def test_what_was_counted_of_a_run_before_it_begins_again_stays_counted(tmp_path: Path) -> None:
    """The totals are those of all sources since the start, whichever run had its turn."""
    runs, given = [Run(tmp_path, f"run-{number}") for number in range(3)], [WatchOptions()]
    at = runs[0].path.stat().st_mtime
    live = Live(tmp_path / "runs", tmp_path / "state", now=at, options=lambda _: given[0])
    live.settle()
    for run in runs:
        run.write(0.2, 0.3)
    live.settle()
    assert records(live, "metrics-jsonl") == 9
    before, given[0] = begun(live), WatchOptions(labels={"team": "a"})
    live.daemon.reload()
    live.settle()
    assert begun(live) == {name: count + 1 for name, count in before.items()}
    assert records(live, "metrics-jsonl") == 9
    runs[1].write(0.4)
    live.settle()
    assert records(live, "metrics-jsonl") == 10
    live.close()


def test_a_new_run_or_a_row_in_a_folder_of_many_concerns_no_other(tmp_path: Path) -> None:
    """A change concerns the runs with the nearest folder, and that of a log its own run."""
    Run(tmp_path, "one"), Run(tmp_path, "two")
    lone = tmp_path / "runs" / "lone"
    lone.mkdir()
    for name in ("a.log", "b.log"):
        (lone / name).write_text("{'loss': 0.1, 'reward': 0.5, 'kl': 0.1}\n" * 9)
    live = Live(tmp_path / "runs", tmp_path / "state", now=lone.stat().st_mtime)
    for _ in range(3):
        live.settle()
    order, files = live.daemon._registry.order, live.folders()
    order.due(live.now, (), files, every=False)

    def concerned(path: Path) -> list[str]:
        return [watch.name for watch in order.due(live.now, [path], files, every=False)]

    assert concerned(tmp_path / "runs") == []
    assert concerned(tmp_path / "runs" / "three") == []
    assert concerned(tmp_path / "runs" / "two" / "checkpoint-5" / "model.safetensors") == ["two"]
    (name,) = concerned(lone / "a.log")
    assert name == "a"
    assert concerned(lone) == ["a", "b"]
    live.close()


@pytest.mark.parametrize("printed", [0.1, 0.4, 1.0])
def test_completions_that_come_after_the_console_printed_tables_give_the_alert_of_check(
    tmp_path: Path, printed: float
) -> None:
    """Both were taken in turns, so that no pattern of texts held for three batches: never fired, or resolved soon."""
    run = unpack("trl-1.16.0-12-greedy", tmp_path / "runs")
    text, log = (run / "train.log").read_text(), run / "train.log"
    (run / "output").rename(tmp_path / "output")
    log.write_text("")
    live = Live(tmp_path / "runs", tmp_path / "state", now=RECORDED)
    for part in range(int(20 * printed), 21):
        log.write_text(text[: len(text) * part // 20])
        os.utime(log, (live.now, live.now))
        live.settle()
        if (tmp_path / "output").exists():
            (tmp_path / "output").rename(run / "output")
    live.settle()
    found = {finding.rule: finding for finding in live.run().findings}["duplicate-completions"]
    assert (found.first_step, found.fired_step, found.resolved_step, found.severity.value) == (1, 3, None, "critical")
    assert [each.to_state.value for each in live.transitions(run.name) if each.rule == found.rule] == ["firing"]
    live.close()


def test_a_log_that_comes_after_the_completions_prints_no_tables_that_count(tmp_path: Path) -> None:
    run = unpack("trl-1.16.0-12-greedy", tmp_path / "runs")
    (run / "train.log").rename(tmp_path / "train.log")
    live = Live(tmp_path / "runs", tmp_path / "state", now=RECORDED)
    live.settle()
    (tmp_path / "train.log").rename(run / "train.log")
    live.settle()
    assert {batch.step for batch in live.daemon.detail(run.name).batches} == {1, 2, 3, 4, 5, 6}
    live.close()


PRINTED = [("gibberish-completions", "firing", "info"), ("gibberish-completions", "firing", "warning")]
"""What is sent where only the console shows texts …"""
WHOLE = [*PRINTED, ("duplicate-completions", "firing", "critical")]
"""… and when all completions were read."""


@pytest.fixture
def console_only(tmp_path: Path) -> Path:
    """A run whose console printed tables, which fire ``PRINTED``; its completions lie elsewhere yet (``arrive``)."""
    run = unpack("trl-1.16.0-12-greedy", tmp_path / "runs")
    (run / "output").rename(tmp_path / "output")
    written(run, RECORDED)
    return run


def arrive(run: Path, now: float) -> None:
    (run.parents[1] / "output").rename(run / "output")
    written(run, now)


def written(run: Path, now: float) -> None:
    for path in (run, *run.rglob("*")):
        os.utime(path, (now, now))


def sent(live: Live, run: Path) -> list[tuple[str, str, str]]:
    """What was sent of the texts."""
    about = {rule for rule, *_ in WHOLE}
    return [
        (each.rule, each.to_state.value, each.severity.value)
        for each in live.transitions(run.name)
        if each.rule in about and each.to_state is not AlertState.PENDING
    ]


def shown(live: Live, run: Path) -> list[int | None]:
    """The steps of the batches of completions that count."""
    return [batch.step for batch in live.daemon.detail(run.name).batches]


def test_completions_that_take_long_to_read_resolve_nothing_meanwhile(console_only: Path, tmp_path: Path) -> None:
    """After two seconds the alert was compared with a replay without any texts: resolved, then fired once more."""
    elsewhere = Elsewhere()
    live = Live(tmp_path / "runs", tmp_path / "state", now=RECORDED, submit=elsewhere.submit)
    settled(live, elsewhere)
    assert sent(live, console_only) == PRINTED
    arrive(console_only, live.now)
    live.look()
    for _ in range(10):
        live.now += 1.1
        live.daemon.turn(live.folders())
        assert elsewhere.given
        assert sent(live, console_only) == PRINTED
        assert PRINTED[0][0] in {finding.rule for finding in live.run().findings if finding.resolved_step is None}
    settled(live, elsewhere)
    assert sent(live, console_only) == WHOLE
    assert shown(live, console_only) == [1, 2, 3, 4, 5, 6]
    live.close()


@pytest.mark.parametrize("ended", [False, True])
def test_completions_that_came_while_the_run_was_not_read_resolve_nothing(
    console_only: Path,
    tmp_path: Path,
    ended: bool,  # noqa: FBT001
) -> None:
    """The daemon was down, or had let go of the run: its stored alerts rest on tables that are not read any more."""
    live = Live(tmp_path / "runs", tmp_path / "state", now=RECORDED)
    live.settle()
    assert sent(live, console_only) == PRINTED
    if ended:
        for _ in range(9):
            live.settle(9_000.0)
        assert not live.daemon._registry.order.watches
    else:
        live.close()
        live = Live(tmp_path / "runs", tmp_path / "state", now=RECORDED + 5.0)
    arrive(console_only, live.now)
    for _ in range(3):
        live.settle()
    assert sent(live, console_only) == WHOLE
    assert shown(live, console_only) == [1, 2, 3, 4, 5, 6]
    live.close()


def test_completions_that_disappear_and_return_are_no_reason_to_begin_again(console_only: Path, tmp_path: Path) -> None:
    """Each time all of the run was replayed and read."""
    live = Live(tmp_path / "runs", tmp_path / "state", now=RECORDED)
    live.settle()
    first = begun(live)
    arrive(console_only, live.now)
    live.settle()
    second = begun(live)
    assert second == {name: count + 1 for name, count in first.items()}
    for _ in range(2):
        (console_only / "output").rename(tmp_path / "output")
        live.settle()
        arrive(console_only, live.now)
        live.settle()
    assert begun(live) == second
    live.close()


def test_completions_that_come_while_the_stored_rows_are_replayed_count_alone(
    console_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No channel was open yet that they could be compared with, so that the console's tables counted as well."""
    live = Live(tmp_path / "runs", tmp_path / "state", now=RECORDED)
    live.settle()
    live.close()
    live = Live(tmp_path / "runs", tmp_path / "state", now=RECORDED + 5.0)
    monkeypatch.setattr(first_turns, "SLICE", 1)
    written(console_only, live.now)
    live.look()
    live.daemon.turn()
    (watch,) = live.daemon._registry.order.watches
    assert not watch.ready
    assert not watch.reader.channels
    arrive(console_only, live.now)
    live.settle()
    assert sent(live, console_only) == WHOLE
    assert shown(live, console_only) == [1, 2, 3, 4, 5, 6]
    live.close()


def test_a_run_that_grows_is_read_and_shown_before_an_archive_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was found at the start was read before anything was shown: 36 s for 200 runs, in which no alert went."""
    archive = [Run(tmp_path, f"a-{number}") for number in range(9)]
    grows = unpack(NAME, tmp_path / "runs")
    now = archive[0].path.stat().st_mtime
    for run in archive:
        for path in (run.path, *run.path.iterdir()):
            os.utime(path, (now - 7_200.0, now - 7_200.0))
    for path in grows.rglob("*"):
        os.utime(path, (now, now))
    turn = WatchedRun.turn

    def slow(self: WatchedRun, *arguments: float) -> bool:
        live.timer += 0.1
        return turn(self, *arguments)

    live = Live(tmp_path / "runs", tmp_path / "state", now=now)
    monkeypatch.setattr(WatchedRun, "turn", slow)
    live.look()
    shown = list[list[str]]()
    while not live.daemon.ready():
        began = live.timer
        assert live.daemon.turn() == 0.0 or live.daemon.ready()
        assert live.timer - began < 2.0
        shown.append([run.snapshot.run for run in live.daemon.snapshot().runs])
    first = next(names for names in shown if names)
    assert NAME in first
    assert len(first) < len(shown[-1]) == 10
    assert any(alert.state is AlertState.FIRING for alert in live.run(NAME).alerts)
    live.close()
