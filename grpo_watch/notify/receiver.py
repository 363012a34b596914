"""The interface of receivers, their routes, and how one is made from its settings.

A sink of ``type: my_service`` belongs to ``receivers/my_service.py`` (or its ``module``), whose ``receiver(sink, name,
context)`` is the class or a factory. There is no list to edit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any, ClassVar

from grpo_watch.config.fields import Url
from grpo_watch.config.schema import BaseSink, Sink
from grpo_watch.detectors.watcher.events import DeliveryFailing
from grpo_watch.engine.records import Severity
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.store.messages import Notification

OWN_RULE = DeliveryFailing.name()
"""The rule about receivers that get nothing; its alert's key is the receiver."""


class DeliveryResult(Enum):
    """The result of one attempt to send."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """A receiver's answer. ``detail`` is one line without secrets; ``retry_after`` is in seconds.

    ``most_tries`` bounds the attempts if retrying only helps once a person fixes something (None: the default).
    ``reached``: whether the receiver was asked at all; otherwise the outcome proves nothing about its health.
    """

    result: DeliveryResult
    detail: str
    retry_after: float | None = None
    status: int | None = None
    most_tries: int | None = None
    reached: bool = True


NOTHING = DeliveryOutcome(DeliveryResult.DELIVERED, "nothing to send", reached=False)
"""This message is not for this receiver, or there is nothing to refresh."""


class Receiver:
    """One configured sink, called by one thread only; its calls block for at most 10 seconds, and never raise.

    Subclasses describe themselves by the class attributes.

    Args:
        name: without secrets, unique among the configured ones: the ``sink`` label of the metrics.
    """

    chat: ClassVar[bool] = False
    """Whether people read it as a chat; many messages at once then become one by default."""
    keyed: ClassVar[bool] = False
    """Whether it identifies alerts by a key: news of an alert is then sent only after earlier news is stored."""
    metrics_only: ClassVar[bool] = False
    """Whether it takes metrics and no messages, so that a test message would overwrite those of a running watch."""
    for_programs: ClassVar[bool] = False
    """Whether its texts are values for a program, passed on as the run wrote them; else they are for people, and are
    escaped for terminals and chats."""
    pace: float = 0.0
    """Least seconds between two messages."""
    refresh_every: float | None = None
    """Seconds between two calls of ``refresh``; None: it is never called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def send(self, notification: Notification) -> DeliveryOutcome:  # noqa: ARG002
        """Deliver one message."""
        return NOTHING

    def refresh(self, firing: Sequence[Notification], snapshot: DaemonSnapshot, now: float) -> DeliveryOutcome:  # noqa: ARG002
        """Send the firing alerts again, or push the metrics; ``now`` is Unix seconds."""
        return NOTHING

    def close(self) -> None:
        """Close connections."""


@dataclass(frozen=True, slots=True)
class Route:
    """The alerts one receiver wants. ``runs`` and ``rules`` are patterns, of which one must match; empty: all.

    Every entry of ``labels`` must match the run's label of that name. With ``digest`` many waiting messages become one.
    """

    min_severity: Severity = Severity.WARNING
    runs: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    digest: bool = False

    def wants(self, notification: Notification) -> bool:
        """Whether this firing alert is for the receiver."""
        return (
            Severity(notification.severity).rank >= self.min_severity.rank
            and _one_of(self.runs, notification.run)
            and _one_of(self.rules, notification.rule)
            and all(fnmatchcase(notification.labels.get(name, ""), pattern) for name, pattern in self.labels.items())
        )


@dataclass(frozen=True, slots=True)
class RoutedReceiver:
    """A receiver with its route."""

    receiver: Receiver
    route: Route = Route()


@dataclass(frozen=True, slots=True)
class ReceiverContext:
    """A receiver's access to the daemon.

    Args:
        clock: Unix seconds.
        instance: name of this watcher if several push to one place.
        late: returns by how many seconds the engine is late; None if it is on time.
    """

    clock: Callable[[], float]
    instance: str = "grpo-watch"
    late: Callable[[], float | None] = lambda: None


def build(sinks: Sequence[Sink], context: ReceiverContext) -> list[RoutedReceiver]:
    """A receiver for each sink, in their order.

    Raises:
        ConfigError: a secret can't be read, or a library of the sink is not installed.
    """
    made = []
    for sink, name in zip(sinks, names_of(sinks), strict=True):
        module: Any = import_module(f"grpo_watch.notify.receivers.{sink.module or sink.type}")
        receiver: Receiver = module.receiver(sink, name, context)
        made.append(RoutedReceiver(receiver, route_of(sink, digest=receiver.chat)))
    return made


def route_of(sink: BaseSink, *, digest: bool = False) -> Route:
    """The route from a sink's settings; ``digest`` is the default if they don't say."""
    return Route(
        min_severity=sink.min_severity,
        runs=sink.only_runs,
        rules=sink.only_rules,
        labels=sink.only_labels,
        digest=digest if sink.digest is None else sink.digest,
    )


def names_of(sinks: Sequence[Sink]) -> list[str]:
    """A unique name for each sink: from the settings, else its type and address, numbered from the second on."""
    seen: Counter[str] = Counter()
    names = []
    for sink in sinks:
        name = sink.name or _name(sink)
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return names


def _name(sink: Any) -> str:
    url = getattr(sink, "url", None)  # a custom receiver may have any address, or none
    return f"{sink.type}:{url.place()}" if isinstance(url, Url) else str(sink.type)


def _one_of(patterns: Sequence[str], text: str) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)
