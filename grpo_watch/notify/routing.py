"""Says which notifications a receiver wants, and which findings are muted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from grpo_watch.engine.records import Severity
from grpo_watch.notify.notification import Notification, Receiver


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
