"""The daemon's parts alone: bell, worker process, merge, threads that die."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.children.child import MEMORY
from grpo_watch.children.pool import IDLE_SECONDS, LONG_WORK, Worker, size_of
from grpo_watch.daemon.run_reader import GOES_ON_SECONDS, PATIENCE_SECONDS
from grpo_watch.daemon.service import Service
from grpo_watch.daemon.waker import Waker
from grpo_watch.engine.records import (
    ChannelElected,
    ChannelKind,
    ChannelOpened,
    Cursor,
    EventKind,
    Item,
    Progress,
    RawRow,
    RunEvent,
)
from grpo_watch.pipeline.assembler import Assembler
from grpo_watch.pipeline.channel_merge import MOST_AHEAD, ChannelMerge, LiveReading, MergeLane
from grpo_watch.pipeline.open_run import OpenedSource
from grpo_watch.sources.base import SourceStats
from grpo_watch.sources.checkpoints.source import judge_checkpoint
from grpo_watch.sources.checkpoints.weights import ReadLimits
from grpo_watch.sources.discovery.discover import Discoverer
from tests.support.bundles import RECORDED, unpack
from tests.support.live import Live
from tests.support.process import PATIENCE, command_of, until

# the worker process


def double(number: int) -> int:
    return 2 * number


def die(_: object = None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def rung() -> threading.Event:
    return threading.Event()


@pytest.fixture
def worker(rung: threading.Event) -> Iterator[tuple[Worker, list[float]]]:
    clock = [0.0]
    made = Worker(rung.set, lambda: clock[0])
    yield made, clock
    made.stop()


@pytest.mark.slow
def test_work_is_done_elsewhere_at_low_priority_and_rings(
    worker: tuple[Worker, list[float]], rung: threading.Event
) -> None:
    made, clock = worker
    assert made.submit(double, 21).result(PATIENCE) == 42
    assert rung.wait(PATIENCE)
    rung.clear()
    assert made.processes[0] not in {None, os.getpid()}
    assert made.submit(os.nice, 0).result(PATIENCE) == min(19, os.nice(0) + 10)
    assert rung.wait(PATIENCE)  # it is counted as done
    child = made.processes[0]
    made.rest()
    assert made.processes == (child, None)
    clock[0] = IDLE_SECONDS + 1.0
    made.rest()
    assert made.processes == (None, None)


@pytest.mark.slow
def test_a_worker_that_dies_fails_its_work_and_is_replaced(worker: tuple[Worker, list[float]]) -> None:
    made, _ = worker
    with pytest.raises(RuntimeError):
        made.submit(die).result(PATIENCE)
    assert made.submit(double, 4).result(PATIENCE) == 8


def take(count: int) -> int:
    return len(bytearray(count))


@pytest.mark.slow
def test_a_worker_takes_no_more_memory_than_is_good(worker: tuple[Worker, list[float]]) -> None:
    """The piece of work fails, the process goes on."""
    made, _ = worker
    child = made.submit(os.getpid).result(PATIENCE)
    with pytest.raises(MemoryError):
        made.submit(take, MEMORY).result(PATIENCE)
    assert made.submit(take, 1 << 20).result(PATIENCE) == 1 << 20
    assert made.processes[0] == child


def test_stop_ends_work_that_hangs(worker: tuple[Worker, list[float]]) -> None:
    made, _ = worker
    future = made.submit(signal.pause)
    child = until(lambda: made.processes[0])
    until(future.running)
    made.stop()
    until(lambda: not command_of(child))


def bytes_in(folder: Path) -> int:
    return size_of(folder)


def wait_for(folder: Path) -> None:
    """Take as long as a file of this name is not there."""
    while not (folder / "go").exists():
        threading.Event().wait(0.01)


@pytest.mark.slow
def test_short_work_does_not_wait_for_long_work(worker: tuple[Worker, list[float]], tmp_path: Path) -> None:
    """A checkpoint of 14 GB takes minutes to hash; the completions of other runs were read behind it."""
    made, _ = worker
    large, small = tmp_path / "checkpoint-10", tmp_path / "checkpoint-20"
    for folder in (large, small):
        folder.mkdir()
    with (large / "model.safetensors").open("wb") as weights:
        weights.truncate(LONG_WORK)
    hashing = made.submit(wait_for, large)
    assert made.submit(bytes_in, small).result(PATIENCE) == 0
    assert made.submit(double, 21).result(PATIENCE) == 42
    assert not hashing.done()
    (large / "go").touch()
    hashing.result(PATIENCE)


@pytest.mark.slow
def test_checkpoints_of_all_sizes_share_one_limit_on_reading(
    worker: tuple[Worker, list[float]], tmp_path: Path
) -> None:
    """Two processes with a limit each read at twice the speed that was allowed."""
    made, _ = worker
    limits = ReadLimits(io_limit=1e6)
    made.submit(judge_checkpoint, tmp_path, (tmp_path,), limits, (tmp_path, {})).result(PATIENCE)
    short, long = made.processes
    assert short is None
    assert long is not None


def test_after_a_stop_nothing_is_begun_and_nothing_is_reported_to_have_failed() -> None:
    """An engine that is still busy then would otherwise start a process that the exit waits for."""
    made = Worker(lambda: None, lambda: 0.0)
    made.stop()
    future = made.submit(double, 21)
    assert not future.done()
    assert made.processes == (None, None)


# reading what is there


def merged(
    *sources: OpenedSource, waiting: Callable[[], bool] = lambda: False
) -> tuple[ChannelMerge, Iterator[Item | None]]:
    """The sources as the daemon reads them at first, and their items, each taken by an assembler."""
    assembler = Assembler("run")
    merge = ChannelMerge(sources, assembler, LiveReading(0.0, 0.0, waiting))

    def items() -> Iterator[Item | None]:
        for one in sources:
            if one.kind is not None:
                assembler.feed(ChannelOpened(one.name, one.kind, one.segment))
        for item in merge.items():
            if item is not None:
                assembler.feed(item)
            yield item

    return merge, items()


class Fake:
    """A source over a list; with ``delays`` its items need a worker, one poll each; ``held`` waits for the end."""

    unread = False

    def __init__(self, name: str, items: list[Item], *, delays: bool = False, held: Sequence[Item] = ()) -> None:
        self.name, self.items, self.delays, self.held = name, items, delays, held
        self.stats = SourceStats()
        self.given = 0
        self.polls = 0

    def poll(self, _: float | None) -> Iterator[Item]:
        self.polls += 1
        while self.given < len(self.items):
            if self.delays and self.polls % 3:
                return
            self.polls += 1
            self.given += 1
            yield self.items[self.given - 1]

    def finish(self) -> Iterator[Item]:
        return iter(self.held)

    def cursor(self) -> Cursor:
        return Cursor(self.name, "", self.given)

    def close(self) -> None:
        pass

    @property
    def waiting(self) -> bool:
        return self.delays and self.given < len(self.items)


def source(fake: Fake, kind: ChannelKind | None, segment: int = 0, *, early: bool = False) -> OpenedSource:
    return OpenedSource(fake, "what", kind, segment, Path(fake.name), early)


def row(channel: str, kind: ChannelKind, step: int) -> RawRow:
    return RawRow(channel, kind, step, {"loss": float(step)})


def rows(channel: str, kind: ChannelKind, *steps: int) -> Fake:
    return Fake(channel, [row(channel, kind, step) for step in steps])


def places(*sources: OpenedSource) -> list[str]:
    return [
        f"{getattr(item, 'channel', '?')}{getattr(item, 'step', '') or ''}"
        for item in merged(*sources)[1]
        if item is not None
    ]


def test_the_best_channel_with_rows_is_the_clock() -> None:
    """Its steps order the others; a step that it lost comes from another channel just before it goes on."""
    given_out = places(
        source(rows("c", ChannelKind.CONSOLE, 1, 2, 3, 4), ChannelKind.CONSOLE),
        source(rows("j", ChannelKind.JSONL, 1, 2, 4), ChannelKind.JSONL),
        source(Fake("cfg", [RunEvent("cfg", EventKind.STARTED)]), None, early=True),
    )
    assert given_out == ["cfg", "j", "j1", "c1", "j2", "c2", "c3", "j4", "c4"]


def test_what_is_about_the_end_of_an_attempt_comes_before_the_next_one() -> None:
    """A traceback at step 3, printed before a resumed job repeats step 2: in its next file, or in the same one."""
    crash = [row("c", ChannelKind.CONSOLE, 3), RunEvent("c", EventKind.TRACEBACK, 3)]
    files = [("t", 0, (1, 2, 3)), ("u", 1, (2, 3, 4))]
    two = [source(rows(name, ChannelKind.TFEVENTS, *steps), ChannelKind.TFEVENTS, at) for name, at, steps in files]
    expected = ["t", "t1", "t2", "t3", "c3", "c3", "u2", "u3", "u4"]
    assert places(*two, source(Fake("c", [*crash]), ChannelKind.CONSOLE)) == expected
    one = source(rows("t", ChannelKind.TFEVENTS, 1, 2, 3, 2, 3, 4), ChannelKind.TFEVENTS)
    assert places(one, source(Fake("c", crash), ChannelKind.CONSOLE)) == [each.replace("u", "t") for each in expected]


def test_a_file_that_a_later_one_follows_gives_the_row_that_it_held_back() -> None:
    """Else the crash at step 3 would count for the attempt that comes after it; the newest file may still grow."""
    files = []
    for name, segment, steps, last in (("t", 0, (1, 2), 3), ("u", 1, (2, 3), 4)):
        items = [row(name, ChannelKind.TFEVENTS, step) for step in (*steps, last)]
        files.append(source(Fake(name, [*items[:-1]], held=items[-1:]), ChannelKind.TFEVENTS, segment))
    crash = [row("c", ChannelKind.CONSOLE, 3), RunEvent("c", EventKind.TRACEBACK, 3)]
    assert places(*files, source(Fake("c", [*crash]), ChannelKind.CONSOLE)) == [
        "t",
        "t1",
        "t2",
        "t3",
        "c3",
        "c3",
        "u2",
        "u3",
    ]


def test_the_last_row_of_an_attempt_is_no_misprint() -> None:
    """The next attempt of a log of every 200th step goes on from a checkpoint at 500."""
    sources = [
        source(rows("j", ChannelKind.JSONL, 200, 400, 600, 800, 600, 800), ChannelKind.JSONL),
        source(rows("t", ChannelKind.TFEVENTS, 200, 400, 600, 800), ChannelKind.TFEVENTS),
        source(Fake("k", [RunEvent("k", EventKind.TRACEBACK, step) for step in (700, 800)]), None),
    ]
    first = ["j200", "t200", "j400", "t400", "j600", "t600", "k700", "j800", "t800", "k800"]
    assert places(*sources)[1:] == [*first, "j600", "j800"]


def polled(assembler: Assembler, now: float, *sources: OpenedSource) -> list[str]:
    """What one poll of the daemon gives."""
    given_out = list[str]()
    for item in ChannelMerge(sources, assembler, LiveReading(now, now)).items():
        assert item is not None
        assembler.feed(item)
        given_out.append(f"{getattr(item, 'channel', '?')}{getattr(item, 'step', '') or ''}")
    return given_out


def test_the_last_row_of_an_attempt_is_no_misprint_in_a_later_poll() -> None:
    """Each poll merges what is new, and goes on from the step that the run has reached."""
    assembler = Assembler("run")
    lines, events, saved = rows("j", ChannelKind.JSONL), rows("t", ChannelKind.TFEVENTS), Fake("k", [])
    kinds = (ChannelKind.JSONL, ChannelKind.TFEVENTS, None)
    sources = [source(fake, kind) for fake, kind in zip((lines, events, saved), kinds, strict=True)]
    for fake, kind in ((lines, ChannelKind.JSONL), (events, ChannelKind.TFEVENTS)):
        assembler.feed(ChannelOpened(fake.name, kind))
        fake.items += [row(fake.name, kind, step) for step in (498, 499)]
    assert polled(assembler, 0.0, *sources) == ["j", "j498", "t498", "j499", "t499"]
    lines.items += [row("j", ChannelKind.JSONL, step) for step in (500, 401, 402)]
    events.items += [row("t", ChannelKind.TFEVENTS, 500)]
    saved.items += [RunEvent("k", EventKind.TRACEBACK, 500)]
    assert polled(assembler, 1.0, *sources) == ["j500", "t500", "k500", "j401", "j402"]
    lines.items += [row("j", ChannelKind.JSONL, step) for step in (403, 404)]
    events.items += [row("t", ChannelKind.TFEVENTS, step) for step in (401, 402, 403)]
    assert polled(assembler, 2.0, *sources) == ["t401", "t402", "j403", "t403", "j404"]


def test_rows_wait_for_no_better_channel_that_has_none() -> None:
    """A tracker writes its first row minutes after the console; it takes over with the first step that it has alone."""
    assembler = Assembler("run")
    events, printed = rows("t", ChannelKind.TFEVENTS), rows("c", ChannelKind.CONSOLE, 1, 2)
    sources = [source(events, ChannelKind.TFEVENTS), source(printed, ChannelKind.CONSOLE)]
    for one in sources:
        assert one.kind is not None
        assembler.feed(ChannelOpened(one.name, one.kind))
    polled(assembler, 0.0, *sources)
    assert (assembler.primary, assembler.ledger.last_step) == (ChannelKind.CONSOLE, 2)
    events.items += [row("t", ChannelKind.TFEVENTS, step) for step in (1, 2, 3)]
    polled(assembler, 1.0, *sources)
    assert (assembler.primary, assembler.ledger.last_step) == (ChannelKind.TFEVENTS, 3)


def test_a_misprint_in_a_later_poll_holds_up_no_other_channel() -> None:
    assembler = Assembler("run")
    lines, printed = rows("j", ChannelKind.JSONL, 11), rows("c", ChannelKind.CONSOLE, 11)
    sources = [source(lines, ChannelKind.JSONL), source(printed, ChannelKind.CONSOLE)]
    for one in sources:
        assert one.kind is not None
        assembler.feed(ChannelOpened(one.name, one.kind))
    polled(assembler, 0.0, *sources)
    lines.items += [row("j", ChannelKind.JSONL, step) for step in (12, 13, 14)]
    printed.items += [row("c", ChannelKind.CONSOLE, step) for step in (12, 130_000, 14)]
    assert polled(assembler, 1.0, *sources) == ["j12", "c12", "j13", "j14", "c130000", "c14"]
    assert assembler.ledger.last_step == 14


@pytest.mark.parametrize(("waiting", "elected"), [(None, False), (lambda: False, True)])
def test_the_clock_of_a_file_server_is_behind(
    tmp_path: Path, waiting: Callable[[], bool] | None, *, elected: bool
) -> None:
    """At the first pass a file that seems old has ended; later only silence ends a channel."""
    path = tmp_path / "j"
    path.touch()
    os.utime(path, (RECORDED - 900.0, RECORDED - 900.0))
    assembler = Assembler("run")
    sources = [OpenedSource(rows("j", ChannelKind.JSONL, 1, 2), "what", ChannelKind.JSONL, 0, path)]
    sources += [source(rows("c", ChannelKind.CONSOLE, 1, 2, 3), ChannelKind.CONSOLE)]
    for one in sources:
        assert one.kind is not None
        assembler.feed(ChannelOpened(one.name, one.kind))
    for item in ChannelMerge(sources, assembler, LiveReading(RECORDED, RECORDED, waiting)).items():
        assert item is not None
        assembler.feed(item)
    assert (assembler.primary is ChannelKind.CONSOLE) is elected


def test_many_channels_are_not_all_looked_at_for_each_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log for each of 64 ranks, half of them in another format."""
    looks, look = 0, MergeLane.look

    def counted(lane: MergeLane) -> Item | None:
        nonlocal looks
        looks += 1
        return look(lane)

    monkeypatch.setattr(MergeLane, "look", counted)
    kinds = (ChannelKind.JSONL, ChannelKind.CONSOLE)
    sources = [source(rows(f"r{n}", kinds[n % 2], *range(1, 21)), kinds[n % 2]) for n in range(64)]
    given_out = places(*sources)
    assert len(given_out) == 1 + 64 * 20
    assert looks < 10 * len(given_out)


