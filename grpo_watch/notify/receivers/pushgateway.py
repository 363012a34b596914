"""Pushes the metrics to a Pushgateway; a last sample, in which no run is active, stays until it is removed."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from grpo_watch.config.sinks import PushgatewaySink, Sink
from grpo_watch.notify.receiver import DeliveryOutcome, ReceiverContext, names_of
from grpo_watch.notify.receivers.http import HttpAccess, HttpEndpoint
from grpo_watch.notify.receivers.metrics_text import MetricsReceiver

JOB = "grpo-watch"
TEXT = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}


def receiver(sink: PushgatewaySink, name: str, context: ReceiverContext) -> MetricsReceiver:
    """The receiver of a sink: one group, named after this watcher unless the sink names it, replaced each time."""
    url = group_url(sink.url.reveal(), sink.instance or context.instance)
    http = HttpEndpoint(HttpAccess.of(sink), context.clock)
    return MetricsReceiver(name, lambda body: http.send("PUT", url, body, TEXT), sink.every, context.clock, http.close)


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
