"""An outbox without a store, a thread or a clock: a test says what time it is and what the receiver answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpo_watch.notify.outbox import Outbox
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult, Route, RoutedReceiver
from grpo_watch.store.deliveries import DeliveryChanges, StoredDeliveries
from grpo_watch.store.messages import Message, Notification

Muted = Callable[[Notification], bool]
DELIVERED, RETRY, REFUSED = (DeliveryOutcome(result, "answered so") for result in DeliveryResult)


@dataclass
class Named:
    """As much of a receiver as an outbox asks for."""

    name: str = "hook"
    pace: float = 0.0
    keyed: bool = False


class Postbox:
    """``now`` is both clocks; ``stored`` collects what would be stored."""

    def __init__(
        self,
        route: Route = Route(),  # noqa: B008  frozen
        kept: StoredDeliveries = StoredDeliveries(),  # noqa: B008  frozen
        pace: float = 0.0,
        *,
        keyed: bool = False,
    ) -> None:
        self.outbox = Outbox(RoutedReceiver(Named(pace=pace, keyed=keyed), route), lambda: 1.0)  # type: ignore[arg-type]
        self.outbox.load(kept)
        self.now, self.stored = 0.0, DeliveryChanges()

    def put(self, *reported: Notification, muted: Muted = lambda _: False) -> None:
        self.outbox.put(reported, self.now, muted)
        self.store()

    def find(self, *reported: Notification, muted: Muted = lambda _: False, send: bool = True) -> None:
        self.outbox.find(reported, self.now, muted, send=send)
        self.store()

    def store(self) -> None:
        self.stored.add(self.outbox.changes())
        self.outbox.committed()

    def take(self) -> Message | float:
        return self.outbox.take(self.now, self.now)

    def send(self, outcome: DeliveryOutcome = DELIVERED) -> Notification | None:
        """The next message, answered so; None when nothing is due now."""
        job = self.take()
        if job == 0:  # a digest is stored first
            self.store()
            job = self.take()
        if not isinstance(job, Message):
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

    def kept(self) -> StoredDeliveries:
        """What a restart would find."""
        return StoredDeliveries().after(self.stored)


def ids(messages: Sequence[Notification]) -> list[str]:
    return [message.id for message in messages]
