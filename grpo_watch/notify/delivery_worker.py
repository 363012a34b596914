"""One thread per configured receiver: sends messages, settles their outcome, and refreshes firing alerts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.notify.outbox import Outbox, wait_before
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult
from grpo_watch.store.messages import Message

AFTER_ANOTHER = 0.5
"""Seconds between two checks whether a worker that waits for its predecessor is to stop."""

log = logging.getLogger("grpo_watch.delivery")


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """A worker's access to the daemon: newest snapshot, Unix and monotonic seconds, random numbers, a wake-up call."""

    snapshot: Callable[[], DaemonSnapshot]
    clock: Callable[[], float]
    timer: Callable[[], float]
    chance: Callable[[], float]
    ring: Callable[[], None]


class DeliveryWorker:
    """One receiver's thread; ``run`` returns after ``stop``, at the latest when the call under way ends."""

    def __init__(self, outbox: Outbox, context: WorkerContext) -> None:
        self.outbox, self._receiver, self._context = outbox, outbox.receiver, context
        self._stopping = threading.Event()
        self._refresh_at = context.timer()
        self._refresh_failures = 0

    def run(self) -> None:
        """Send until stopped; then refresh the receiver a last time and close it.

        If the receiver was removed and is back, its former worker may still be delivering: begin after it.
        """
        while not self.outbox.carried.acquire(timeout=AFTER_ANOTHER):
            if self._stopping.is_set():
                return
        try:
            self._carry()
        finally:
            self.outbox.carried.release()

    def _carry(self) -> None:
        while not self._stopping.is_set():
            pause = self.step()
            if pause:
                with self.outbox.moved:
                    if not self._stopping.is_set():
                        self.outbox.moved.wait(pause)
        if self._receiver.refresh_every is not None:
            self._refresh()
        self._receiver.close()

    def stop(self) -> None:
        """Ask the thread to end soon."""
        self._stopping.set()
        with self.outbox.moved:
            self.outbox.moved.notify_all()

    def step(self) -> float:
        """Do all due work; returns for how many seconds nothing is due."""
        context = self._context
        self._take_over()
        every = self._receiver.refresh_every
        if every is not None and context.timer() >= self._refresh_at:
            self._refresh()
        taken = self.outbox.take(context.timer(), context.clock())
        if isinstance(taken, Message):
            self.outbox.settle(taken, self._send(taken), context.timer(), context.clock())
            return 0.0
        if not taken:
            context.ring()  # a digest must be stored before it is sent
            taken = 1.0
        return taken if every is None else max(0.001, min(taken, self._refresh_at - context.timer()))

    def _take_over(self) -> None:
        """Continue with the receiver that the settings have by now."""
        if self._receiver is not self.outbox.receiver:
            self._receiver.close()
            self._receiver = self.outbox.receiver
            self._refresh_at, self._refresh_failures = self._context.timer(), 0

    def _send(self, message: Message) -> DeliveryOutcome:
        outcome = self._tried(lambda: self._receiver.send(message.notification))
        if outcome.result is not DeliveryResult.DELIVERED:
            fields = self._fields(outcome=outcome.result.value, answer=outcome.detail, message=message.id)
            log.warning("a message was not delivered", extra=fields)
        return outcome

    def _tried(self, call: Callable[[], DeliveryOutcome]) -> DeliveryOutcome:
        """The outcome of a call; an exception becomes one, so that a bad message can't end the daemon at each start."""
        try:
            return call()
        except Exception as error:
            log.exception("a receiver failed", extra=self._fields())
            machine = isinstance(error, (OSError, MemoryError, ImportError))  # such trouble (no file handles) may pass
            result = DeliveryResult.RETRY if machine else DeliveryResult.REFUSED
            return DeliveryOutcome(result, f"internal error: {type(error).__name__}")

    def _refresh(self) -> None:
        context, snapshot = self._context, self._context.snapshot()
        shown = {run.snapshot.run for run in snapshot.runs}
        firing = [notification for notification in self.outbox.firing() if notification.run in shown]
        outcome = self._tried(lambda: self._receiver.refresh(firing, snapshot, context.clock()))
        failed = outcome.result is not DeliveryResult.DELIVERED
        if failed and not self._refresh_failures:
            log.warning("a receiver can't be refreshed", extra=self._fields(answer=outcome.detail))
        self._refresh_failures = self._refresh_failures + 1 if failed else 0
        pause = self._receiver.refresh_every or 0.0
        if failed:
            pause = min(pause, wait_before(self._refresh_failures, context.chance, outcome.retry_after))
        self._refresh_at = context.timer() + pause
        self.outbox.refreshed(outcome)

    def _fields(self, **more: str) -> dict[str, dict[str, str]]:
        return {"fields": {"sink": self._receiver.name, **more}}


Spawn: TypeAlias = Callable[[str, Callable[[], None]], threading.Thread]
"""Makes a thread of this name that does this."""


class DeliveryWorkers:
    """One worker for each outbox.

    Args:
        outboxes: those of the receivers; another list once the settings changed.
        context: what workers need of the daemon.
    """

    def __init__(self, outboxes: Callable[[], Sequence[Outbox]], context: WorkerContext) -> None:
        self._outboxes, self._context = outboxes, context
        self._seen: Sequence[Outbox] = ()
        self._running: dict[str, tuple[DeliveryWorker, threading.Thread]] = {}
        self._stopped = False
        self._lock = threading.Lock()

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """Those that run until they are stopped; one whose receiver was removed is none of them."""
        with self._lock:
            return tuple(thread for _, thread in self._running.values())

    def follow(self, spawn: Spawn) -> None:
        """Start workers for new receivers and stop those of removed ones; cheap where nothing changed."""
        if self._seen is (outboxes := self._outboxes()):
            return
        self._seen = outboxes
        wanted = {outbox.name: outbox for outbox in self._seen}
        with self._lock:
            if self._stopped:
                return
            for name in self._running.keys() - wanted.keys():
                worker_thread, _ = self._running.pop(name)
                worker_thread.stop()
            for name in wanted.keys() - self._running.keys():
                worker_thread = DeliveryWorker(wanted[name], self._context)
                thread = spawn(f"sink {name}", worker_thread.run)
                self._running[name] = (worker_thread, thread)
                thread.start()

    def stop(self) -> None:
        """End all of them soon, and start no new ones."""
        with self._lock:
            self._stopped = True
            for worker_thread, _ in self._running.values():
                worker_thread.stop()
