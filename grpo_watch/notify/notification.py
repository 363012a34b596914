"""Notifications and the outcome of sending one: the contract between delivery and every receiver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from grpo_watch.detectors.watcher.delivery_failing import DeliveryFailing
from grpo_watch.engine.records import Scalar
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot

FIRING, RESOLVED = "firing", "resolved"
"""Values of ``Notification.status``."""
TEST_RULE = "notify-test"
"""What `grpo-watch notify test` sends is about."""
OWN_RULE = DeliveryFailing.name()
"""The alert of a receiver that gets nothing; its key is the receiver."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One message: an alert that fires, one that resolved, or a digest of many.

    ``id`` is the transition's, the same after any restart; a digest's is a hash of its parts. ``key`` separates the
    alerts of one rule. ``step`` is where it fired or resolved, ``first_step`` the episode's first breaching step.
    ``cause`` is the likely cause in words (empty: unknown), ``caused_by`` the rule that explains this one.
    ``started`` is when the episode fired, ``ended`` when it resolved, ``at`` when this was made (Unix seconds).
    ``labels`` are the user's, ``page`` an absolute address or empty, ``runbook`` the address of the rule's runbook or
    the command that shows it. ``series`` holds at most 3 metrics of at most 24 points each, oldest first, for a
    sparkline. ``was`` is the severity of the receiver's last notification where the alert got worse since; else empty.
    ``parts`` makes it a digest; a part has none itself.
    """

    id: str
    status: str
    run: str
    attempt: int
    rule: str
    key: str
    severity: str
    step: int
    first_step: int
    max_steps: int | None
    summary: str
    message: str
    evidence: Mapping[str, Scalar]
    hint: str
    cause: str
    caused_by: str | None
    started: float
    ended: float | None
    at: float
    labels: Mapping[str, str] = field(default_factory=dict)
    page: str = ""
    runbook: str = ""
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    parts: tuple[Notification, ...] = ()
    was: str = ""


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


class Receiver(Protocol):
    """One configured sink, called by one thread only; its calls block, for at most 10 seconds, and never raise."""

    @property
    def keyed(self) -> bool:
        """Whether it knows alerts by a key: no news of an alert is sent before the news until then is stored."""

    @property
    def name(self) -> str:
        """A name without any secret, unique among the configured ones: the ``sink`` label of the metrics."""

    @property
    def pace(self) -> float:
        """Least seconds between two messages."""

    @property
    def refresh_every(self) -> float | None:
        """Seconds after which ``refresh`` wants to be called again; None: never."""

    def send(self, notification: Notification) -> DeliveryOutcome:
        """Deliver one message."""

    def refresh(self, firing: Sequence[Notification], snapshot: DaemonSnapshot, now: float) -> DeliveryOutcome:
        """Send what fires once more, or push the metrics; ``now`` is Unix seconds."""

    def close(self) -> None:
        """Free connections."""
