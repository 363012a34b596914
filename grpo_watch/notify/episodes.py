"""A receiver's open episodes, which decide what it is sent, and whether it is failing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from grpo_watch.engine.records import Severity
from grpo_watch.notify.receiver import OWN_RULE, Route
from grpo_watch.store.messages import FIRING, RESOLVED, Episode, Message, MessageState, Notification

Mute = Callable[[Notification], bool]


class OpenEpisodes:
    """The open episodes of one receiver. Resolved notifications go only to receivers that got the firing one.

    ``changed`` collects changes to be stored; the caller that stores them empties it.

    Args:
        name: the receiver's name; it gets no notification of its own failures.
        route: the alerts it wants.
    """

    def __init__(self, name: str, route: Route) -> None:
        self._name, self._route = name, route
        self._open: dict[Episode, Message] = {}
        self.changed: dict[tuple[str, Episode], Message | None] = {}
        self._muted = 0

    def load(self, stored: Message) -> None:
        """Load a stored episode."""
        self._open[stored.notification.episode] = stored
        self._muted += stored.state is MessageState.MUTED

    def follow(self, route: Route) -> None:
        """Use another route; the resolve of what the receiver got is still sent."""
        self._route = route

    def news(self, notification: Notification, muted: Mute) -> Notification | None:
        """The notification that the receiver gets for this change; None if it gets none."""
        if notification.status == RESOLVED:
            return self._resolved(notification)
        if not self._wanted(notification):
            return None
        before = self._open.get(notification.episode)
        if muted(notification):
            self._put(notification, before.state if before else MessageState.MUTED)
            return None
        self._put(notification, MessageState.NOTIFIED)
        notified = before is not None and before.state is MessageState.NOTIFIED
        return replace(notification, was=before.notification.severity if before and notified else "")

    def found(self, notification: Notification, muted: Mute, *, send: bool) -> Notification | None:
        """The notification for an alert found firing at the start; None if the receiver got it or ``send`` is False.

        It is sent again if it got worse while the receiver was not configured.
        """
        if not self._wanted(notification):
            return None
        before = self._open.get(notification.episode)
        if before is not None:
            known, notified = before.notification, before.state is MessageState.NOTIFIED
            worse = notification.id != known.id and Severity(notification.severity).rank > Severity(known.severity).rank
            return self.news(notification, muted) if notified and worse and send and not muted(notification) else None
        if not send or muted(notification):
            self._put(notification, MessageState.MUTED if send else MessageState.PASSED)
            return None
        self._put(notification, MessageState.NOTIFIED)
        return notification

    def unmuted(self, muted: Mute) -> list[Notification]:
        """Mark and return the alerts that still fire and are no longer muted."""
        if not self._muted:
            return []
        kept = [one.notification for one in self._open.values() if one.state is MessageState.MUTED]
        free = [notification for notification in kept if not muted(notification)]
        for notification in free:
            self._put(notification, MessageState.NOTIFIED)
        return free

    def open_of(self, run: str) -> list[Notification]:
        """The open episodes of a run, whether or not the receiver was notified of them."""
        return [one.notification for one in self._open.values() if one.notification.run == run]

    def firing(self) -> Iterator[Notification]:
        """The alerts the receiver got as firing and not as resolved, in the order of sending."""
        return (one.notification for one in self._open.values() if one.state is MessageState.NOTIFIED)

    def _wanted(self, notification: Notification) -> bool:
        return self._route.wants(notification) and (notification.rule, notification.key) != (OWN_RULE, self._name)

    def _resolved(self, notification: Notification) -> Notification | None:
        before = self._open.pop(notification.episode, None)
        if before is None:
            return None
        self.changed[self._name, notification.episode] = None
        self._muted -= before.state is MessageState.MUTED
        if before.state is not MessageState.NOTIFIED:
            return None
        fired = before.notification
        return replace(notification, started=fired.started, severity=fired.severity)

    def _put(self, notification: Notification, state: MessageState) -> None:
        place = notification.episode
        before = self._open.get(place)
        if before is not None and before.state is MessageState.NOTIFIED and notification.status == FIRING:
            notification = replace(notification, started=before.notification.started)  # it got worse
        self._muted -= before is not None and before.state is MessageState.MUTED
        self._muted += state is MessageState.MUTED
        self._open[place] = self.changed[self._name, place] = Message(self._name, notification, state)


TROUBLE_TRIES = 5
"""Attempts in a row without success after which a receiver counts as failing (15 s at the shortest waits)."""
MOST_RUNS = 20
"""Most runs that get the event."""


class ReceiverTrouble:
    """Tracks the failures of one receiver and which runs to report them to."""

    def __init__(self) -> None:
        self._tries = 0
        self._reported = self._arrived = False
        self._reports: dict[str, str] = {}
        self.now = ""
        """The current problem, whether or not it concerns a run; empty if there is none."""

    def tried(self, why: str, runs: Iterable[str]) -> None:
        """Note an attempt without success."""
        self._tries += 1
        if self._tries >= TROUBLE_TRIES:
            self.begins(why, runs)

    def begins(self, why: str, runs: Iterable[str]) -> None:
        """Note that a message will not arrive, or that none arrived for a while."""
        self.now = why or "no answer"
        concerned = [] if self._reported else sorted(set(runs))[:MOST_RUNS]
        self._reported = self._reported or bool(concerned)
        self._reports |= dict.fromkeys(concerned, self.now)

    def over(self) -> None:
        """Note that a message arrived."""
        self._tries, self.now = 0, ""
        self._reported, self._arrived = False, True

    @property
    def well(self) -> bool:
        """Whether a message has arrived since the start and there is no problem now."""
        return self._arrived and not self.now

    def reports(self) -> dict[str, str]:
        """The problem, by the runs whose messages were waiting; each report is returned once."""
        reports, self._reports = self._reports, {}
        return reports
