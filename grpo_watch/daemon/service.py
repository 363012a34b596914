"""The process of the daemon: its threads, whose death ends it, its exit in time, and its status for systemd."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from grpo_watch.children.pool import Worker
from grpo_watch.daemon.daemon import POLL_SECONDS as READ_SECONDS
from grpo_watch.daemon.daemon import Daemon
from grpo_watch.daemon.waker import Waker
from grpo_watch.engine.records import AlertState
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.notify.delivery_worker import DeliveryWorkers
from grpo_watch.sources.discovery.discover import Discoverer
from grpo_watch.sources.discovery.wandb_discovery import RemoteDiscoverer

POLL_SECONDS = 1.0
"""Seconds between two looks for new runs and channels if a folder can't be watched, or an exit waits for them …"""
LOOK_SECONDS, LOOK_SECONDS_OF_MANY = 5.0, 15.0
"""… and otherwise at most, with few runs and with more than …"""
MANY_RUNS = 300
CPU_SHARE = 2.0
"""A look is followed by a rest of so many times its processor time: wall time would grow with the machine's load. There
is one only where something came or went; a new folder among 1,000 is then seen within two seconds."""
STOP_SECONDS = 2.0
DONE = 0
"""In the inbox: end without a signal."""

log = logging.getLogger("grpo_watch.service")


class Service:
    """The running daemon.

    Args:
        daemon: what to run.
        worker: its worker processes.
        waker: wakes the engine; watches folders.
        paths: the paths to watch; may appear later.
        discoverer: finds the runs.
        clocks: monotonic seconds, and processor seconds of the calling thread.
        delivery_workers: one per receiver.
        inbox: takes signal numbers; a new one by default.
    """

    def __init__(  # noqa: PLR0913  all that runs
        self,
        daemon: Daemon,
        worker: Worker,
        waker: Waker,
        *,
        paths: Sequence[Path],
        discoverer: Discoverer | RemoteDiscoverer,
        clocks: tuple[Callable[[], float], Callable[[], float]],
        delivery_workers: DeliveryWorkers | None = None,
        inbox: SimpleQueue[int] | None = None,
    ) -> None:
        self._daemon, self._worker, self._waker = daemon, worker, waker
        self._timer, self._cpu = clocks
        self._paths, self._discoverer = tuple(paths), discoverer
        discoverer.look.watch, discoverer.look.watched = waker.watch, waker.forget_others
        waker.quiet = discoverer.look.grows
        self._stopping = threading.Event()
        self._threads = [self._thread("engine", self._engine), self._thread("discovery", self._discovery)]
        self._delivery_workers = delivery_workers
        self.inbox = inbox or SimpleQueue[int]()
        self.failed = self.signalled = False

    def start(self) -> None:
        """Start all threads."""
        self._follow()
        for thread in self._threads:
            thread.start()

    def wait(self, others: Sequence[threading.Thread] = (), each: Callable[[], None] = lambda: None) -> None:
        """Return at a signal number in ``inbox``, when done, or when a thread (also of ``others``) died.

        SIGHUP reloads rules and receivers. Signal handlers may put into the inbox at any time. ``each`` is called at
        least twice a second.
        """
        while not self._stopping.is_set():
            each()
            with suppress(Empty):
                number = self.inbox.get(timeout=0.5)
                if number == signal.SIGHUP:
                    self._daemon.reload()
                    self._waker.structure.set()
                    self._waker.ring()
                else:
                    self.signalled = number != DONE
                    return
            dead = next((thread for thread in (*self._all(), *others) if not thread.is_alive()), None)
            # A thread that ended because all is done, or its receiver was removed, was let go before it died.
            let_go = self._stopping.is_set() or dead not in (*self._all(), *others)
            if dead is not None and self.inbox.empty() and not let_go:
                self._fail(dead.name)

    def close(self) -> None:
        """End the threads and store the rest; a few seconds at most, even if a read hangs.

        A thread that does not end by then (a receiver that is silent, a mount that hangs) is left behind.
        """
        self._stopping.set()
        self._waker.structure.set()
        self._waker.ring()
        if self._delivery_workers is not None:
            self._delivery_workers.stop()
        until = self._timer() + STOP_SECONDS
        for thread in self._all():
            thread.join(max(0.0, until - self._timer()))
        if not self._threads[0].is_alive():
            self._daemon.close()
        self._worker.stop()  # last: work broken off here must not be reported as a run's problem

    def _engine(self) -> None:
        while not self._stopping.is_set():
            pause = self._daemon.turn(self._waker.changed(), self._waker.watched)
            self._follow()
            self._worker.rest()
            if self._daemon.done or self._daemon.begins_again:
                self.inbox.put(DONE)
                return
            if pause:
                self._waker.wait(min(pause, READ_SECONDS) if self._waker.polled else pause)

    def _follow(self) -> None:
        if self._delivery_workers is not None:
            self._delivery_workers.follow(self._thread)

    def _all(self) -> tuple[threading.Thread, ...]:
        return (*self._threads, *(self._delivery_workers.threads if self._delivery_workers is not None else ()))

    def _discovery(self) -> None:
        while not self._stopping.is_set():
            self._waker.structure.clear()
            began = self._cpu()
            found = self._discoverer.discover(*self._paths)
            if self._discoverer.settled:
                self._daemon.look(found, self._discoverer.problems)
            self._waker.ring()
            longest = LOOK_SECONDS if len(found) <= MANY_RUNS else LOOK_SECONDS_OF_MANY
            rest = min(longest, CPU_SHARE * (self._cpu() - began))
            remote = isinstance(self._discoverer, RemoteDiscoverer)
            polls = remote or self._waker.polled or not self._discoverer.settled or self._daemon.awaits_look
            if not self._stopping.wait(rest):
                self._waker.structure.wait(max(0.0, (POLL_SECONDS if polls else longest) - rest))

    def _thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException:
                log.exception("a thread died", extra={"fields": {"thread": name}})
                self._fail(name)

        return threading.Thread(target=guarded, name=name, daemon=True)

    def _fail(self, name: str) -> None:
        log.critical("the daemon exits because one of its threads died", extra={"fields": {"thread": name}})
        self.failed = True
        self.inbox.put(DONE)