def test_a_channel_without_rows_is_no_clock() -> None:
    empty = Fake("j", [Progress("j", 1, 10)])
    given_out = places(source(empty, ChannelKind.JSONL), source(rows("c", ChannelKind.CONSOLE, 1), ChannelKind.CONSOLE))
    assert given_out == ["c", "c1", "j1"]


def test_an_error_stream_of_bars_is_not_read_into_memory() -> None:
    """Beside a log with rows it is looked at so far only, whether its first row may come or not."""
    bars = Fake("c", [Progress("c", 1, 10)] * 10_000)
    lines = rows("j", ChannelKind.JSONL, 2, 3)
    _, items = merged(source(bars, ChannelKind.CONSOLE), source(lines, ChannelKind.JSONL))
    first = next(item for item in items if item is not None)
    assert isinstance(first, ChannelElected)
    assert bars.given == MOST_AHEAD


def test_work_done_elsewhere_is_waited_for_in_its_place() -> None:
    slow = Fake("w", [RunEvent("w", EventKind.STARTED, step) for step in (1, 3)], delays=True)
    lines = rows("j", ChannelKind.JSONL, 1, 2, 3)
    _, items = merged(source(slow, None), source(lines, ChannelKind.JSONL), waiting=lambda: slow.waiting)
    given_out = list(items)
    assert None in given_out
    steps = [(item.channel, item.step) for item in given_out if isinstance(item, (RawRow, RunEvent))]
    assert steps == [("j", 1), ("w", 1), ("j", 2), ("j", 3), ("w", 3)]


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 9), max_size=6).map(sorted), min_size=2, max_size=3),
    st.data(),
)
def test_cursors_cover_exactly_what_was_given_out(steps: list[list[int]], data: Any) -> None:
    """Wherever a slice ends, going on from the cursors gives the rest: no item lost or doubled."""
    kinds = [ChannelKind.JSONL, ChannelKind.CONSOLE, ChannelKind.TRAINER_STATE]
    fakes = [rows(kind.name, kind, *mine) for kind, mine in zip(kinds, steps, strict=False)]
    merge, items = merged(*(source(f, k) for f, k in zip(fakes, kinds, strict=False)))
    stop = data.draw(st.integers(0, sum(map(len, steps)) + 1))
    got: list[Item] = []
    for item in items:
        got += [item] if isinstance(item, RawRow) else []
        if len(got) >= stop:
            break
    cursors = merge.cursors()
    for fake in fakes:
        given_out = [item for item in got if isinstance(item, RawRow) and item.channel == fake.name]
        assert given_out == fake.items[: cursors[fake.name].position]


