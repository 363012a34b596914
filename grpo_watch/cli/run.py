"""``grpo-watch run``: watches runs live until it is stopped, or until they have ended."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from grpo_watch.children.pool import Worker
from grpo_watch.cli.config import SettingsInForce
from grpo_watch.cli.http_listener import HttpListener
from grpo_watch.cli.live_text import show, summary, verdict
from grpo_watch.cli.push import PushSetup
from grpo_watch.cli.tracker_servers import (
    FollowedPaths,
    Poller,
    follow_stdin,
    newest_below,
    waiting_lines,
    watched_paths,
)
from grpo_watch.config.fields import bytes_per_second
from grpo_watch.config.schema import Settings, entry_for
from grpo_watch.config.settings import default_state_dir, load_settings, parse_assignments
from grpo_watch.daemon.daemon import Daemon, DaemonOptions
from grpo_watch.daemon.run_reader import WatchOptions
from grpo_watch.daemon.schedule import SteadyClock
from grpo_watch.daemon.service import (
    DONE_SECONDS,
    LEAVE_SECONDS,
    Deadline,
    PacedCollections,
    Service,
    SystemdNotifier,
    signal_inbox,
)
from grpo_watch.daemon.state_writer import StateWriter
from grpo_watch.daemon.waker import Waker
from grpo_watch.descriptors import raise_limit
from grpo_watch.engine.records import Scalar
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.sources.base import KeptTexts
from grpo_watch.sources.checkpoints.weights import ReadLimits
from grpo_watch.sources.discovery.discover import FoundRun
from grpo_watch.store.state import Store

log = logging.getLogger("grpo_watch.run")

Given: TypeAlias = FollowedPaths | Sequence[str]
Load: TypeAlias = Callable[[], Settings]
LinesOf: TypeAlias = Callable[[RunSnapshot], Iterable[str]]
Inbox: TypeAlias = SimpleQueue[int] | None
Overrides: TypeAlias = Mapping[str, Scalar]
NO_SETTINGS: Overrides = MappingProxyType({})
STOPPED, FAILED = 0, 1


@dataclass(frozen=True, slots=True)
class Basis:
    """Settings, paths and state of a daemon, taken over by its successor in the same process.

    ``address`` is where it is served (``HOST:PORT``), ``shown`` are the runs that the terminal has named.
    """

    current: SettingsInForce
    places: Sequence[str]
    folder: Path
    state_writer: StateWriter
    address: str
    shown: set[str]


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """A running daemon, the address that serves its page (``HOST:PORT``), and the link that opens the page."""

    daemon: Daemon
    service: Service
    servers: HttpListener
    address: str
    link: str
    basis: Basis
    pollers: Sequence[threading.Thread] = ()

    def wait(self, each: Callable[[], None] = lambda: None) -> int:
        """Wait until the daemon is stopped, done or dead and return the exit code; calls ``each`` meanwhile."""
        self.service.wait([*self.servers.threads, *self.pollers], each)
        return FAILED if self.service.failed else STOPPED


def run_command(given: Namespace) -> int:
    """Watch runs; returns 0 when stopped or done, 1 when a part of the daemon died or a run was lost.

    Raises:
        UsageError: a setting can't be used, there is nothing to watch, the port is in use, or state can't be stored.
        StateInUseError: another daemon holds the state directory.
    """
    names = ("listen", "state_dir", "rules", "io_limit")
    flags = {**{name: getattr(given, name) for name in names}, "privacy.examples": given.examples}
    raise_limit()
    overrides = parse_assignments(given.settings)

    def load() -> Settings:
        return load_settings(flags, config=given.config).settings

    deadline = Deadline()
    manager, collections = SystemdNotifier(os.environ, os.getpid(), time.monotonic), PacedCollections(time.monotonic)
    with follow_stdin(given.paths) as followed_paths, signal_inbox(deadline) as inbox:
        code: int | None = None
        before: Basis | None = None
        watched = replace(followed_paths, overrides=overrides)
        while code is None:
            with running(watched, load, exit_when_done=given.exit_when_done, inbox=inbox, before=before) as watch:
                code, before = _watched(watch, manager, collections, deadline), watch.basis
                if given.exit_when_done and code is not None:
                    runs = watch.daemon.snapshot().runs
                    show(*(line for run in runs for line in verdict(run)))
                    code = code or (FAILED if any(run.lost for run in runs) else STOPPED)
        return code


def _watched(
    watch: RunningDaemon, manager: SystemdNotifier, collections: PacedCollections, deadline: Deadline
) -> int | None:
    """The exit code; None where another daemon is to go on, with the state that could not be opened before."""
    daemon = watch.daemon

    def each() -> None:
        manager.notify(daemon.snapshot(), ready=daemon.ready(), late=daemon.late())
        collections.turn()

    code = watch.wait(each)
    if daemon.begins_again and not (code or daemon.done or watch.service.signalled):
        log.warning("the state can be opened now: beginning again with it")
        return None
    deadline.begin(DONE_SECONDS if daemon.done else LEAVE_SECONDS, code)
    manager.stopping()
    return code


@contextmanager
def running(
    given: Given,
    load: Load,
    *,
    exit_when_done: bool = False,
    lines_of: LinesOf = summary,
    inbox: Inbox = None,
    before: Basis | None = None,
) -> Iterator[RunningDaemon]:
    """A daemon that runs inside the ``with`` block.

    Args:
        given: paths to watch in addition to those in the settings.
        load: reads the settings: at each reload, and at the start unless ``before`` is given.
        exit_when_done: end when every run has ended.
        lines_of: gives the lines to print for a run after its first read.
        inbox: where signals are put.
        before: that of the daemon whose place it takes, which had no state.
    """
    given = given if isinstance(given, FollowedPaths) else FollowedPaths(list(given))
    daemons = list[Daemon]()
    basis, front, pushed = _opened(given, load, before, lambda: daemons[0] if daemons else None)
    current, places, folder, settings = basis.current, basis.places, basis.folder, basis.current.settings
    bell = Waker()
    worker = Worker(bell.ring, time.monotonic)
    daemon = Daemon(
        basis.state_writer,
        current.rules(),
        worker.submit,
        options=lambda found: options_for(poller.addressed(found), current.settings, given.ended, given.overrides),
        clock=SteadyClock(time.time, time.monotonic),
        timer=time.monotonic,
        plan=plan_of(settings, exit_when_done=exit_when_done, page=front.page),
        report=partial(_tell, basis.shown, lines_of),
        dispatcher=pushed.dispatcher,
        receivers=pushed.prepared,
    )
    daemons.append(daemon)
    poller = Poller(places, settings, bell.ring, basis.state_writer.read_files(), folder)
    service = Service(
        daemon,
        worker,
        bell,
        paths=poller.paths,
        discoverer=poller.discoverer,
        clocks=(time.monotonic, time.thread_time),
        delivery_workers=pushed.delivery_workers(daemon, bell.ring),
        inbox=inbox,
    )
    servers = front.serve(daemon, folder)
    show(*front.start_lines(), *waiting_lines(places if given.state is None else ()))
    for part in (servers, poller, service):
        part.start()
    try:
        yield RunningDaemon(daemon, service, servers, front.address, front.link, basis, poller.threads)
    finally:
        service.close()
        if daemon.begins_again:  # descriptors of an exiting process need no closing
            bell.close()
        poller.close()
        servers.stop()


def _opened(
    given: FollowedPaths, load: Load, before: Basis | None, daemon: Callable[[], Daemon | None]
) -> tuple[Basis, HttpListener, PushSetup]:
    current = before.current if before else SettingsInForce(load)
    settings = current.settings
    named = given.paths if before or given.paths or settings.runs else [newest_below(Path(), settings.allow_roots)]
    places = before.places if before else watched_paths(named, settings)
    own = default_state_dir(places, socket.gethostname(), os.environ)
    folder = before.folder if before else settings.state_dir or given.state or own
    # a successor keeps the port that `:0` chose: clients know it by now
    front = HttpListener(msgspec.structs.replace(settings, listen=before.address) if before else settings)
    try:
        last = before.state_writer if before else None
        store = Store(folder, time.time(), began=last.store.started if last else None)
        state_writer = StateWriter(store, last.left if last else None)
        pushed = PushSetup(current, front.sent, folder.name, daemon)
    except BaseException:
        front.close()
        raise
    shown = before.shown if before else set[str]()
    return Basis(current, places, folder, state_writer, front.address, shown), front, pushed


def _tell(shown: set[str], lines_of: LinesOf, snapshot: RunSnapshot) -> None:
    """Print a run's lines after its first read, once."""
    if snapshot.run not in shown:
        show(*lines_of(snapshot))
    shown.add(snapshot.run)


