"""One receiver's queue: decides what is sent next, settles outcomes, and collects the changes to store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence

from grpo_watch.notify.episodes import Mute, OpenEpisodes, ReceiverTrouble
from grpo_watch.notify.notifications import digest
from grpo_watch.notify.queue import MOST_IDS, ONE_BY_ONE, MessageQueue, QueueLedger
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult, RoutedReceiver
from grpo_watch.store.deliveries import DeliveryChanges, StoredDeliveries
from grpo_watch.store.messages import Episode, Message, MessageState, Notification

MOST_WAITING = 10_000
"""Most messages waiting for one receiver; beyond that the oldest is dropped, counted and reported."""
DIGEST_FROM, MOST_PARTS = 6, 500
"""From this many waiting messages on they become one digest, if the receiver takes digests; and at most this many."""
SPLIT_TRIES = 10
"""After so many attempts, about five minutes, half of a digest is split off: one of its parts may block it."""
GIVE_UP_TRIES = 4_000
"""Attempts after which a message is given up: about three days at one a minute."""
IDLE_SECONDS = 1.0
FIRST_SECONDS = 1.0
"""Longest wait before the first repetition; it doubles from there …"""
LONGEST_SECONDS = 60.0
"""… up to this."""
LONGEST_ASKED_SECONDS = 900.0
"""Longest wait that a receiver may ask for."""


def wait_before(tries: int, chance: Callable[[], float], asked: float | None = None) -> float:
    """Seconds until the next attempt.

    Args:
        tries: attempts without success, from 1.
        chance: a number in 0…1; half of the wait is random, so that several watchers don't come back at once.
        asked: seconds the receiver asked for (``Retry-After``).
    """
    longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(tries - 1, 10))
    own = longest * (0.5 + 0.5 * chance())
    return own if asked is None else max(own, min(asked, LONGEST_ASKED_SECONDS))


class Outbox:
    """The engine puts, the receiver's thread takes and settles; every method is thread-safe.

    Nothing is sent before it was stored (or storing failed): call ``changes`` and, after the commit, ``committed``.
    Waits are in monotonic seconds, so that a stepping clock changes nothing.

    Args:
        routed: the receiver and its route.
        chance: returns random numbers in 0…1, for waits.
    """

    def __init__(self, routed: RoutedReceiver, chance: Callable[[], float]) -> None:
        self.name = routed.receiver.name
        self._follow(routed)
        self._chance = chance
        self._ledger, self._queue = QueueLedger(self.name), MessageQueue()
        self._flying: tuple[Message, ...] = ()
        self._ended: set[Episode] = set()
        self._ending: set[Episode] = set()
        self._episodes = OpenEpisodes(self.name, self._route)
        self.trouble = ReceiverTrouble()
        self._next = 1
        self._failures, self._free_at, self._full = 0, 0.0, False
        self.carried = threading.Lock()
        """Held by the worker that delivers the messages: its successor begins when it has ended."""
        self.moved = threading.Condition(threading.RLock())

    def __len__(self) -> int:
        with self.moved:
            return len(self._queue)

    def load(self, kept: StoredDeliveries) -> None:
        """Load the stored messages and episodes of this receiver."""
        self._ledger.load([name for sink, name in kept.finished if sink == self.name][-MOST_IDS:])
        damaged = [name for sink, name in kept.damaged if sink == self.name]
        self._ledger.load(damaged)
        self._ledger.finish(damaged, MessageState.DAMAGED, 0.0)
        for opened in kept.episodes:
            if opened.sink == self.name:
                self._episodes.load(opened)
        for message in kept.queued:
            if message.sink == self.name:
                self._next = max(self._next, message.number + 1)
                self._ledger.load([message.id])
                self._queue.add(message)

    # for the engine

    def follow(self, routed: RoutedReceiver) -> None:
        """Take another receiver of the same name, and another route; what waits is tried at once."""
        with self.moved:
            self._follow(routed)
            self._episodes.follow(self._route)
            self._failures, self._free_at = 0, 0.0
            self._queue.hurry()
            self.moved.notify_all()

    def put(self, notifications: Sequence[Notification], now: float, muted: Mute) -> None:
        """Queue notifications made at ``now`` (Unix seconds)."""
        with self.moved:
            for each in notifications:
                self._take_in(self._episodes.news(each, muted), now)

    def find(self, notifications: Sequence[Notification], now: float, muted: Mute, *, send: bool) -> None:
        """Queue alerts found firing at the start; those the receiver did not get go out as one digest."""
        with self.moved:
            for each in notifications:
                self._take_in(self._episodes.found(each, muted, send=send), now, MessageState.GATHERING)

    def open_of(self, run: str) -> list[Notification]:
        """The run's alerts that fire according to the receiver's stored state."""
        with self.moved:
            return self._episodes.open_of(run)

    def unmute(self, now: float, muted: Mute) -> None:
        """Queue alerts that still fire and are no longer muted."""
        with self.moved:
            for each in self._episodes.unmuted(muted):
                self._take_in(each, now)

    def gathered(self) -> None:
        """Release the alerts found firing at the start, once all runs are read."""
        with self.moved:
            self._queue.gathered()

    def changes(self) -> DeliveryChanges:
        """The changes to store; each is returned once."""
        with self.moved:
            episodes, self._episodes.changed = self._episodes.changed, {}
            self._ending, self._ended = self._ending | self._ended, set()
            return self._ledger.changes(episodes)

    def committed(self) -> None:
        """Note that the changes last returned are stored, or can't be stored now."""
        with self.moved:
            waited, self._ending = bool(self._ending), set()
            if self._ledger.committed() or waited:
                self.moved.notify_all()

    @property
    def counts(self) -> Counter[str]:
        """Messages by outcome, since the start."""
        with self.moved:
            return self._ledger.counts.copy()

    def reports(self) -> dict[str, str]:
        """The receiver's problem, by the runs that wait for it; each report is returned once."""
        with self.moved:
            return self.trouble.reports()

    def firing(self) -> list[Notification]:
        """The alerts the receiver got as firing and not as resolved.

        For a receiver with keyed alerts, those with waiting news are left out: a repetition would revert them to an
        older state, or reopen a resolved alert.
        """
        with self.moved:
            firing = list(self._episodes.firing())
            if not self._keyed:
                return firing
            changing = {row.notification.episode for row in self._queue}
            return [each for each in firing if each.episode not in changing]

    # for the receiver's thread

    def take(self, now: float, wall: float) -> Message | float:
        """The message to send, or how many seconds to wait (monotonic and Unix seconds); 0: until changes are stored.

        For a receiver with keyed alerts, news of an alert waits until the outcome of its previous news is stored: else
        a kill would send both again, and reopen what is resolved.
        """
        with self.moved:
            if not self._ledger.stored:
                return 0.0
            if now < self._free_at:
                return self._free_at - now
            head = self._queue.head()
            rows = tuple(self._queue.digest)
            if rows and (head is None or rows[0].due <= head.due):
                message = digest([row.notification for row in rows], wall)
                return self._fly(Message(self.name, message, MessageState.BUNDLED, due=rows[0].due, parts=rows), now)
            if head is None:
                return IDLE_SECONDS
            bundled = not rows and self._wants_digest() and self._bundle()
            if bundled or head.notification.episode in self._ended | self._ending:
                return 0.0
            return self._fly(head, now)

    def settle(self, message: Message, outcome: DeliveryOutcome, now: float, wall: float) -> None:
        """Settle a message by its outcome.

        A message given up is stored before the next one is sent: else a kill would have it sent again, after later news
        of its run.
        """
        with self.moved:
            self._flying = ()
            self._free_at = now + self.pace
            if outcome.result is DeliveryResult.RETRY:
                self._put_off(message.rows, outcome, now, wall)
                return
            if self._keyed:
                self._ended.update(row.notification.episode for row in message.rows)
            if outcome.result is DeliveryResult.DELIVERED:
                self._end(message.rows, MessageState.DELIVERED if outcome.reached else MessageState.PASSED, wall)
                if outcome.reached:
                    self._failures = 0
                    self._well()
            elif message.parts:
                self._ledger.note(self._queue.separate())
                self._ledger.hold()
            else:
                self._ledger.hold()
                self._end(message.rows, MessageState.REFUSED, wall)
                self.trouble.begins(outcome.detail, [message.notification.run, *self._queue.runs])

    def refreshed(self, outcome: DeliveryOutcome) -> None:
        """Note the outcome of a refresh."""
        with self.moved:
            arrived = outcome.result is DeliveryResult.DELIVERED
            self._ledger.counts["refreshed" if arrived else "refresh-failed"] += 1
            if not arrived:
                self.trouble.tried(outcome.detail, [notification.run for notification in self._episodes.firing()])
            elif outcome.reached and not len(self):
                self._well()

    # helpers

    def _follow(self, routed: RoutedReceiver) -> None:
        self.receiver, self._route, self.pace = routed.receiver, routed.route, routed.receiver.pace
        self._keyed = routed.receiver.keyed

    def _take_in(
        self, notification: Notification | None, now: float, state: MessageState = MessageState.WAITING
    ) -> None:
        if notification is None or self._ledger.known(notification.id):
            return
        row = Message(self.name, notification, state, self._next, now)
        self._next += 1
        self._ledger.queue(row)
        self._queue.add(row)
        self._drop(now)

    def _drop(self, now: float) -> None:
        """Keep the queue bounded; digests stay whole."""
        excess = len(self) - MOST_WAITING
        if excess <= 0:
            return
        oldest = self._queue.oldest(excess + len(self._flying), ONE_BY_ONE | {MessageState.GATHERING})
        for row in [row for row in oldest if row not in self._flying][:excess]:
            self._end([row], MessageState.DROPPED, now)
            self._full = True
            concerned = [row.notification.run, *self._queue.runs]
            self.trouble.begins(f"more than {MOST_WAITING} messages wait; the oldest are dropped", concerned)

    def _well(self) -> None:
        """Note that the receiver took something; after drops it is well only once half of the queue is gone."""
        self._full = self._full and len(self) > MOST_WAITING // 2
        if not self._full:
            self.trouble.over()

    def _wants_digest(self) -> bool:
        flood = self._route.digest and self._queue.count(*ONE_BY_ONE) >= DIGEST_FROM
        return not self._queue.count(MessageState.ALONE) and (flood or self._queue.count(MessageState.TOGETHER) > 0)

    def _bundle(self) -> bool:
        """Make a digest of all waiting messages; returns whether there were at least two.

        For a receiver with keyed alerts it holds at most one message per alert, see ``take``.
        """
        rows = self._queue.oldest(MOST_PARTS)
        rows = self._first_of_each(rows) if self._keyed else rows
        if len(rows) < 2:  # noqa: PLR2004  one is no digest
            return False
        self._queue.bundle(rows)
        self._ledger.note(rows)
        self._ledger.hold()
        return True

    def _first_of_each(self, rows: Sequence[Message]) -> list[Message]:
        """The messages before the second one about an alert, or before one whose last news is not stored yet."""
        seen = self._ended | self._ending
        for at, row in enumerate(rows):
            if row.notification.episode in seen:
                return list(rows[:at])
            seen.add(row.notification.episode)
        return list(rows)

    def _fly(self, message: Message, now: float) -> Message | float:
        if message.due > now:
            return min(message.due - now, IDLE_SECONDS)
        self._flying = message.rows
        return message

    def _put_off(self, rows: Sequence[Message], outcome: DeliveryOutcome, now: float, wall: float) -> None:
        self._ledger.counts["retried"] += 1
        self._failures += 1
        self._free_at = max(self._free_at, now + wait_before(self._failures, self._chance, outcome.retry_after))
        due = now + wait_before(rows[0].tries + 1, self._chance, outcome.retry_after)
        for row in rows:
            row.tries += 1
        self._ledger.note(rows)
        self._queue.put_off(rows, due)
        self.trouble.tried(outcome.detail, [row.notification.run for row in rows] + self._queue.runs)
        if rows[0].tries >= min(GIVE_UP_TRIES, outcome.most_tries or GIVE_UP_TRIES):
            self._end(rows, MessageState.EXPIRED, wall)
            self._ledger.hold()
        elif rows[0].bundle and rows[0].tries % SPLIT_TRIES == 0:
            self._ledger.note(self._queue.halve())
            self._ledger.hold()

    def _end(self, rows: Sequence[Message], state: MessageState, wall: float) -> None:
        self._queue.remove(rows)
        self._ledger.end(rows, state, wall)
