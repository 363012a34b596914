"""The end of the process in time, and its state for the service manager (systemd)."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import SimpleQueue

from grpo_watch.engine.records import AlertState
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot

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


PINGS_PER_WATCHDOG = 2
"""A sign of life at half the watchdog's time, as sd_watchdog_enabled(3) advises."""


class SystemdNotifier:
    """Sends to the socket in ``NOTIFY_SOCKET``; where there is none, nothing. A manager that is gone hurts nothing.

    Args:
        environ: the environment, with ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` (sd_notify(3)).
        pid: of this process; a watchdog that is meant for another one gets no sign of life.
        timer: monotonic seconds.
    """

    def __init__(self, environ: Mapping[str, str], pid: int, timer: Callable[[], float]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._pause = _watchdog_seconds(environ, pid) / PINGS_PER_WATCHDOG
        self._timer = timer
        self._ping_at = timer()
        self._sent = ""

    def notify(self, snapshot: DaemonSnapshot, *, ready: bool, late: float | None) -> None:
        """Say how the daemon is; asked often, it sends what is new and a sign of life in time.

        Args:
            snapshot: the newest one.
            ready: everything was read once.
            late: by how many seconds the engine is late, and then there is no sign of life; None: it is well.
        """
        if not self._address:
            return
        lines = [] if self._sent else ["READY=1"]  # it runs and answers; its status says whether all was read
        status = status_of(snapshot, ready=ready, late=late)
        if status != self._sent:
            self._sent = status
            lines.append(f"STATUS={status}")
        if late is None and self._pause and self._timer() >= self._ping_at:
            self._ping_at = self._timer() + self._pause
            lines.append("WATCHDOG=1")
        self._send(lines)

    def stopping(self) -> None:
        """Say that the daemon ends."""
        self._send(["STOPPING=1", "STATUS=stopping"])

    def _send(self, lines: list[str]) -> None:
        if not self._address or not lines:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address  # of the abstract kind
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)  # a manager that does not listen holds up nothing
            sender.sendto("\n".join(lines).encode(), address)


def status_of(snapshot: DaemonSnapshot, *, ready: bool, late: float | None) -> str:
    """One line for ``systemctl status``; numbers only, as names of runs are chosen by others."""
    if late is not None:
        return f"the engine is {late:.0f} s late"
    firing = sum(alert.state is AlertState.FIRING for run in snapshot.runs for alert in run.snapshot.alerts)
    seen = f"{len(snapshot.runs)} runs, {firing} alerts fire"
    return seen if ready else f"reading; {seen}"


def _watchdog_seconds(environ: Mapping[str, str], pid: int) -> float:
    wanted, owner = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(pid))
    return int(wanted) / 1e6 if wanted.isascii() and wanted.isdigit() and owner == str(pid) else 0.0
