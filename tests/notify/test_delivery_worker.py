"""A receiver's thread, turned by hand: it sends, refreshes, and survives a receiver that breaks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.notify.delivery_worker import DeliveryWorker, WorkerContext
from grpo_watch.notify.outbox import Outbox
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult, Receiver, RoutedReceiver
from grpo_watch.store.messages import Notification
from tests.support.process import PATIENCE
from tests.support.receiving import a_notification


@dataclass
class RecordingReceiver(Receiver):
    """A receiver that keeps what it is given; ``broken`` is raised."""

    name: str = "hook"
    refresh_every: float | None = None
    broken: Exception | None = None
    result: DeliveryResult = DeliveryResult.DELIVERED
    sent: list[str] = field(default_factory=list)
    refreshed: list[float] = field(default_factory=list)
    closed: bool = False

    def send(self, notification: Notification) -> DeliveryOutcome:
        if self.broken:
            raise self.broken
        self.sent.append(notification.id)
        return DeliveryOutcome(self.result, "well")

    def refresh(self, firing: Sequence[Notification], snapshot: DaemonSnapshot, now: float) -> DeliveryOutcome:  # noqa: ARG002
        self.refreshed.append(now)
        return DeliveryOutcome(self.result, "well")

    def close(self) -> None:
        self.closed = True


class Turned:
    """A delivery worker whose clock stands still unless ``now`` is set."""

    def __init__(self, receiver: RecordingReceiver) -> None:
        self.now = 0.0
        self.outbox = Outbox(RoutedReceiver(receiver), lambda: 1.0)
        around = WorkerContext(DaemonSnapshot, lambda: self.now, lambda: self.now, lambda: 1.0, lambda: None)
        self.worker_thread = DeliveryWorker(self.outbox, around)

    def put(self, *messages: Notification) -> None:
        self.outbox.put(messages, self.now, lambda _: False)
        self.outbox.changes()
        self.outbox.committed()


def test_a_receiver_that_raises_loses_that_message_only() -> None:
    """It is counted as refused, so that the same message does not end the watch at each start."""
    receiver = RecordingReceiver(broken=ValueError("bad"))
    turned = Turned(receiver)
    turned.put(a_notification(id="bad"))
    turned.worker_thread.step()
    receiver.broken = None
    turned.put(a_notification(id="good", run="other"))
    turned.worker_thread.step()
    assert receiver.sent == ["good"]
    assert turned.outbox.counts == {"refused": 1, "delivered": 1}
    assert [*turned.outbox.reports().values()] == ["internal error: ValueError"]


@pytest.mark.parametrize("trouble", [OSError(24, "Too many open files"), ImportError("httpx"), MemoryError()], ids=repr)
def test_a_machine_that_fails_a_receiver_loses_nothing(trouble: Exception) -> None:
    """It may be the first message, for which the client is imported: the same one is sent again."""
    receiver = RecordingReceiver(broken=trouble)
    turned = Turned(receiver)
    turned.put(a_notification(id="first"))
    turned.worker_thread.step()
    receiver.broken, turned.now = None, 1.0
    turned.worker_thread.step()
    assert receiver.sent == ["first"]
    assert turned.outbox.counts == {"retried": 1, "delivered": 1}


def test_refreshed_as_often_as_it_wants() -> None:
    """At once, and then every 15 s."""
    receiver = RecordingReceiver(refresh_every=15.0)
    turned = Turned(receiver)
    for moment in (0.0, 1.0, 14.9, 15.0, 20.0, 30.0):
        turned.now = moment
        assert 0 < turned.worker_thread.step() <= 1.0
    assert receiver.refreshed == [0.0, 15.0, 30.0]
    assert turned.outbox.counts == {"refreshed": 3}


def test_a_refresh_that_fails_is_tried_again_soon() -> None:
    """After 1 s, 2 s and so on, never later than it wants."""
    receiver = RecordingReceiver(refresh_every=15.0, result=DeliveryResult.RETRY)
    turned = Turned(receiver)
    while turned.now < 60.0:
        turned.worker_thread.step()
        turned.now += 0.5
    assert receiver.refreshed == [0.0, 1.0, 3.0, 7.0, 15.0, 30.0, 45.0]


def test_it_ends_when_asked_to_and_reports_a_last_time_how_things_are() -> None:
    receiver = RecordingReceiver(refresh_every=1_000.0)
    turned = Turned(receiver)
    thread = threading.Thread(target=turned.worker_thread.run)
    thread.start()
    turned.worker_thread.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert receiver.closed
    assert receiver.refreshed
