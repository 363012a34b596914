"""What waits for one receiver: messages in order within a run, digests of them, and what of both is stored."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import msgspec

from grpo_watch.notify.notification import FIRING, Notification
from grpo_watch.store.codec import DECODE_ERRORS, storable
from grpo_watch.store.deliveries import DeliveredAlert, DeliveryChanges, Episode, QueuedMessage


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


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Notification)


def pack(notification: Notification) -> bytes:
    """The notification as bytes; what MessagePack can't hold is made holdable."""
    try:
        return _ENCODER.encode(notification)
    except (OverflowError, UnicodeEncodeError):
        return _ENCODER.encode(storable(notification))


def unpack(data: bytes) -> Notification | None:
    """The notification that ``pack`` was given; None where the bytes are damaged."""
    try:
        return _DECODER.decode(data)
    except DECODE_ERRORS:
        return None


def begins(data: bytes) -> Episode | None:
    """The alert that a packed notification fires; None for a resolve, for one that got worse, and for damaged bytes."""
    notification = unpack(data)
    return (
        episode_of(notification)
        if notification is not None and notification.status == FIRING and not notification.was
        else None
    )


class Digests:
    """Digests in the order of their making. The queue has no head of a run that one of them is about.

    Args:
        queue: where rows come from and go back to.
        note: called with each row that changed.
    """

    def __init__(self, queue: MessageQueue, note: Callable[[WaitingMessage], None]) -> None:
        self._queue, self._note = queue, note
        self._bundles = deque[list[WaitingMessage]]()

    def __len__(self) -> int:
        return sum(map(len, self._bundles))

    def __iter__(self) -> Iterator[WaitingMessage]:
        return chain.from_iterable(self._bundles)

    @property
    def first(self) -> Sequence[WaitingMessage]:
        """The rows of the digest that goes next; empty where there is none."""
        return self._bundles[0] if self._bundles else ()

    def load(self, row: WaitingMessage) -> None:
        """Take a row of a digest as it was stored."""
        if self._bundles and self._bundles[-1][0].bundle == row.bundle:
            self._bundles[-1].append(row)
        else:
            self._bundles.append([row])
        self._keep_order()

    def make(self, rows: Sequence[WaitingMessage]) -> None:
        """Make one message of rows of the queue."""
        for row in rows:
            self._queue.remove(row)
            row.bundle = rows[0].number
            self._note(row)
        self._bundles.append(list(rows))
        self._keep_order()

    def remove(self, rows: Sequence[WaitingMessage]) -> None:
        """Take the first digest out, if these are its rows."""
        if self._bundles and self._bundles[0][0].bundle == rows[0].bundle:
            self._bundles.popleft()
            self._keep_order()

    def halve(self, rows: Sequence[WaitingMessage]) -> None:
        """Keep the first half of a digest; its other messages (of two: both) are sent alone or in a later digest."""
        half = len(rows) // 2
        self.remove(rows)
        if half > 1:
            self._bundles.append(list(rows[:half]))
        self.separate(rows[half if half > 1 else 0 :], alone=half <= 1)

    def separate(self, rows: Sequence[WaitingMessage], *, alone: bool) -> None:
        """Put rows that are in no digest any more back into the queue; ``alone``: each is to go by itself."""
        for row in rows:
            row.bundle, row.together, row.alone = 0, False, alone
            self._note(row)
        self._queue.insert(rows)
        self._keep_order()

    def hurry(self) -> None:
        """Try each at once."""
        for rows in self._bundles:
            rows[0].due = 0.0

    def _keep_order(self) -> None:
        """A run's messages wait for a digest that holds some of it; those of other runs may pass that digest."""
        self._queue.hold_back(frozenset(row.notification.run for row in self))


MOST_IDS = 50_000
"""Ids of finished messages that are remembered, so that none is sent again."""


class QueueLedger:
    """``counts`` counts messages by outcome. Not thread-safe: the caller locks.

    Args:
        sink: the receiver's name.
    """

    def __init__(self, sink: str) -> None:
        self._sink = sink
        self._ids: dict[str, None] = {}
        self._changes = DeliveryChanges()
        self._version = self._handed = self._stored = 0
        self.counts: Counter[str] = Counter()

    def load(self, finished: Iterable[tuple[str, str]]) -> None:
        """Take the ids (with their receivers) of what was sent before."""
        self._ids |= dict.fromkeys([name for sink, name in finished if sink == self._sink][-MOST_IDS:])

    def known(self, name: str) -> bool:
        """Whether a message of this id waits or was sent."""
        return name in self._ids

    def waits(self, name: str) -> None:
        """A message of this id waits, as was stored."""
        self._ids[name] = None

    def queue(self, row: WaitingMessage, at: float) -> None:
        """A message begins to wait at ``at`` (Unix seconds); it must not go before it was stored."""
        notification = row.notification
        self.waits(notification.id)
        if len(self._ids) > MOST_IDS:
            del self._ids[next(iter(self._ids))]
        self._changes.queued.append(
            QueuedMessage(
                self._sink, notification.id, row.number, notification.run, at, pack(notification), together=row.together
            )
        )
        self.hold()

    def note(self, row: WaitingMessage) -> None:
        """A row was tried, or goes into a digest or out of it."""
        self._changes.changed[self._sink, row.notification.id] = (row.tries, row.bundle)

    def end(self, rows: Iterable[WaitingMessage], outcome: str, at: float) -> None:
        """Messages no longer wait."""
        names = [row.notification.id for row in rows]
        self.counts[outcome] += len(names)
        self.finish(names, outcome, at)

    def finish(self, names: Iterable[str], outcome: str, at: float) -> None:
        """The same by their ids, uncounted."""
        self._changes.finished.update(((self._sink, name), (outcome, at)) for name in names)

    def hold(self) -> None:
        """Nothing must be sent before what changed by now was stored."""
        self._version += 1

    def changes(self, delivered: Mapping[tuple[str, Episode], DeliveredAlert | None]) -> DeliveryChanges:
        """The changes to be stored, with the alerts that the receiver got; handed out once."""
        changes, self._changes = self._changes, DeliveryChanges()
        changes.delivered |= delivered
        self._handed = self._version
        return changes

    def committed(self) -> bool:
        """What ``changes`` gave is stored, or can't be now; whether that is news."""
        news, self._stored = self._stored != self._handed, self._handed
        return news

    @property
    def stored(self) -> bool:
        """Whether all that must not go unstored was."""
        return self._stored == self._version
