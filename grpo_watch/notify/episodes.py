"""The open alerts of one receiver: decides which firing and resolved notifications it gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from grpo_watch.engine.records import Severity
from grpo_watch.notify.notification import FIRING, OWN_RULE, RESOLVED, Notification
from grpo_watch.notify.queue import episode_of, pack, unpack
from grpo_watch.notify.routing import Route
from grpo_watch.store.deliveries import DeliveredAlert, Episode

DELIVERED, MUTED, PASSED = "told", "muted", "passed"
"""What a receiver got of an open episode: the firing notification, nothing because of a mute, nothing as it was old."""

Mute = Callable[[Notification], bool]


class OpenEpisodes:
    """The open episodes of one receiver. Resolved notifications go only to receivers that got the firing one.

    ``changed`` collects what has to be stored; the caller that stores it empties it.

    Args:
        name: the receiver's; it gets no notification of its own failures.
        route: what it wants.
    """

    def __init__(self, name: str, route: Route) -> None:
        self._name, self._route = name, route
        self._open: dict[Episode, tuple[str, Notification]] = {}
        self.changed: dict[tuple[str, Episode], DeliveredAlert | None] = {}
        self._muted = 0

    def load(self, stored: DeliveredAlert) -> None:
        """Take an episode as it was stored; a damaged one is dropped, and sent again if it still fires."""
        notification = unpack(stored.data)
        if notification is not None:
            self._open[episode_of(notification)] = (stored.state, notification)
            self._muted += stored.state == MUTED

    def follow(self, route: Route) -> None:
        """Use another route; the resolve of what the receiver got is still sent."""
        self._route = route

    def news(self, notification: Notification, muted: Mute) -> Notification | None:
        """The notification that the receiver gets of this change; None: none."""
        if notification.status == RESOLVED:
            return self._resolved(notification)
        if not self._wanted(notification):
            return None
        state, before = self._open.get(episode_of(notification), (None, notification))
        if muted(notification):
            self._put(notification, state or MUTED)
            return None
        self._put(notification, DELIVERED)
        return replace(notification, was=before.severity) if state == DELIVERED else notification

    def found(self, notification: Notification, muted: Mute, *, send: bool) -> Notification | None:
        """The same for an alert that was found firing: None where the receiver got it, or ``send`` is False.

        It is sent again where it got worse while the receiver was not configured.
        """
        if not self._wanted(notification):
            return None
        state, before = self._open.get(episode_of(notification), (None, notification))
        worse = notification.id != before.id and Severity(notification.severity).rank > Severity(before.severity).rank
        if state == DELIVERED and worse and send and not muted(notification):
            return self.news(notification, muted)
        if state is not None:
            return None
        if not send or muted(notification):
            self._put(notification, MUTED if send else PASSED)
            return None
        self._put(notification, DELIVERED)
        return notification

    def unmuted(self, muted: Mute) -> list[Notification]:
        """Alerts that still fire and that no mute keeps back any more."""
        if not self._muted:
            return []
        kept = [notification for state, notification in self._open.values() if state == MUTED]
        free = [notification for notification in kept if not muted(notification)]
        for notification in free:
            self._put(notification, DELIVERED)
        return free

    def open_of(self, run: str) -> list[Notification]:
        """The open episodes of a run, whether the receiver got them or not."""
        return [notification for (of, _, _), (_, notification) in self._open.items() if of == run]

    def firing(self) -> Iterator[Notification]:
        """What the receiver got as firing and not as resolved, in the order of sending."""
        return (notification for state, notification in self._open.values() if state == DELIVERED)

    def _wanted(self, notification: Notification) -> bool:
        return self._route.wants(notification) and (notification.rule, notification.key) != (OWN_RULE, self._name)

    def _resolved(self, notification: Notification) -> Notification | None:
        place = episode_of(notification)
        state, fired = self._open.pop(place, (None, notification))
        if state is None:
            return None
        self.changed[self._name, place] = None
        self._muted -= state == MUTED
        severity = fired.severity
        return replace(notification, started=fired.started, severity=severity) if state == DELIVERED else None

    def _put(self, notification: Notification, state: str) -> None:
        place = episode_of(notification)
        before, first = self._open.get(place, (None, notification))
        if before == DELIVERED and notification.status == FIRING:
            notification = replace(notification, started=first.started)  # it got worse
        self._muted += (state == MUTED) - (before == MUTED)
        self._open[place] = (state, notification)
        self.changed[self._name, place] = DeliveredAlert(self._name, *place, state, pack(notification))
