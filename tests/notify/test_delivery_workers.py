"""The delivery workers follow the receivers that are configured; no two of them carry one receiver's messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from grpo_watch.daemon.dispatcher import NotificationDispatcher
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.notify.delivery_worker import DeliveryWorkers, WorkerContext
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult, Receiver, RoutedReceiver
from grpo_watch.store.deliveries import StoredDeliveries
from grpo_watch.store.messages import Notification
from tests.support.process import PATIENCE
from tests.support.receiving import a_notification


@dataclass
class Slow(Receiver):
    """A receiver that answers when ``answers`` is set."""

    name: str
    asked: threading.Event = field(default_factory=threading.Event)
    answers: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)
    sent: list[str] = field(default_factory=list)

    def send(self, notification: Notification) -> DeliveryOutcome:
        self.sent.append(notification.id)
        self.asked.set()
        assert self.answers.wait(PATIENCE)
        return DeliveryOutcome(DeliveryResult.DELIVERED, "well")

    def close(self) -> None:
        self.closed.set()


class Office:
    """A dispatcher and its delivery workers; ``threads`` are all that were begun."""

    def __init__(self) -> None:
        self.dispatcher = NotificationDispatcher()
        self.delivery_workers = DeliveryWorkers(
            lambda: self.dispatcher.outboxes,
            WorkerContext(DaemonSnapshot, lambda: 0.0, lambda: 0.0, lambda: 1.0, lambda: None),
        )
        self.threads: list[threading.Thread] = []

    def spawn(self, name: str, work: Callable[[], None]) -> threading.Thread:
        self.threads.append(threading.Thread(target=work, name=name, daemon=True))
        return self.threads[-1]

    def follow(self, *receivers: Slow) -> None:
        self.dispatcher.follow([RoutedReceiver(each) for each in receivers], StoredDeliveries())
        self.delivery_workers.follow(self.spawn)

    def put(self, name: str, message: Notification) -> None:
        (outbox,) = [each for each in self.dispatcher.outboxes if each.name == name]
        outbox.put([message], 0.0, lambda _: False)
        self.dispatcher.changes()
        self.dispatcher.committed()


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    yield made
    made.delivery_workers.stop()
    for thread in made.threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_each_receiver_has_one_as_long_as_it_is_configured(office: Office) -> None:
    first, second = Slow("first"), Slow("second")
    office.follow(first)
    office.delivery_workers.follow(office.spawn)
    assert [thread.name for thread in office.delivery_workers.threads] == ["sink first"]
    office.follow(second)
    assert [thread.name for thread in office.delivery_workers.threads] == ["sink second"]
    assert first.closed.wait(PATIENCE)
    assert not second.closed.is_set()


def test_a_receiver_that_changes_is_used_from_the_next_message_on(office: Office) -> None:
    """In the same thread, after what was under way."""
    before, after = Slow("hook"), Slow("hook")
    office.follow(before)
    office.put("hook", a_notification(id="1"))
    assert before.asked.wait(PATIENCE)
    office.follow(after)
    office.put("hook", a_notification(id="2", run="other"))
    assert not after.asked.is_set()
    after.answers.set()
    before.answers.set()
    assert after.asked.wait(PATIENCE)
    assert before.closed.is_set()
    assert (before.sent, after.sent) == (["1"], ["2"])
    assert len(office.threads) == 1


def test_one_that_is_removed_and_back_waits_for_what_is_under_way(office: Office) -> None:
    """So no message goes twice, and their order stays."""
    before, after = Slow("hook"), Slow("hook")
    after.answers.set()
    office.follow(before)
    office.put("hook", a_notification(id="1"))
    assert before.asked.wait(PATIENCE)
    office.follow()
    office.dispatcher.changes()
    office.follow(after)
    office.put("hook", a_notification(id="2", run="other"))
    assert not after.asked.is_set()
    before.answers.set()
    assert after.asked.wait(PATIENCE)
    assert before.closed.is_set()
    assert (before.sent, after.sent) == (["1"], ["2"])


def test_none_begins_after_the_end(office: Office) -> None:
    office.delivery_workers.stop()
    office.follow(Slow("late"))
    assert office.delivery_workers.threads == ()