def plan_of(settings: Settings, *, exit_when_done: bool, page: str = "") -> DaemonOptions:
    """The daemon's options from these settings."""
    return DaemonOptions(
        retention_days=settings.retention.days,
        retention_bytes=settings.retention.max_mb * 1e6,
        exit_when_done=exit_when_done,
        page=page,
    )


def options_for(
    found: FoundRun,
    settings: Settings,
    ended: Callable[[Path], bool] = lambda _: False,
    overrides: Overrides = NO_SETTINGS,
) -> WatchOptions:
    """The options for watching one run: its settings (file, ``--set``) and whether its input has ended."""
    over = partial(ended, found.root)
    entry = entry_for(found.root, settings.runs, found.files, found.remote)
    care = ReadLimits(bytes_per_second(settings.io_limit) if settings.io_limit else 0.0)
    options = WatchOptions(settings=overrides, examples=kept_texts(settings), ended=over, care=care)
    if entry is None:
        return options
    known = {**entry.settings, **overrides}
    return replace(options, name=entry.name, settings=known, labels=entry.labels, columns=entry.columns)


def kept_texts(settings: Settings) -> KeptTexts:
    """How much text of prompts and completions the privacy settings allow the daemon to keep."""
    if not settings.privacy.examples:
        return KeptTexts.NOTHING
    return KeptTexts.BEGINNINGS if settings.privacy.completions else KeptTexts.EXCERPT
