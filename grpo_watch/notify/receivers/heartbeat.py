"""Requests a URL while the watcher is well; the service behind it notifies people when the requests stop."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_watch.config.schema import HeartbeatSink
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.notify.receiver import NOTHING, DeliveryOutcome, DeliveryResult, ReceiverContext
from grpo_watch.notify.receivers.http import HttpReceiver, HttpRequest
from grpo_watch.store.messages import Notification


class HeartbeatReceiver(HttpReceiver):
    """One address to request (GET), for healthchecks.io and similar services; it takes no alerts."""

    def __init__(self, sink: HeartbeatSink, name: str, context: ReceiverContext) -> None:
        super().__init__(sink, name, context)
        self.refresh_every, self._late = sink.every, context.late

    def send(self, notification: Notification) -> DeliveryOutcome:  # noqa: ARG002
        """Do nothing: it takes no messages."""
        return NOTHING

    def refresh(self, firing: Sequence[Notification], snapshot: DaemonSnapshot, now: float) -> DeliveryOutcome:  # noqa: ARG002
        """Request the address, unless the engine is late."""
        late = self._late()
        if late is not None:
            return DeliveryOutcome(DeliveryResult.RETRY, f"no heartbeat: the engine is {late:.0f} s late")
        return self._ask(lambda: HttpRequest(method="GET"))


receiver = HeartbeatReceiver
