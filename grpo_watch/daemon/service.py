"""Gives the daemon its threads: engine, discovery, doorbell, one per receiver; the death of any ends the process."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from grpo_watch.children.pool import Worker
from grpo_watch.daemon.daemon import POLL_SECONDS as READ_SECONDS
from grpo_watch.daemon.daemon import Daemon
from grpo_watch.daemon.waker import Waker
from grpo_watch.notify.delivery_worker import DeliveryWorkers
from grpo_watch.sources.discovery.discover import Discoverer
from grpo_watch.sources.discovery.wandb_discovery import RemoteDiscoverer

POLL_SECONDS = 1.0
"""Between two looks for new runs and channels where a folder can't be watched, or an exit waits for them …"""
LOOK_SECONDS, LOOK_SECONDS_OF_MANY = 5.0, 15.0
"""… and between two looks at most in any case, with few runs and with more than …"""
MANY_RUNS = 300
CPU_SHARE = 2.0
"""A look is followed by a rest of so many times its processor time: wall time would grow with the machine's load. There
is one only where something came or went; a new folder among 1,000 is then seen within two seconds."""
STOP_SECONDS = 2.0
DONE = 0
"""In the inbox: end, no signal asked for it."""

log = logging.getLogger("grpo_watch.service")


class Service:
    """The running daemon.

    Args:
        daemon: what to run.
        worker: its worker process.
        waker: what the engine waits for; watches folders.
        paths: what to watch; may appear later.
        discoverer: finds the runs.
        clocks: monotonic seconds, and processor seconds of the thread that asks.
        delivery_workers: those of the receivers.
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

        SIGHUP loads rules and receivers again. Signal handlers may put into the inbox at any time. ``each`` is called
        twice a second and oftener.
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
        """End the threads and store what is left; a few seconds at most, even if a read hangs.

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
        self._worker.stop()  # last: that its work broke off is no news of a run

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
