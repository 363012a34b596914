"""One receiver's queue: decides what is sent next, what became of it, and what has to be stored of that."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from grpo_watch.runtime.delivery.backoff import wait_before
from grpo_watch.runtime.delivery.episodes import Episodes, Mute
from grpo_watch.runtime.delivery.making import digest
from grpo_watch.runtime.delivery.packing import pack, unpack
from grpo_watch.runtime.delivery.trouble import Report, Trouble
from grpo_watch.runtime.delivery.waiting import Queue, Row, without_news
from grpo_watch.sinks.notification import Notification, Outcome, Result
from grpo_watch.sinks.route import Routed
from grpo_watch.store.deliveries import Changes, Kept, Queued

MOST_WAITING = 10_000
"""Messages that wait for one receiver; beyond that the oldest is dropped, counted and told."""
MOST_IDS = 50_000
"""Ids of finished messages that are remembered, so that none is sent again."""
DIGEST_FROM, MOST_PARTS = 6, 500
"""So many waiting messages become one, where the receiver takes digests; and at most so many."""
SPLIT_TRIES = 10
"""After so many attempts, about five minutes, half of a digest leaves it: one part may be why it does not arrive."""
GIVE_UP_TRIES = 4_000
"""Attempts after which a message is given up: about three days at one a minute."""
IDLE_SECONDS = 1.0
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be sent now, and the rows it stands for."""

    notification: Notification
    rows: tuple[Row, ...]


