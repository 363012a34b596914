"""The digests of one receiver: rows of its queue that go as one message, and part where that does not arrive."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from grpo_watch.notify.queue import MessageQueue, WaitingMessage


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