LEAVE_SECONDS = 4.5
"""Longest time from the signal until the process exits: 5 s are promised, and the last line takes some of them."""
DONE_SECONDS = 60.0
"""The same for an exit because all is done: nothing waits to kill it, and a last sample may still be pushed."""
WORD_SECONDS = 0.25
"""For the log line about the exit: writing it may hang, too."""


class Deadline:
    """A thread that waits for ``begin`` and ends the process so many seconds later if it still runs.

    Nothing delays it: no child that ignores signals, no read from a hung mount, no silent receiver and no full pipe
    behind the log. Messages under way stay in the stored queue.

    Args:
        pause: waits for so many seconds.
        leave: ends the process at once, with this exit code.
    """

    def __init__(
        self,
        pause: Callable[[float], object] = lambda seconds: threading.Event().wait(seconds),
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._pause, self._leave = pause, leave
        self._begun: SimpleQueue[tuple[float, int]] = SimpleQueue()
        self.thread = threading.Thread(target=self._guard, name="deadline", daemon=True)
        self.thread.start()

    def begin(self, seconds: float, code: int) -> None:
        """Exit within so many seconds; only the first call counts. Signal handlers may call it."""
        self._begun.put((seconds, code))

    def _guard(self) -> None:
        seconds, code = self._begun.get()
        self._pause(seconds)
        threading.Thread(target=_log_overdue, daemon=True).start()
        self._pause(WORD_SECONDS)
        self._leave(code)


@contextmanager
def signal_inbox(deadline: Deadline) -> Iterator[SimpleQueue[int]]:
    """An inbox for SIGTERM, SIGINT and SIGHUP; the first two also start the deadline."""
    inbox: SimpleQueue[int] = SimpleQueue()

    def take(number: int, _: object) -> None:
        if number != signal.SIGHUP:
            deadline.begin(LEAVE_SECONDS, 0)
        inbox.put(number)

    before = {number: signal.signal(number, take) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield inbox
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _log_overdue() -> None:
    log.error("shutdown timed out; unsent messages will be retried at the next start")


PINGS_PER_WATCHDOG = 2
"""A sign of life at half the watchdog's time, as sd_watchdog_enabled(3) advises."""


class SystemdNotifier:
    """Sends to the socket in ``NOTIFY_SOCKET``, if there is one. Errors are ignored: the manager may be gone.

    Args:
        environ: the environment, with ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` (sd_notify(3)).
        pid: of this process; a watchdog meant for another process gets no sign of life.
        timer: monotonic seconds.
    """

    def __init__(self, environ: Mapping[str, str], pid: int, timer: Callable[[], float]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._pause = _watchdog_seconds(environ, pid) / PINGS_PER_WATCHDOG
        self._timer = timer
        self._ping_at = timer()
        self._sent = ""

    def notify(self, snapshot: DaemonSnapshot, *, ready: bool, late: float | None) -> None:
        """Report the daemon's state; call it often: it sends changes at once and signs of life in time.

        Args:
            snapshot: the newest one.
            ready: all runs were read once.
            late: by how many seconds the engine is late, which stops the signs of life; None if it is on time.
        """
        if not self._address:
            return
        lines = [] if self._sent else ["READY=1"]  # it runs and answers; its status line says whether all was read
        status = status_of(snapshot, ready=ready, late=late)
        if status != self._sent:
            self._sent = status
            lines.append(f"STATUS={status}")
        if late is None and self._pause and self._timer() >= self._ping_at:
            self._ping_at = self._timer() + self._pause
            lines.append("WATCHDOG=1")
        self._send(lines)

    def stopping(self) -> None:
        """Report that the daemon is stopping."""
        self._send(["STOPPING=1", "STATUS=stopping"])

    def _send(self, lines: list[str]) -> None:
        if not self._address or not lines:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address  # an abstract socket
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)  # a manager that does not read must not block us
            sender.sendto("\n".join(lines).encode(), address)


def status_of(snapshot: DaemonSnapshot, *, ready: bool, late: float | None) -> str:
    """One line for ``systemctl status``; numbers only, because others choose the names of runs."""
    if late is not None:
        return f"the engine is {late:.0f} s late"
    firing = sum(alert.state is AlertState.FIRING for run in snapshot.runs for alert in run.snapshot.alerts)
    seen = f"{len(snapshot.runs)} runs, {firing} alerts fire"
    return seen if ready else f"reading; {seen}"


def _watchdog_seconds(environ: Mapping[str, str], pid: int) -> float:
    wanted, owner = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(pid))
    return int(wanted) / 1e6 if wanted.isascii() and wanted.isdigit() and owner == str(pid) else 0.0


YOUNG, MIDDLE, NEVER = 10_000, 50, 1_000_000
"""Thresholds of Python's collector. With the defaults (700, 10, 10) collections took 11 % of the processor time of a
daemon with 1,000 growing runs; full ones took up to 2.1 s each, in which no row was read."""
FULL_SECONDS = 600.0
"""Seconds between two full collections; they free little, because only cycles need them."""


class PacedCollections:
    """Leaves full collections to ``turn``; young objects are collected as before, a little later.

    Args:
        timer: monotonic seconds.
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        gc.set_threshold(YOUNG, MIDDLE, NEVER)
        self._timer = timer
        self._collected_at = timer()

    def turn(self) -> None:
        """Run a full collection if it is due."""
        if self._timer() - self._collected_at >= FULL_SECONDS:
            gc.collect()
            self._collected_at = self._timer()
