"""Requests a URL while the watcher is well; the service behind it notifies people when the requests stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grpo_watch.config.sinks import HeartbeatSink
from grpo_watch.errors import ConfigError
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.notify.notification import NOTHING, DeliveryOutcome, DeliveryResult, Notification
from grpo_watch.notify.receiver_context import ReceiverContext, address
from grpo_watch.notify.receivers.http import HttpAccess, HttpEndpoint


class HeartbeatReceiver:
    """One address to ask (GET), as healthchecks.io and its like want it.

    Args:
        name: what metrics call it.
        url: gives the address; raises ``ConfigError``.
        every: seconds between two requests.
        late: by how many seconds the engine is late; None when it is not. A watcher that is stuck keeps silent.
        clock: Unix seconds.
    """

    pace = 0.0
    keyed = False

    def __init__(
        self,
        name: str,
        url: Callable[[], str],
        every: float,
        late: Callable[[], float | None],
        clock: Callable[[], float],
    ) -> None:
        self.name, self.refresh_every = name, every
        self._url, self._late = url, late
        self._http = HttpEndpoint(HttpAccess({}), clock)

    def send(self, notification: Notification) -> DeliveryOutcome:  # noqa: ARG002
        """Nothing: that something fires is no sign of ill health of the watcher."""
        return NOTHING

    def refresh(self, firing: Sequence[Notification], snapshot: DaemonSnapshot, now: float) -> DeliveryOutcome:  # noqa: ARG002
        """Ask the address, unless the engine is late."""
        late = self._late()
        if late is not None:
            return DeliveryOutcome(DeliveryResult.RETRY, f"no heartbeat: the engine is {late:.0f} s late")
        try:
            return self._http.send("GET", self._url())
        except ConfigError as problem:
            return DeliveryOutcome(DeliveryResult.RETRY, str(problem))

    def close(self) -> None:
        """Free the connections."""
        self._http.close()


def receiver(sink: HeartbeatSink, name: str, context: ReceiverContext) -> HeartbeatReceiver:
    """The receiver of a sink."""
    return HeartbeatReceiver(name, address(None, sink.url_file), sink.every, context.late, context.clock)
