"""The messages that wait for one receiver: in order within a run, the next one found without looking at all."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from grpo_watch.notify.notification import Notification

Episode = tuple[str, str, str]


@dataclass(slots=True, eq=False)
class WaitingMessage:
    """One waiting message; ``due`` is when it may be tried (monotonic seconds, 0: at once).

    ``together`` asks for a digest, ``alone`` refuses it (one with it was refused).
    """

    number: int
    notification: Notification
    tries: int = 0
    bundle: int = 0
    together: bool = False
    due: float = 0.0
    alone: bool = False

    @property
    def episode(self) -> Episode:
        """The alert that it is about."""
        return episode_of(self.notification)


def episode_of(notification: Notification) -> Episode:
    """Run, rule and key."""
    return notification.run, notification.rule, notification.key


class MessageQueue:
    """Rows in order of their numbers, all and each run's; the heads of all runs in order of when they are due.

    ``together`` and ``alone`` count the rows that are marked so.
    """

    def __init__(self) -> None:
        self._rows: dict[int, WaitingMessage] = {}
        self._runs: dict[str, deque[WaitingMessage]] = {}
        self._heads: list[tuple[float, int, str]] = []
        self._held_back: frozenset[str] = frozenset()
        self.together = self.alone = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[WaitingMessage]:
        return iter(self._rows.values())

    def add(self, row: WaitingMessage) -> None:
        """Append a row; its number is the highest so far."""
        self._enter(row)
        line = self._runs.setdefault(row.notification.run, deque())
        line.append(row)
        if len(line) == 1:
            self._offer(row)

    def insert(self, rows: Iterable[WaitingMessage]) -> None:
        """Put rows where their numbers belong."""
        lines: dict[str, list[WaitingMessage]] = {}
        for row in rows:
            self._enter(row)
            lines.setdefault(row.notification.run, []).append(row)
        for run, more in lines.items():
            line = self._runs[run] = deque(sorted((*self._runs.get(run, ()), *more), key=lambda one: one.number))
            self._offer(line[0])
        if lines:
            self._rows = dict(sorted(self._rows.items()))

    def head(self) -> WaitingMessage | None:
        """The row to be tried next, which may not be due yet."""
        while self._heads:
            due, number, run = self._heads[0]
            line = self._runs.get(run)
            if line and line[0].number == number and line[0].due == due and run not in self._held_back:
                return line[0]
            heapq.heappop(self._heads)
        return None

    def hold_back(self, runs: frozenset[str]) -> None:
        """Have no head of these runs, and of all others again."""
        free, self._held_back = self._held_back - runs, runs
        for run in free & self._runs.keys():
            self._offer(self._runs[run][0])

    def oldest(self, count: int) -> list[WaitingMessage]:
        """The rows with the lowest numbers, whenever they were put in."""
        return list(islice(self._rows.values(), max(0, count)))

    def runs(self) -> list[str]:
        """The runs that something waits of."""
        return list(self._runs)

    def put_off(self, row: WaitingMessage, due: float) -> None:
        """Try a run's first row later; the run's others wait behind it."""
        row.due = due
        self._offer(row)

    def hurry(self) -> None:
        """Try every row at once."""
        for row in self._rows.values():
            row.due = 0.0
        for line in self._runs.values():
            self._offer(line[0])

    def remove(self, row: WaitingMessage) -> None:
        """Take a row out."""
        del self._rows[row.number]
        self.together -= row.together
        self.alone -= row.alone
        line = self._runs[row.notification.run]
        line.remove(row)
        if line:
            self._offer(line[0])
        else:
            del self._runs[row.notification.run]

    def _enter(self, row: WaitingMessage) -> None:
        self._rows[row.number] = row
        self.together += row.together
        self.alone += row.alone

    def _offer(self, row: WaitingMessage) -> None:
        heapq.heappush(self._heads, (row.due, row.number, row.notification.run))
