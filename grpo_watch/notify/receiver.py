"""Receivers: the contract that each keeps, what it wants, and how one is made from its settings.

A sink of ``type: my_service`` is for ``receivers/my_service.py`` (or its ``module``), whose ``receiver(sink, name,
context)`` is the class, or makes one. No list has to be edited.
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
"""The alert of a receiver that gets nothing; its key is the receiver."""


class DeliveryResult(Enum):
    """What became of one attempt to send."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """A receiver's answer. ``detail`` is one line without any secret; ``retry_after`` is in seconds.

    ``most_tries`` bounds the attempts where trying again only helps once a person fixes something (None: as usual).
    ``reached``: whether there was anything to ask the receiver; an answer without proves nothing about how it does.
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
    """One configured sink, called by one thread only; its calls block, for at most 10 seconds, and never raise.

    A kind of receiver says what it is by the class attributes, and overrides what it does.

    Args:
        name: without any secret, unique among the configured ones: the ``sink`` label of the metrics.
    """

    chat: ClassVar[bool] = False
    """Whether people read it as a chat, where many messages at once become one by default."""
    keyed: ClassVar[bool] = False
    """Whether it knows alerts by a key: no news of an alert is sent before the news until then is stored."""
    metrics_only: ClassVar[bool] = False
    """Whether it takes the metrics and no messages, so that a test message would overwrite those of a running watch."""
    for_programs: ClassVar[bool] = False
    """Whether its texts are values for a program, which get them as the run wrote them; else they are for people, and
    nothing in them is obeyed by a terminal or a chat."""
    pace: float = 0.0
    """Least seconds between two messages."""
    refresh_every: float | None = None
    """Seconds after which ``refresh`` wants to be called again; None: never."""

    def __init__(self, name: str) -> None:
        self.name = name

    def send(self, notification: Notification) -> DeliveryOutcome:  # noqa: ARG002
        """Deliver one message."""
        return NOTHING

    def refresh(self, firing: Sequence[Notification], snapshot: DaemonSnapshot, now: float) -> DeliveryOutcome:  # noqa: ARG002
        """Send what fires once more, or push the metrics; ``now`` is Unix seconds."""
        return NOTHING

    def close(self) -> None:
        """Free connections."""


@dataclass(frozen=True, slots=True)
class Route:
    """What one receiver wants. ``runs`` and ``rules`` are patterns, of which one must match; empty: all.

    Every entry of ``labels`` must match the run's label of that name. With ``digest`` many waiting messages
    become one.
    """

    min_severity: Severity = Severity.WARNING
    runs: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    digest: bool = False

    def wants(self, notification: Notification) -> bool:
        """Whether this firing alert concerns the receiver."""
        return (
            Severity(notification.severity).rank >= self.min_severity.rank
            and _one_of(self.runs, notification.run)
            and _one_of(self.rules, notification.rule)
            and all(fnmatchcase(notification.labels.get(name, ""), pattern) for name, pattern in self.labels.items())
        )


@dataclass(frozen=True, slots=True)
class RoutedReceiver:
    """A receiver with what it wants."""

    receiver: Receiver
    route: Route = Route()


@dataclass(frozen=True, slots=True)
class ReceiverContext:
    """What receivers need of the daemon.

    Args:
        clock: Unix seconds.
        instance: names this watcher where several push to one place.
        late: by how many seconds the engine is late; None when it is not.
    """

    clock: Callable[[], float]
    instance: str = "grpo-watch"
    late: Callable[[], float | None] = lambda: None


def build(sinks: Sequence[Sink], context: ReceiverContext) -> list[RoutedReceiver]:
    """A receiver for each sink, in their order.

    Raises:
        ConfigError: a secret can't be read, or a library that the sink needs is not installed.
    """
    made = []
    for sink, name in zip(sinks, names_of(sinks), strict=True):
        module: Any = import_module(f"grpo_watch.notify.receivers.{sink.module or sink.type}")
        receiver: Receiver = module.receiver(sink, name, context)
        made.append(RoutedReceiver(receiver, route_of(sink, digest=receiver.chat)))
    return made


def route_of(sink: BaseSink, *, digest: bool = False) -> Route:
    """The route that a sink's settings ask for; ``digest`` is the default where they don't say."""
    return Route(
        min_severity=sink.min_severity,
        runs=sink.only_runs,
        rules=sink.only_rules,
        labels=sink.only_labels,
        digest=digest if sink.digest is None else sink.digest,
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


def _one_of(patterns: Sequence[str], text: str) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)
