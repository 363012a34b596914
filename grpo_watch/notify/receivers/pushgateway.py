"""Pushes the metrics to a Pushgateway; a last sample, in which no run is active, stays until it is removed."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from urllib.parse import quote

from grpo_watch.config.sinks import PushgatewaySink
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.notify.notification import NOTHING, DeliveryOutcome, Notification
from grpo_watch.notify.receiver_context import ReceiverContext, access_of
from grpo_watch.notify.receivers.http import HttpAccess, HttpEndpoint
from grpo_watch.notify.receivers.metrics_text import Exposition

JOB = "grpo-watch"
TEXT = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}


class PushgatewayReceiver:
    """One group of a Pushgateway, replaced as a whole each time.

    Args:
        name: what metrics call it.
        url: the address of the group, see ``group_url``.
        access: headers and authorities.
        every: seconds between two pushes.
        clock: Unix seconds.
    """

    pace = 0.0
    keyed = False

    def __init__(self, name: str, url: str, access: HttpAccess, every: float, clock: Callable[[], float]) -> None:
        self.name, self.refresh_every = name, every
        self._url = url
        self._http = HttpEndpoint(access, clock)
        self._exposition = Exposition(clock)

    def send(self, notification: Notification) -> DeliveryOutcome:  # noqa: ARG002
        """Nothing: alerts are among the metrics."""
        return NOTHING

    def refresh(self, firing: Sequence[Notification], snapshot: DaemonSnapshot, now: float) -> DeliveryOutcome:  # noqa: ARG002
        """Replace what is there."""
        return self._http.send("PUT", self._url, self._exposition.render(snapshot), TEXT)

    def close(self) -> None:
        """Leave a last sample in which no run is active."""
        last = self._exposition.last()
        if last is not None:
            self._http.send("PUT", self._url, last, TEXT)
        self._http.close()


def receiver(sink: PushgatewaySink, name: str, context: ReceiverContext) -> PushgatewayReceiver:
    """The receiver of a sink; its group is named after this watcher unless the sink names it."""
    url = group_url(sink.url.reveal(), sink.instance or context.instance)
    return PushgatewayReceiver(name, url, access_of(sink), sink.every, context.clock)


def group_url(url: str, instance: str) -> str:
    """Where this watcher's group is; an instance with a slash is encoded as Pushgateway wants it."""
    if "/" in instance:
        encoded = base64.urlsafe_b64encode(instance.encode()).decode()
        return f"{url.rstrip('/')}/metrics/job/{JOB}/instance@base64/{encoded}"
    return f"{url.rstrip('/')}/metrics/job/{JOB}/instance/{quote(instance, safe='')}"


def remove(url: str, access: HttpAccess, clock: Callable[[], float]) -> DeliveryOutcome:
    """Remove a group."""
    http = HttpEndpoint(access, clock)
    try:
        return http.send("DELETE", url)
    finally:
        http.close()
