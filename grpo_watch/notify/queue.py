"""The waiting messages of one receiver: in order within a run, a digest of many, and the changes to store."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from grpo_watch.store.deliveries import DeliveryChanges
from grpo_watch.store.messages import Episode, Message, MessageState

ONE_BY_ONE = frozenset({MessageState.WAITING, MessageState.TOGETHER, MessageState.ALONE})
"""States of messages that are sent by themselves, or from which a digest is made."""


class MessageQueue:
    """The messages of one receiver in the order of their numbers, and by run; some of them may form a digest.

    Only a run's first message is tried, once it is due; its others wait behind it, also while it is part of a digest or
    being gathered.
    """

    def __init__(self) -> None:
        self._rows: dict[int, Message] = {}
        self._runs: dict[str, deque[Message]] = {}
        self._heads: list[tuple[float, int, str]] = []
        self.digest: list[Message] = []
        """The messages sent as one; empty without a digest."""
        self._states = Counter[MessageState]()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._rows.values())

    def count(self, *states: MessageState) -> int:
        """The number of messages in these states."""
        return sum(self._states[state] for state in states)

    @property
    def runs(self) -> list[str]:
        """The runs with waiting messages that are neither gathered nor part of a digest."""
        return [run for run, line in self._runs.items() if not ONE_BY_ONE.isdisjoint((line[0].state, line[-1].state))]

    def head(self) -> Message | None:
        """The message to send next by itself, which may not be due yet; None if there is none."""
        while self._heads:
            due, number, run = self._heads[0]
            line = self._runs.get(run)
            if line and line[0].number == number and line[0].due == due and line[0].state in ONE_BY_ONE:
                return line[0]
            heapq.heappop(self._heads)
        return None

    def oldest(self, count: int, states: frozenset[MessageState] = ONE_BY_ONE) -> list[Message]:
        """The messages in these states with the lowest numbers, due or not."""
        return list(islice((row for row in self if row.state in states), max(0, count)))

    def add(self, row: Message) -> None:
        """Append a stored or new message; its number is the highest so far.

        News of a run whose messages are being gathered ends the gathering: it must not be sent before them.
        """
        if row.state is MessageState.BUNDLED:
            if self.digest and self.digest[0].bundle != row.bundle:  # from a damaged state
                row.state, row.bundle = MessageState.WAITING, 0
            else:
                self.digest.append(row)
        self._rows[row.number] = row
        self._states[row.state] += 1
        line = self._runs.setdefault(row.notification.run, deque())
        gathers = bool(line) and line[-1].state is MessageState.GATHERING is not row.state
        line.append(row)
        self._offer(row)
        if gathers:
            self.gathered()

    def remove(self, rows: Sequence[Message]) -> None:
        """Remove a message, or the whole digest."""
        self.digest = [] if rows[0].bundle else self.digest
        for row in rows:
            del self._rows[row.number]
            self._states[row.state] -= 1
            line = self._runs[row.notification.run]
            line.remove(row)
            if line:
                self._offer(line[0])
            else:
                del self._runs[row.notification.run]

    def gathered(self) -> None:
        """End the gathering: gathered messages go out together."""
        if self._states[MessageState.GATHERING]:
            self._turn([row for row in self if row.state is MessageState.GATHERING], MessageState.TOGETHER)

    def bundle(self, rows: Sequence[Message]) -> None:
        """Make these messages the digest; there must be none."""
        for row in rows:
            row.bundle = rows[0].number
        self.digest = list(rows)
        self._turn(rows, MessageState.BUNDLED)

    def halve(self) -> Sequence[Message]:
        """Keep the first half of the digest; its other messages (of two: both) are sent alone or in a later digest."""
        half = len(self.digest) // 2
        return self._free(half, MessageState.WAITING) if half > 1 else self.separate()

    def separate(self) -> Sequence[Message]:
        """Dissolve the digest; each of its messages is sent by itself."""
        return self._free(0, MessageState.ALONE)

    def put_off(self, rows: Sequence[Message], due: float) -> None:
        """Retry a message, or the digest, at ``due`` (monotonic seconds)."""
        for row in rows:
            row.due = due
        self._offer(rows[0])

    def hurry(self) -> None:
        """Try every message at once."""
        for row in self:
            row.due = 0.0
        for line in self._runs.values():
            self._offer(line[0])

    def _free(self, start: int, state: MessageState) -> Sequence[Message]:
        rows = self.digest[start:]
        del self.digest[start:]
        for row in rows:
            row.bundle = 0
        self._turn(rows, state)
        return rows

    def _turn(self, rows: Sequence[Message], state: MessageState) -> None:
        self._states.subtract(row.state for row in rows)
        self._states[state] += len(rows)
        for row in rows:
            row.state = state
        for run in {row.notification.run for row in rows}:
            self._offer(self._runs[run][0])

    def _offer(self, row: Message) -> None:
        """Schedule a message for when it is due, if it is the first of its run and sent by itself."""
        if row.state in ONE_BY_ONE and self._runs[row.notification.run][0] is row:
            heapq.heappush(self._heads, (row.due, row.number, row.notification.run))


MOST_IDS = 50_000
"""Most ids of finished messages remembered, so that none is sent again."""


class QueueLedger:
    """Collects the changes of one receiver's queue to store, and its message ids; ``counts``: messages by outcome.

    Not thread-safe: the caller locks.

    Args:
        sink: the receiver's name.
    """

    def __init__(self, sink: str) -> None:
        self._sink = sink
        self._ids: dict[str, None] = {}
        self._changes = DeliveryChanges()
        self._version = self._handed = self._stored = 0
        self.counts: Counter[str] = Counter()

    def load(self, ids: Iterable[str]) -> None:
        """Load the ids of messages that were sent or wait."""
        self._ids |= dict.fromkeys(ids)

    def known(self, name: str) -> bool:
        """Whether a message with this id waits or was sent."""
        return name in self._ids

    def queue(self, row: Message) -> None:
        """Note a new message; it must be stored before it is sent."""
        self._ids[row.id] = None
        if len(self._ids) > MOST_IDS:
            del self._ids[next(iter(self._ids))]
        self._changes.queued.append(row)
        self.hold()

    def note(self, rows: Iterable[Message]) -> None:
        """Note changed attempts or digest of messages."""
        self._changes.changed.update(((self._sink, row.id), (row.tries, row.bundle)) for row in rows)

    def end(self, rows: Sequence[Message], state: MessageState, at: float) -> None:
        """Note the final state of messages at ``at`` (Unix seconds), and count it."""
        for row in rows:
            row.state = state
        self.counts[state.value] += len(rows)
        self.finish([row.id for row in rows], state, at)

    def finish(self, names: Iterable[str], state: MessageState, at: float) -> None:
        """Note the final state of messages by id, uncounted."""
        self._changes.finished.update(((self._sink, name), (state, at)) for name in names)

    def hold(self) -> None:
        """Hold back sending until all changes so far are stored."""
        self._version += 1

    def changes(self, episodes: Mapping[tuple[str, Episode], Message | None]) -> DeliveryChanges:
        """The changes to store, with the receiver's episodes; each is returned once."""
        changes, self._changes = self._changes, DeliveryChanges()
        changes.episodes |= episodes
        self._handed = self._version
        return changes

    def committed(self) -> bool:
        """Note that the changes last returned are stored, or can't be stored now; returns False if that was known."""
        news, self._stored = self._stored != self._handed, self._handed
        return news

    @property
    def stored(self) -> bool:
        """Whether all changes are stored that must precede sending."""
        return self._stored == self._version
