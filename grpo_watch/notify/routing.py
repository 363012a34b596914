"""Says which notifications a receiver wants, when it wants to be left alone, and which findings are muted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timezone, tzinfo
from fnmatch import fnmatchcase

from grpo_watch.engine.records import Severity
from grpo_watch.notify.notification import Notification, Receiver


@dataclass(frozen=True, slots=True)
class QuietWindow:
    """Hours in which messages wait, unless they are at least as severe as ``unless``.

    ``start`` and ``end`` are times of day in ``zone`` (None: the machine's own); an end before the start is the next
    day's.
    """

    start: time
    end: time
    zone: tzinfo | None = None
    unless: Severity = Severity.CRITICAL

    def holds(self, severity: str, now: float) -> bool:
        """Whether a message of this severity waits at ``now`` (Unix seconds)."""
        return self._covers(now) and Severity(severity).rank < self.unless.rank

    def _covers(self, now: float) -> bool:
        moment = datetime.fromtimestamp(now, timezone.utc).astimezone(self.zone).time()
        if self.start <= self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end


@dataclass(frozen=True, slots=True)
class Route:
    """What one receiver wants. ``runs`` and ``rules`` are patterns, of which one must match; empty: all.

    Every entry of ``labels`` must match the run's label of that name. ``per_minute`` bounds the messages. With
    ``digest`` many waiting messages become one.
    """

    min_severity: Severity = Severity.WARNING
    runs: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    quiet: QuietWindow | None = None
    per_minute: float | None = None
    digest: bool = False

    def wants(self, notification: Notification) -> bool:
        """Whether this firing alert concerns the receiver."""
        return (
            Severity(notification.severity).rank >= self.min_severity.rank
            and _one_of(self.runs, notification.run)
            and _one_of(self.rules, notification.rule)
            and all(fnmatchcase(notification.labels.get(name, ""), pattern) for name, pattern in self.labels.items())
        )

    def holds(self, notification: Notification, now: float) -> bool:
        """Whether the receiver wants to be left alone with it at ``now`` (Unix seconds)."""
        return self.quiet is not None and self.quiet.holds(notification.severity, now)


@dataclass(frozen=True, slots=True)
class MutedFindings:
    """Findings that are kept but not sent until ``until`` (Unix seconds; None: permanently)."""

    run: str = "*"
    rule: str = "*"
    until: float | None = None

    def covers(self, notification: Notification, now: float) -> bool:
        """Whether this mute keeps the notification back at ``now``."""
        in_force = self.until is None or now < self.until
        return in_force and fnmatchcase(notification.run, self.run) and fnmatchcase(notification.rule, self.rule)


@dataclass(frozen=True, slots=True)
class RoutedReceiver:
    """A receiver with what it wants."""

    receiver: Receiver
    route: Route = Route()


def _one_of(patterns: Sequence[str], text: str) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)
