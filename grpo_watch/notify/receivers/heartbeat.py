"""Requests a URL while the watcher is well; the service behind it notifies people when the requests stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grpo_watch.config.sinks import HeartbeatSink
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult, ReceiverContext
from grpo_watch.notify.receivers.http import HttpAccess, HttpReceiver, address
from grpo_watch.store.messages import Notification


class HeartbeatReceiver(HttpReceiver):
    """One address to ask (GET), as healthchecks.io and its like want it; alerts are no sign of its ill health.

    Args:
        name, url, clock: as of every ``HttpReceiver``.
        every: seconds between two requests.
        late: by how many seconds the engine is late; None when it is not. A watcher that is stuck keeps silent.
    """

    def __init__(
        self,
        name: str,
        url: Callable[[], str],
        every: float,
        late: Callable[[], float | None],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(name, url, HttpAccess(), clock)
        self.refresh_every, self._late = every, late

    def refresh(self, firing: Sequence[Notification], snapshot: DaemonSnapshot, now: float) -> DeliveryOutcome:  # noqa: ARG002
        """Ask the address, unless the engine is late."""
        late = self._late()
        if late is not None:
            return DeliveryOutcome(DeliveryResult.RETRY, f"no heartbeat: the engine is {late:.0f} s late")
        return self._ask("GET")


def receiver(sink: HeartbeatSink, name: str, context: ReceiverContext) -> HeartbeatReceiver:
    """The receiver of a sink."""
    return HeartbeatReceiver(name, address(None, sink.url_file), sink.every, context.late, context.clock)
