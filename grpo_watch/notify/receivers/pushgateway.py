"""Pushes the metrics to a Pushgateway; a last sample, in which no run is active, stays until it is removed."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from grpo_watch.config.sinks import PushgatewaySink, Sink
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.notify.receiver import DeliveryOutcome, ReceiverContext, names_of
from grpo_watch.notify.receivers.http import HttpAccess, HttpEndpoint, HttpReceiver
from grpo_watch.notify.receivers.metrics_text import Exposition
from grpo_watch.store.messages import Notification

JOB = "grpo-watch"
TEXT = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}


class PushgatewayReceiver(HttpReceiver):
    """One group of a Pushgateway, replaced as a whole each time; alerts are among the metrics.

    Args:
        name, access, clock: as of every ``HttpReceiver``.
        url: the address of the group, see ``group_url``.
        every: seconds between two pushes.
    """

    metrics_only = True

    def __init__(self, name: str, url: str, access: HttpAccess, every: float, clock: Callable[[], float]) -> None:
        super().__init__(name, lambda: url, access, clock)
        self.refresh_every = every
        self._exposition = Exposition(clock)

    def refresh(self, firing: Sequence[Notification], snapshot: DaemonSnapshot, now: float) -> DeliveryOutcome:  # noqa: ARG002
        """Replace what is there."""
        return self._ask("PUT", self._exposition.render(snapshot), TEXT)

    def close(self) -> None:
        """Leave a last sample in which no run is active."""
        last = self._exposition.last()
        if last is not None:
            self._ask("PUT", last, TEXT)
        super().close()


def receiver(sink: PushgatewaySink, name: str, context: ReceiverContext) -> PushgatewayReceiver:
    """The receiver of a sink; its group is named after this watcher unless the sink names it."""
    url = group_url(sink.url.reveal(), sink.instance or context.instance)
    return PushgatewayReceiver(name, url, HttpAccess.of(sink), sink.every, context.clock)


@dataclass(frozen=True, slots=True)
class PushedGroup:
    """A group in a Pushgateway; ``instance`` is empty where it is named after the state directory."""

    name: str
    gateway: str
    instance: str
    access: HttpAccess

    def url(self, instance: str) -> str:
        """The group's address."""
        return group_url(self.gateway, instance)


def pushed_groups(sinks: Sequence[Sink]) -> list[PushedGroup]:
    """What ``run`` makes of Pushgateways, for who removes it.

    Raises:
        ConfigError: a header's file can't be read.
    """
    return [
        PushedGroup(name, sink.url.reveal(), sink.instance, HttpAccess.of(sink))
        for sink, name in zip(sinks, names_of(sinks), strict=True)
        if isinstance(sink, PushgatewaySink)
    ]


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
