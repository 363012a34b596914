"""Ends the process in time even if something hangs: what is not stored by then is left as after ``kill -9``."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

STOP_SECONDS = 4.5
"""From the signal until the process leaves at the latest: 5 s are promised, and the last line takes some of them."""
DONE_SECONDS = 60.0
"""The same for one that ends because all is done: nothing waits to kill it, and a last sample may still be pushed."""
WORD_SECONDS = 0.25
"""For the log line about it: writing it may hang as well."""

log = logging.getLogger("grpo_watch.service")


class Deadline:
    """A thread that waits for ``begin``, and ends the process so many seconds later if it still runs then.

    Nothing holds it up: not a child that ignores signals, a read from a mount that hangs, a receiver that is silent,
    nor a full pipe behind the log. Messages under way stay in the stored queue.

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
        """Leave within so many seconds; the first call counts. Signal handlers may call it."""
        self._begun.put((seconds, code))

    def _guard(self) -> None:
        seconds, code = self._begun.get()
        self._pause(seconds)
        threading.Thread(target=_log_overdue, daemon=True).start()
        self._pause(WORD_SECONDS)
        self._leave(code)


@contextmanager
def signal_inbox(deadline: Deadline) -> Iterator[SimpleQueue[int]]:
    """An inbox that takes SIGTERM, SIGINT and SIGHUP; the first two end the process in time."""
    inbox: SimpleQueue[int] = SimpleQueue()

    def take(number: int, _: object) -> None:
        if number != signal.SIGHUP:
            deadline.begin(STOP_SECONDS, 0)
        inbox.put(number)

    before = {number: signal.signal(number, take) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield inbox
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _log_overdue() -> None:
    log.error("shutdown timed out; unsent messages will be retried at the next start")
