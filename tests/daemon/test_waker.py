"""The bell of the daemon and the folders that ring it: one descriptor for all, polling where there are no events."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_watch.children.pool import Worker
from grpo_watch.daemon.daemon import POLL_SECONDS
from grpo_watch.daemon.schedule import SECOND
from grpo_watch.daemon.service import CPU_SHARE, LOOK_SECONDS, Service
from grpo_watch.daemon.waker import Waker
from grpo_watch.sources.discovery.discover import Discoverer
from tests.support.bundles import RECORDED
from tests.support.live import Live
from tests.support.process import PATIENCE, until


@pytest.fixture
def waker() -> Iterator[Waker]:
    made = Waker()
    yield made
    made.close()


def rings(waker: Waker) -> bool:
    """Whether the next wait is short."""
    began = time.monotonic()
    waker.wait(PATIENCE)
    return time.monotonic() - began < PATIENCE


def test_a_bell_rung_before_the_wait_is_noticed_once(waker: Waker) -> None:
    waker.ring()
    assert rings(waker)
    began = time.monotonic()
    waker.wait(0.01)
    assert time.monotonic() - began >= 0.009


def test_a_write_rings_and_reading_does_not(tmp_path: Path, waker: Waker) -> None:
    log = tmp_path / "train.log"
    log.write_text("a\n")
    waker.watch(tmp_path)
    log.read_text()
    waker.wait(0.0)
    assert not waker.changed()
    with log.open("a") as file:
        file.write("b\n")
    assert rings(waker)
    assert waker.changed() == {log}
    assert not waker.changed()


def test_a_thousand_folders_take_one_descriptor_and_no_thread(tmp_path: Path, waker: Waker) -> None:
    gc.collect()  # what other tests left open
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(1_000):
        folder = tmp_path / str(number)
        folder.mkdir()
        waker.watch(folder)
    waker.forget_others()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    (log := tmp_path / "777" / "train.log").write_text("a\n")
    assert waker.changed() == {log.parent, log}


def test_a_new_file_calls_discovery_and_growth_of_a_known_one_does_not(tmp_path: Path, waker: Waker) -> None:
    waker.watch(tmp_path)
    log = tmp_path / "train.log"
    log.write_text("a\n")
    waker.changed()
    assert waker.structure.is_set()
    waker.structure.clear()
    waker.quiet = lambda path: path == log
    log.write_text("a\nb\n")
    waker.changed()
    assert not waker.structure.is_set()


def test_a_folder_that_is_replaced_is_watched_again(tmp_path: Path, waker: Waker) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for folder in (tmp_path, run):
        waker.watch(folder)
    run.rename(tmp_path / "old")
    run.mkdir()
    waker.changed()
    waker.watch(run)
    (run / "train.log").write_text("a\n")
    assert waker.changed() == {run, run / "train.log"}


def test_a_folder_that_nobody_asks_for_is_let_go(tmp_path: Path, waker: Waker) -> None:
    waker.watch(tmp_path)
    waker.forget_others()
    waker.forget_others()
    (tmp_path / "train.log").write_text("a\n")
    assert not waker.changed()


def test_a_folder_on_a_network_file_system_is_polled_only(tmp_path: Path) -> None:
    """Events of other machines' writes never come there; nothing relies on them."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"overlay / overlay rw 0 0\nfiler:/far {tmp_path.resolve()} nfs4 rw 0 0\n")
    waker = Waker(mounts)
    waker.watch(tmp_path)
    waker.forget_others()
    assert waker.polled == {tmp_path}
    waker.close()


def test_folders_that_cannot_be_watched_are_polled(tmp_path: Path) -> None:
    waker = Waker(most=1)
    waker.watch(tmp_path)
    waker.watch(tmp_path / "missing")
    waker.forget_others()
    assert waker.polled == {tmp_path / "missing"}
    waker.close()


# discovery


class SlowTimer:
    """Wall time of a loaded machine: each question finds it an hour later; processor time goes on by little."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.asked * 3_600.0


def test_a_run_that_comes_later_is_found_at_once_on_a_loaded_machine(tmp_path: Path) -> None:
    """Discovery rested for forty times the wall time of its last look: minutes where others use the processor."""
    runs = tmp_path / "runs"
    runs.mkdir()
    live, waker = Live(runs, tmp_path / "state", now=RECORDED), Waker()
    worker = Worker(waker.ring, time.monotonic)
    service = Service(
        live.daemon, worker, waker, paths=[runs], discoverer=Discoverer(), clocks=(SlowTimer(), time.thread_time)
    )
    service.start()
    try:
        assert until(live.daemon.ready)
        job = runs / "new" / "output"
        job.mkdir(parents=True)
        (job / "logging.jsonl").write_text(
            "".join(json.dumps({"loss": 0.1, "kl": 0.1, "reward": 0.5, "step": step}) + "\n" for step in range(1, 9))
        )
        began = time.monotonic()
        assert until(lambda: len(live.daemon.snapshot().runs) == 1)
        assert time.monotonic() - began < LOOK_SECONDS
    finally:
        service.close()


@pytest.mark.parametrize(("most", "pause"), [(1_000, SECOND), (0, POLL_SECONDS)])
def test_where_writes_ring_the_engine_rests_longer(tmp_path: Path, most: int, pause: float) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    live, waker, pauses = Live(runs, tmp_path / "state", now=RECORDED), Waker(most=most), list[float]()
    service = Service(
        live.daemon,
        Worker(waker.ring, time.monotonic),
        waker,
        paths=[runs],
        discoverer=Discoverer(),
        clocks=(time.monotonic, time.thread_time),
    )
    wait = waker.wait

    def noted(timeout: float) -> None:
        pauses.append(timeout)
        wait(timeout)

    waker.wait = noted  # type: ignore[method-assign]
    service.start()
    try:
        assert until(live.daemon.ready)
        assert until(lambda: pauses[2:])
        assert pauses[-1] == pause
    finally:
        service.close()


def test_a_new_folder_among_many_runs_is_not_waited_for_long() -> None:
    """A look at 300 runs takes 0.3 s of processor time; it was followed by a rest of 5 s, whatever came meanwhile."""
    assert CPU_SHARE * 0.3 <= 2.0