def test_a_log_that_never_stops_growing_is_read_to_some_point() -> None:
    class Endless(Fake):
        def poll(self, _: float | None) -> Iterator[Item]:
            self.given += 1
            yield row("c", ChannelKind.CONSOLE, self.given)

    assert 1 < len(places(source(Endless("c", []), ChannelKind.CONSOLE))) < 100


# threads


@pytest.mark.slow
def test_the_death_of_a_thread_ends_the_service_loudly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = unpack("trl-1.16.0-09-frozen-lr0", tmp_path / "runs")
    live = Live(run, tmp_path / "state", now=RECORDED)

    def fail(*_: object) -> float:
        raise ZeroDivisionError

    live.daemon.turn = fail  # type: ignore[method-assign]
    worker = Worker(lambda: None, time.monotonic)
    service = Service(
        live.daemon,
        worker,
        Waker(),
        paths=[run],
        discoverer=Discoverer(),
        clocks=(time.monotonic, time.thread_time),
    )
    with caplog.at_level(logging.ERROR, "grpo_watch"):
        service.start()
        service.wait()
        service.close()
    assert service.failed
    assert any(record.exc_info and record.exc_info[0] is ZeroDivisionError for record in caplog.records)


class Slow:
    """A worker that is never done until released."""

    def __init__(self) -> None:
        self.futures: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        self.futures.append((Future(), function, arguments))
        return self.futures[-1][0]

    def work(self) -> None:
        for future, function, arguments in self.futures:
            if not future.done():
                future.set_result(function(*arguments))


