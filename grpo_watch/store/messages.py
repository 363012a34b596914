"""Notifications, and messages: a notification on its way to one receiver, from the queue to its final state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import msgspec

from grpo_watch.engine.records import Scalar
from grpo_watch.store.codec import DECODE_ERRORS

FIRING, RESOLVED = "firing", "resolved"
"""Values of ``Notification.status``."""
Episode: TypeAlias = tuple[str, str, str]
"""Run, rule and key of an alert, which has at most one open episode at a time."""


@dataclass(frozen=True, slots=True)
class Notification:
    """An alert that fires, one that resolved, or a digest of many.

    ``id`` is the transition's, the same after any restart; a digest's is a hash of its parts. ``key`` separates the
    alerts of one rule. ``step`` is where it fired or resolved, ``first_step`` the episode's first breaching step.
    ``cause`` is the likely cause in words (empty: unknown), ``caused_by`` the rule that explains this one.
    ``started`` is when the episode fired, ``ended`` when it resolved, ``at`` when this was made (Unix seconds).
    ``labels`` are the user's, ``page`` an absolute address or empty, ``runbook`` the address of the rule's runbook or
    the command that shows it. ``series`` holds at most 3 metrics of at most 24 points each, oldest first, for a
    sparkline. ``was`` is the severity in the receiver's last notification if the alert got worse since; else empty.
    ``parts`` are the notifications of a digest and have none themselves.
    """

    id: str
    status: str
    run: str
    rule: str
    severity: str
    summary: str
    started: float
    at: float
    attempt: int = 1
    key: str = ""
    step: int = 0
    first_step: int = 0
    max_steps: int | None = None
    message: str = ""
    evidence: Mapping[str, Scalar] = field(default_factory=dict)
    hint: str = ""
    cause: str = ""
    caused_by: str | None = None
    ended: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    page: str = ""
    runbook: str = ""
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    parts: tuple[Notification, ...] = ()
    was: str = ""
    headline: str = ""
    why: str = ""
    language: str = "en"

    @property
    def episode(self) -> Episode:
        """The identity of its alert."""
        return self.run, self.rule, self.key


class MessageState(Enum):
    """A message's state in its queue, or its final state; the values are used in metrics and in the state file.

    A waiting message is stored as ``waiting``. An open episode is stored as the message that opened it.
    """

    GATHERING = "gathering"
    """Found firing at the start: waits until all runs are read …"""
    TOGETHER = "together"
    """… and then goes out in a digest with the other waiting messages."""
    WAITING = "waiting"
    BUNDLED = "bundled"
    """Part of a digest."""
    ALONE = "alone"
    """A digest with it was refused: each part is sent by itself."""
    DELIVERED = "delivered"
    PASSED = "passed"
    """Not sent: it is not for this receiver, or its alert fired before the watch began."""
    REFUSED = "refused"
    EXPIRED = "expired"
    """Given up after many attempts."""
    DROPPED = "dropped"
    """Pushed out of a full queue."""
    DAMAGED = "damaged"
    NOTIFIED = "told"
    """The receiver got the firing notification of an open episode …"""
    MUTED = "muted"
    """… or did not, because of a mute."""


@dataclass(slots=True, eq=False)
class Message:
    """A notification for one receiver.

    ``number`` orders the receiver's queue, ``at`` is when it was queued (Unix seconds), ``tries`` how often it was
    tried without success. Messages of one ``bundle`` (0: none) are sent as one. ``due`` is when it may be tried
    (monotonic seconds, 0: at once). ``parts`` are the messages of a digest, which is not stored itself.
    """

    sink: str
    notification: Notification
    state: MessageState = MessageState.WAITING
    number: int = 0
    at: float = 0.0
    tries: int = 0
    bundle: int = 0
    due: float = 0.0
    parts: tuple[Message, ...] = ()

    @property
    def id(self) -> str:
        """The notification's id."""
        return self.notification.id

    @property
    def rows(self) -> tuple[Message, ...]:
        """The stored messages: its parts, or itself."""
        return self.parts or (self,)

    @property
    def together(self) -> bool:
        """Whether it is to be sent in a digest."""
        return self.state in {MessageState.GATHERING, MessageState.TOGETHER}

    def kept(self, tries: int, bundle: int) -> Message:
        """The message as the next start finds it, with this many attempts and in this digest."""
        waits = MessageState.GATHERING if self.together else MessageState.WAITING
        state = MessageState.BUNDLED if bundle else waits
        return Message(self.sink, self.notification, state, self.number, self.at, tries, bundle)


_DECODER = msgspec.msgpack.Decoder(Notification)


def unpack(data: bytes) -> Notification | None:
    """Decode a notification; None if the bytes are damaged."""
    try:
        return _DECODER.decode(data)
    except DECODE_ERRORS:
        return None