class Outbox:
    """The engine puts, the receiver's thread takes and settles; every method is safe to call from both.

    Nothing is sent before it was stored (or storing failed): call ``changes`` and, after the commit, ``committed``.
    Waits are in monotonic seconds, so that a stepping clock changes nothing.

    Args:
        routed: the receiver and what it wants.
        chance: numbers in 0…1, for the random part of waits.
    """

    def __init__(self, routed: Routed, chance: Callable[[], float]) -> None:
        self.name, self.pace, self._route = routed.receiver.name, routed.receiver.pace, routed.route
        if self._route.per_minute is not None:
            self.pace = max(self.pace, MINUTE / self._route.per_minute)
        self._chance = chance
        self._queue, self._bundles = Queue(), deque[list[Row]]()
        self._held: list[Row] = []
        self._gathering: list[Row] = []
        self._flying: tuple[Row, ...] = ()
        self._episodes = Episodes(self.name, self._route)
        self._trouble = Trouble(self.name)
        self._ids: dict[str, None] = {}
        self._next = 1
        self._changes = Changes()
        self._version = self._handed = self._stored = 0
        self._failures, self._free_at, self._full = 0, 0.0, False
        self.counts: Counter[str] = Counter()
        self.moved = threading.Condition(threading.RLock())

    def __len__(self) -> int:
        with self.moved:
            return len(self._queue) + sum(map(len, self._bundles)) + len(self._held) + len(self._gathering)

    def load(self, kept: Kept) -> None:
        """Go on from what was stored."""
        self._ids |= dict.fromkeys(name for sink, name in kept.finished[-MOST_IDS:] if sink == self.name)
        for told in kept.told:
            if told.sink == self.name:
                self._episodes.load(told)
        for stored in kept.queued:
            notification = unpack(stored.data)
            if stored.sink != self.name:
                continue
            self._next = max(self._next, stored.number + 1)
            self._ids[stored.id] = None
            if notification is None:
                self._finish([stored.id], "damaged", 0.0)
            else:
                self._load(Row(stored.number, notification, stored.tries, stored.bundle, stored.together))

    # the engine

    def put(self, told: Sequence[Notification], now: float, muted: Mute) -> None:
        """Take news of alerts at ``now`` (Unix seconds)."""
        with self.moved:
            for each in told:
                self._take_in(self._episodes.news(each, muted), now)

    def find(self, told: Sequence[Notification], now: float, muted: Mute, *, tell: bool) -> None:
        """Take alerts that were found firing; what the receiver does not know of it is told in one digest."""
        with self.moved:
            for each in told:
                self._take_in(self._episodes.found(each, muted, tell=tell), now, together=True)

    def unmute(self, now: float, muted: Mute) -> None:
        """Tell what still fires and is muted no more."""
        with self.moved:
            for each in self._episodes.unmuted(muted):
                self._take_in(each, now)

    def gathered(self) -> None:
        """All runs were looked at: what was found firing may go."""
        with self.moved:
            rows, self._gathering = self._gathering, []
            self._queue.insert(rows)

    def changes(self) -> Changes:
        """What is to be stored; handed out once."""
        with self.moved:
            changes, self._changes = self._changes, Changes()
            changes.told |= self._episodes.changed
            self._episodes.changed = {}
            self._handed = self._version
            return changes

    def committed(self) -> None:
        """What ``changes`` gave is stored, or can't be now."""
        with self.moved:
            if self._stored != self._handed:
                self._stored = self._handed
                self.moved.notify_all()

    def reports(self) -> list[Report]:
        """What is to be said of the receiver itself; handed out once."""
        with self.moved:
            return self._trouble.reports()

    def well(self) -> bool:
        """Whether the receiver took something since the start, and nothing is wrong since then."""
        with self.moved:
            return self._trouble.well

    def trouble(self) -> str:
        """Why the receiver gets nothing now, as far as is known; empty while it does."""
        with self.moved:
            return self._trouble.now

    def firing(self, wall: float) -> list[Notification]:
        """What the receiver was told that did not end yet, as quiet hours let it know at ``wall`` (Unix seconds)."""
        with self.moved:
            firing = list(self._episodes.firing())
            if self._route.quiet is None:
                return firing
            waiting = (*self._held, *self._gathering, *self._queue, *chain.from_iterable(self._bundles))
            return without_news(firing, [row for row in waiting if self._holds(row, wall)])

    # the receiver's thread

    def take(self, now: float, wall: float) -> Job | float:
        """What is to be sent, or how many seconds to wait (monotonic and Unix seconds)."""
        with self.moved:
            if self._stored != self._version:
                return IDLE_SECONDS
            self._release(wall)
            self._part_for_the_night(wall)
            if now < self._free_at:
                return self._free_at - now
            head = self._next_unheld(wall)
            if self._bundles and (head is None or self._bundles[0][0].due <= head.due):
                rows = tuple(self._bundles[0])
                return self._fly(digest([row.notification for row in rows], wall), rows, now)
            if head is None:
                return IDLE_SECONDS
            if not self._bundles and self._wants_digest() and self._bundle(wall):
                return 0.0
            return self._fly(head.notification, (head,), now)

    def settle(self, job: Job, outcome: Outcome, now: float, wall: float) -> None:
        """Take what became of a job."""
        with self.moved:
            self._flying = ()
            self._free_at = now + self.pace
            if outcome.result is Result.RETRY:
                self._put_off(job.rows, outcome, now, wall)
                return
            self._remove(job.rows)
            if outcome.result is Result.DELIVERED:
                self._end(job.rows, "delivered" if outcome.reached else "passed", wall)
                if outcome.reached:
                    self._failures = 0
                    self._well()
            elif len(job.rows) > 1:
                self._separate(job.rows, alone=True)
            else:
                self._end(job.rows, "refused", wall)
                self._trouble.begins(outcome.detail, [job.notification.run, *self._runs()])

    def refreshed(self, outcome: Outcome) -> None:
        """Take what became of telling again all that fires."""
        with self.moved:
            arrived = outcome.result is Result.DELIVERED
            self.counts["refreshed" if arrived else "refresh-failed"] += 1
            if not arrived:
                self._trouble.tried(outcome.detail, [told.run for told in self._episodes.firing()])
            elif outcome.reached and not len(self):
                self._well()

    # parts of these

    def _load(self, row: Row) -> None:
        if row.bundle and self._bundles and self._bundles[-1][0].bundle == row.bundle:
            self._bundles[-1].append(row)
            self._keep_order()
        elif row.bundle:
            self._bundles.append([row])
            self._keep_order()
        elif row.together:
            self._gathering.append(row)
        else:
            self._queue.add(row)

    def _take_in(self, told: Notification | None, now: float, *, together: bool = False) -> None:
        if told is None or told.id in self._ids:
            return
        row = Row(self._next, told, together=together)
        self._next += 1
        self._ids[told.id] = None
        if len(self._ids) > MOST_IDS:
            del self._ids[next(iter(self._ids))]
        self._changes.queued.append(
            Queued(self.name, told.id, row.number, told.run, now, pack(told), together=together)
        )
        self._version += 1
        if together:
            self._gathering.append(row)
            self._drop(now)
            return
        if any(other.notification.run == told.run for other in self._gathering):
            self.gathered()
        self._queue.add(row)
        self._drop(now)

    def _drop(self, now: float) -> None:
        """Keep the queue bounded; what quiet hours keep back or a gathering holds counts, and is as old as it is."""
        excess = len(self) - MOST_WAITING
        if excess <= 0:
            return
        waiting = (*self._held, *self._gathering[:excess], *self._queue.oldest(excess + 1))
        for row in sorted(set(waiting) - set(self._flying), key=lambda one: one.number)[:excess]:
            if row in self._held:
                self._held.remove(row)
            elif row in self._gathering:
                self._gathering.remove(row)
            else:
                self._queue.remove(row)
            self._end([row], "dropped", now)
            self._full = True
            concerned = [row.notification.run, *self._runs()]
            self._trouble.begins(f"more than {MOST_WAITING} messages wait; the oldest are dropped", concerned)

    def _well(self) -> None:
        """The receiver took something. Where messages were dropped that is not enough before half of them are gone."""
        self._full = self._full and len(self) > MOST_WAITING // 2
        if not self._full:
            self._trouble.over()

    def _holds(self, row: Row, wall: float) -> bool:
        """Whether quiet hours keep it back: not what the receiver itself asked for, nor what has to go before that."""
        own = self._episodes.own(row.notification)
        return not (own or row.forced) and self._route.holds(row.notification, wall)

    def _release(self, wall: float) -> None:
        """What quiet hours kept back goes together once they are over."""
        free = [row for row in self._held if not self._holds(row, wall)]
        if free:
            self._held = [row for row in self._held if row not in free]
            for row in free:
                row.together = True
            self._queue.insert(free)

    def _part_for_the_night(self, wall: float) -> None:
        """A digest that did not arrive before quiet hours goes back into the queue: they hold for each part."""
        for rows in list(self._bundles) if self._route.quiet is not None else ():
            if any(self._holds(row, wall) for row in rows):
                self._bundles.remove(rows)
                self._separate(rows, alone=False)
                self._keep_order()

    def _next_unheld(self, wall: float) -> Row | None:
        """The first row that quiet hours don't keep back; what was kept back of its episode goes before it."""
        while (head := self._queue.head()) is not None:
            if not self._holds(head, wall):
                earlier = [row for row in self._held if row.episode == head.episode]
                if not earlier:
                    return head
                for row in earlier:
                    row.forced = True
                self._held = [row for row in self._held if row not in earlier]
                self._queue.insert(earlier)
            else:
                self._queue.remove(head)
                self._held.append(head)
        return None

    def _wants_digest(self) -> bool:
        flood = self._route.digest and len(self._queue) >= DIGEST_FROM
        return not self._queue.alone and (flood or self._queue.together > 0)

    def _bundle(self, wall: float) -> bool:
        """Make one message of all that waits; whether there was enough for that."""
        waiting = [row for row in self._queue if not self._holds(row, wall)]
        rows = waiting[:MOST_PARTS]
        if len(rows) < 2:  # noqa: PLR2004  one is no digest
            return False
        self._remove(rows)
        for row in rows:
            row.bundle = rows[0].number
            self._note(row)
        self._bundles.append(rows)
        self._keep_order()
        self._version += 1
        return True

    def _halve(self, rows: Sequence[Row]) -> None:
        """Leave the first half of a digest together; the rest, or both of two, go by themselves or with what comes."""
        half = len(rows) // 2
        self._remove(rows)
        if half > 1:
            self._bundles.append(list(rows[:half]))
        self._separate(rows[half if half > 1 else 0 :], alone=half <= 1)
        self._keep_order()
        self._version += 1

    def _separate(self, rows: Sequence[Row], *, alone: bool) -> None:
        for row in rows:
            row.bundle, row.together, row.alone = 0, False, alone
            self._note(row)
        self._queue.insert(rows)

    def _keep_order(self) -> None:
        """A run's news wait for what a digest says of it; those of other runs may pass one that does not arrive."""
        self._queue.hold_back(frozenset(row.notification.run for rows in self._bundles for row in rows))

    def _fly(self, notification: Notification, rows: tuple[Row, ...], now: float) -> Job | float:
        if rows[0].due > now:
            return min(rows[0].due - now, IDLE_SECONDS)
        self._flying = rows
        return Job(notification, rows)

    def _put_off(self, rows: Sequence[Row], outcome: Outcome, now: float, wall: float) -> None:
        self.counts["retried"] += 1
        self._failures += 1
        self._free_at = max(self._free_at, now + wait_before(self._failures, self._chance, outcome.retry_after))
        due = now + wait_before(rows[0].tries + 1, self._chance, outcome.retry_after)
        for row in rows:
            row.tries, row.due = row.tries + 1, due
            self._note(row)
        self._trouble.tried(outcome.detail, [row.notification.run for row in rows] + self._runs())
        if rows[0].tries >= min(GIVE_UP_TRIES, outcome.most_tries or GIVE_UP_TRIES):
            self._remove(rows)
            self._end(rows, "expired", wall)
        elif not rows[0].bundle:
            self._queue.put_off(rows[0], due)
        elif rows[0].tries % SPLIT_TRIES == 0:
            self._halve(rows)

    def _remove(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if not row.bundle:
                self._queue.remove(row)
            elif self._bundles and self._bundles[0][0].bundle == row.bundle:
                self._bundles.popleft()
                self._keep_order()

    def _note(self, row: Row) -> None:
        self._changes.changed[self.name, row.notification.id] = (row.tries, row.bundle)

    def _end(self, rows: Iterable[Row], outcome: str, wall: float) -> None:
        names = [row.notification.id for row in rows]
        self.counts[outcome] += len(names)
        self._finish(names, outcome, wall)

    def _finish(self, names: Iterable[str], outcome: str, wall: float) -> None:
        self._changes.finished.update(((self.name, name), (outcome, wall)) for name in names)

    def _runs(self) -> list[str]:
        return self._queue.runs()
