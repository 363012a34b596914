"""Keeps Alertmanager's view equal to what fires: posts alerts, repeats them, and ends them when they resolve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from grpo_watch import lazy_re as re
from grpo_watch.config.schema import AlertmanagerSink
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.notify.message_text import ALIVE, Labels, annotations_of, labels_of, moment, parts_of
from grpo_watch.notify.receiver import NOTHING, DeliveryOutcome, DeliveryResult, ReceiverContext
from grpo_watch.notify.receivers.http import HttpReceiver, HttpRequest
from grpo_watch.store.messages import FIRING, RESOLVED, Notification

REPEAT_SECONDS = 60.0
"""Alertmanager forgets alerts when it restarts; after this long it has them again."""
EXPIRES_SECONDS = 5 * REPEAT_SECONDS
"""An alert that is not repeated for this long ends by itself: the watcher may be gone."""
MOST = 200
"""Alerts in one request."""

_ADDRESS = re.compile(r"https?://[^\s/%]+(?:/(?:[^\s%]|%[0-9A-Fa-f]{2})*)?")
"""Alertmanager answers 422 to all alerts of a request in which one has a link that it can't read."""

Key = tuple[tuple[str, str], ...]
"""The sorted labels of an alert, its identity in Alertmanager."""


@dataclass(frozen=True, slots=True)
class AlertmanagerClock:
    """Alertmanager's clock: what it shows now (Unix seconds), and by how much it is ahead of ours."""

    now: float
    ahead: float

    def of(self, ours: float) -> float:
        """A moment of our clock on this one, never in its future."""
        return min(ours + self.ahead, self.now)


