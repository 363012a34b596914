"""An outbox without a store, a thread or a clock: a test says what time it is and what the receiver answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from grpo_watch.runtime.delivery.outbox import Job, Outbox
from grpo_watch.sinks.notification import Notification, Outcome, Result
from grpo_watch.sinks.route import Route, Routed
from grpo_watch.store.deliveries import Changes, Kept

Muted = Callable[[Notification], bool]
DELIVERED, RETRY, REFUSED = (Outcome(result, "told so") for result in Result)


@dataclass
class Named:
    """As much of a receiver as an outbox asks for."""

    name: str = "hook"
    pace: float = 0.0


class Postbox:
    """``now`` is both clocks; ``stored`` collects what would be stored."""

    def __init__(self, route: Route = Route(), kept: Kept = Kept(), pace: float = 0.0) -> None:  # noqa: B008  frozen
        self.outbox = Outbox(Routed(Named(pace=pace), route), lambda: 1.0)  # type: ignore[arg-type]
        self.outbox.load(kept)
        self.now, self.stored = 0.0, Changes()

    def put(self, *told: Notification, muted: Muted = lambda _: False) -> None:
        self.outbox.put(told, self.now, muted)
        self.store()

    def find(self, *told: Notification, muted: Muted = lambda _: False, tell: bool = True) -> None:
        self.outbox.find(told, self.now, muted, tell=tell)
        self.store()

    def store(self) -> None:
        self.stored.add(self.outbox.changes())
        self.outbox.committed()

    def take(self) -> Job | float:
        return self.outbox.take(self.now, self.now)

    def send(self, outcome: Outcome = DELIVERED) -> Notification | None:
        """The next message, answered so; None when nothing is due now."""
        job = self.take()
        if job == 0:  # a digest is stored first
            self.store()
            job = self.take()
        if not isinstance(job, Job):
            return None
        self.outbox.settle(job, outcome, self.now, self.now)
        self.store()
        return job.notification

    def send_all(self) -> list[Notification]:
        """All that is due now."""
        sent = []
        while (message := self.send()) is not None:
            sent.append(message)
        return sent

    def kept(self) -> Kept:
        """What a restart would find."""
        told = tuple(each for each in self.stored.told.values() if each is not None)
        done = tuple(self.stored.finished)
        waiting = [
            replace(each, bundle=self.stored.changed.get((each.sink, each.id), (0, 0))[1])
            for each in self.stored.queued
            if (each.sink, each.id) not in self.stored.finished
        ]
        return Kept(tuple(waiting), told, done)


def ids(messages: Sequence[Notification]) -> list[str]:
    return [message.id for message in messages]
