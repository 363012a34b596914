"""Turns the settings of sinks into receivers, each with its route.

A sink of ``type: my_service`` is for ``receivers/my_service.py``, whose ``receiver(sink, name, context)`` makes one.
No list has to be edited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from grpo_watch.config.routing import Routing
from grpo_watch.config.secrets import Url
from grpo_watch.config.sinks import PushgatewaySink, Sink
from grpo_watch.notify import receivers
from grpo_watch.notify.notification import Receiver
from grpo_watch.notify.receiver_context import ReceiverContext, access_of
from grpo_watch.notify.receivers.http import HttpAccess
from grpo_watch.notify.receivers.pushgateway import group_url
from grpo_watch.notify.routing import Route, RoutedReceiver


def build(sinks: Sequence[Sink], context: ReceiverContext) -> list[RoutedReceiver]:
    """A receiver for each sink, in their order.

    Raises:
        ConfigError: a secret can't be read, or a library that the sink needs is not installed.
    """
    names = names_of(sinks)
    return [
        RoutedReceiver(_receiver(sink, name, context), route_of(sink)) for sink, name in zip(sinks, names, strict=True)
    ]


def _receiver(sink: Sink, name: str, context: ReceiverContext) -> Receiver:
    module: Any = import_module(f"{receivers.__name__}.{sink.type}")
    made: Receiver = module.receiver(sink, name, context)
    return made


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
    """What ``build`` makes of Pushgateways, for who removes it.

    Raises:
        ConfigError: a header's file can't be read.
    """
    return [
        PushedGroup(name, sink.url.reveal(), sink.instance, access_of(sink))
        for sink, name in zip(sinks, names_of(sinks), strict=True)
        if isinstance(sink, PushgatewaySink)
    ]


def route_of(routing: Routing) -> Route:
    """The route that a sink's settings ask for."""
    return Route(
        min_severity=routing.min_severity,
        runs=routing.only_runs,
        rules=routing.only_rules,
        labels=routing.only_labels,
        digest=routing.chat if routing.digest is None else routing.digest,
    )


def names_of(sinks: Sequence[Sink]) -> list[str]:
    """A name for each, unique: what the settings call it, else its type and address, numbered from the second on."""
    seen: Counter[str] = Counter()
    names = []
    for sink in sinks:
        name = sink.name or _name(sink)
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return names


def _name(sink: Any) -> str:
    url = getattr(sink, "url", None)  # a kind of its own may have any address, or none
    return f"{sink.type}:{url.place()}" if isinstance(url, Url) else str(sink.type)