class AlertmanagerReceiver(HttpReceiver):
    """One Alertmanager; several are several receivers, each with a queue of its own.

    Findings that differ only in what they are about (a tensor, a reward function) share their labels: they are one
    alert, which ends with the last of them.

    Its heartbeat, where the settings ask for one, is left out while the engine is stuck, and ends by itself.
    """

    keyed = True
    for_programs = True
    refresh_every = REPEAT_SECONDS

    def __init__(self, sink: AlertmanagerSink, name: str, context: ReceiverContext) -> None:
        super().__init__(sink, name, context)
        url = f"{sink.url.reveal().rstrip('/')}/api/v2/alerts"
        self._url = lambda: url
        self._instance, self._late = context.instance if sink.heartbeat else "", context.late
        self._asked = False
        self._firing: dict[Key, dict[tuple[int, str], Notification]] = {}
        self._spared: set[Key] = set()

    def send(self, notification: Notification) -> DeliveryOutcome:
        """Post what changed."""
        touched: dict[Key, Notification] = {}
        before = {key: dict(held) for key, held in self._firing.items()}
        for part in parts_of(notification):
            touched |= self._escalated(part)
            touched[self._note(part)] = part
        self._spared -= touched.keys()
        outcome = self._send_by_its_clock(lambda time: [self._alert(key, last, time) for key, last in touched.items()])
        if outcome.result is not DeliveryResult.DELIVERED:
            self._firing = before  # it may have arrived: a refresh must not end what will be sent again
        return outcome

    def refresh(self, firing: Sequence[Notification], snapshot: DaemonSnapshot, now: float) -> DeliveryOutcome:  # noqa: ARG002
        """Post everything that fires, and an end for what was posted before and fires under other labels by now.

        What fires no more is ended at the second refresh: its end is a message that may still wait, and what is ended
        before the message that opened it is stored as delivered would be opened again after a kill.
        """
        before, self._firing = self._firing, {}
        for notification in firing:
            self._note(notification)
        repeated = {key: next(iter(held.values())) for key, held in self._firing.items()}
        fires = {_finding(each) for held in self._firing.values() for each in held.values()}
        gone = {key: held for key, held in before.items() if key not in repeated}
        over = {
            key for key in gone if key in self._spared or any(_finding(each) in fires for each in gone[key].values())
        }
        beat = self._late() is None

        def alerts(time: AlertmanagerClock) -> list[dict[str, Any]]:
            last = [next(reversed(gone[key].values())) for key in gone if key in over]
            ends = [_document(labels_of(newest), newest, time, time.now) for newest in last]
            again = [self._alert(key, first, time) for key, first in repeated.items()]
            return [*ends, *again, *(self._heartbeat(time) if beat else [])]

        outcome = self._send_by_its_clock(alerts, ask=True)
        if outcome.result is DeliveryResult.RETRY:  # the ends go out with the next refresh
            over = set()
        else:
            self._spared = gone.keys() - over
        self._firing |= {key: held for key, held in gone.items() if key not in over}
        return outcome

    def _escalated(self, notification: Notification) -> dict[Key, Notification]:
        """The alerts that held this finding under other labels, as when it was a warning; they no longer hold it."""
        mine, left = tuple(sorted(labels_of(notification).items())), {}
        for key, held in list(self._firing.items()):
            before = held.get((notification.attempt, notification.key))
            if (
                key != mine
                and before is not None
                and (before.run, before.rule) == (notification.run, notification.rule)
            ):
                self._note(replace(before, status=RESOLVED))
                left[key] = replace(before, ended=None)
        return left

    def _note(self, notification: Notification) -> Key:
        key = tuple(sorted(labels_of(notification).items()))
        held = self._firing.setdefault(key, {})
        held.pop((notification.attempt, notification.key), None)
        if notification.status == FIRING:
            held[notification.attempt, notification.key] = notification
        if not held:
            del self._firing[key]
        return key

    def _alert(self, key: Key, last: Notification, time: AlertmanagerClock) -> dict[str, Any]:
        """What still fires under these labels, else the end of what fired last."""
        held = self._firing.get(key)
        if not held:
            return _document(dict(key), last, time, time.now if last.ended is None else time.of(last.ended))
        oldest = min(held.values(), key=lambda notification: notification.started)
        return _document(dict(key), oldest, time, time.now + EXPIRES_SECONDS)

    def _heartbeat(self, time: AlertmanagerClock) -> list[dict[str, Any]]:
        if not self._instance:
            return []
        labels = {"alertname": ALIVE, "instance": self._instance, "severity": "none"}
        notes = {"summary": "Always fires while grpo-watch is alive; tell people when it stops."}
        return [{"labels": labels, "annotations": notes, "endsAt": moment(time.now + EXPIRES_SECONDS)}]

    def _send_by_its_clock(
        self, alerts: Callable[[AlertmanagerClock], Sequence[Mapping[str, Any]]], *, ask: bool = False
    ) -> DeliveryOutcome:
        """Post by Alertmanager's clock: it takes an alert that ends in its own past for one that is over.

        Its answers carry its time. So it is asked before the first alert, and again with ``ask``, by a request
        without any, which also shows whether it is there. (To post the same again with the right times would not do: an
        alert that arrived as resolved is sent on minutes later, and of two ends the later one counts.)
        """
        outcome = NOTHING
        if ask or not self._asked:
            outcome = self._ask(lambda: HttpRequest.of([]))
            if outcome.result is not DeliveryResult.DELIVERED:
                return outcome
            self._asked = True
        ahead = self._http.ahead
        posted = alerts(AlertmanagerClock(self._clock() + ahead, ahead))
        for start in range(0, len(posted), MOST):
            outcome = self._ask(partial(HttpRequest.of, posted[start : start + MOST]))
            if outcome.result is not DeliveryResult.DELIVERED:
                return outcome
        return outcome


receiver = AlertmanagerReceiver


def _finding(notification: Notification) -> tuple[str, str, int, str]:
    """What it is about, whatever its severity."""
    return notification.run, notification.rule, notification.attempt, notification.key


def _document(labels: Labels, notification: Notification, time: AlertmanagerClock, ends: float) -> dict[str, Any]:
    link = {"generatorURL": notification.page} if _ADDRESS.fullmatch(notification.page) else {}
    return {
        "labels": labels,
        "annotations": annotations_of(notification),
        "startsAt": moment(min(time.of(notification.started), ends)),
        "endsAt": moment(ends),
        **link,
    }