@pytest.mark.slow
def test_heavy_work_of_one_run_holds_up_no_other(tmp_path: Path) -> None:
    """One run waits for the checksums of its checkpoints (a hung mount); the other is read and judged meanwhile."""
    runs = tmp_path / "runs"
    unpack("trl-1.16.0-04-healthy-lora", runs)
    unpack("ms-swift-4.6.0-04b-frozen-optnoop-full", runs)
    slow = Slow()
    live = Live(runs, tmp_path / "state", now=RECORDED, submit=slow.submit)
    live.look()
    for _ in range(20):
        live.daemon.turn()
    assert slow.futures
    assert not live.daemon.ready()
    assert [run.snapshot.run for run in live.daemon.snapshot().runs] == ["ms-swift-4.6.0-04b-frozen-optnoop-full"]
    for _ in range(20):
        slow.work()
        live.daemon.turn()
    assert live.daemon.ready()
    assert live.run("trl-1.16.0-04-healthy-lora").values["parameters_changed_ratio"] == 1.0
    live.close()


@pytest.mark.slow
@pytest.mark.parametrize(("age", "waits"), [(1.0, False), (2 * GOES_ON_SECONDS, True)])
def test_a_run_that_is_being_written_waits_for_no_slow_checkpoint(age: float, tmp_path: Path, *, waits: bool) -> None:
    """On a busy machine checksums come late: what rows show counts meanwhile. An old run is read whole before."""
    run = unpack("trl-1.16.0-04-healthy-lora", tmp_path / "runs")
    for path in (run, *run.rglob("*")):
        os.utime(path, (RECORDED, RECORDED))
    slow = Slow()
    live = Live(tmp_path / "runs", tmp_path / "state", now=RECORDED + age, submit=slow.submit)
    live.look()
    for _ in range(20):
        live.daemon.turn()
    assert slow.futures
    assert not live.daemon.ready()
    live.now += PATIENCE_SECONDS
    for _ in range(20):
        live.daemon.turn()
    assert live.daemon.ready() is not waits
    for _ in range(20):
        slow.work()
        live.now += 1.0
        live.daemon.turn()
    assert live.run().values["parameters_changed_ratio"] == 1.0
    live.close()
