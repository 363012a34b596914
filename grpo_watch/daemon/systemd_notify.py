"""Tells the service manager that started the daemon how it is, over systemd's ``sd_notify`` protocol."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import suppress

from grpo_watch.engine.records import AlertState
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot

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
