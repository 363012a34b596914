"""Keeps Alertmanager's alerts equal to ours: posts and repeats firing alerts, and ends resolved ones."""

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
"""Seconds between repetitions: Alertmanager forgets alerts when it restarts."""
EXPIRES_SECONDS = 5 * REPEAT_SECONDS
"""Seconds after which an alert that is not repeated ends by itself: the watcher may be gone."""
MOST = 200
"""Most alerts in one request."""

_ADDRESS = re.compile(r"https?://[^\s/%]+(?:/(?:[^\s%]|%[0-9A-Fa-f]{2})*)?")
"""Links that Alertmanager can read: with another one it answers 422 to all alerts of the request."""

Key = tuple[tuple[str, str], ...]
"""The sorted labels of an alert, its identity in Alertmanager."""


@dataclass(frozen=True, slots=True)
class AlertmanagerClock:
    """Alertmanager's clock: its present time (Unix seconds), and by how many seconds it is ahead of ours."""

    now: float
    ahead: float

    def of(self, ours: float) -> float:
        """Convert a time of our clock; never later than the present."""
        return min(ours + self.ahead, self.now)


class AlertmanagerReceiver(HttpReceiver):
    """One Alertmanager; each configured one is a receiver with its own queue.

    Findings that differ only in their key (a tensor, a reward function) share their labels: they are one alert, which
    ends with the last of them.

    The heartbeat, if configured, is left out while the engine is late, and then ends by itself.
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
        """Post the changed alerts."""
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
        """Post all firing alerts, and end those that now fire under other labels.

        Alerts that stopped firing are ended at the second refresh: their resolve may still be waiting, and an alert
        ended before its firing message is stored as delivered would be reopened after a kill.
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
        if outcome.result is DeliveryResult.RETRY:  # the ends are posted with the next refresh
            over = set()
        else:
            self._spared = gone.keys() - over
        self._firing |= {key: held for key, held in gone.items() if key not in over}
        return outcome

    def _escalated(self, notification: Notification) -> dict[Key, Notification]:
        """The alerts that held this finding under other labels (an earlier severity); removes it from them."""
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
        """The oldest finding firing under these labels, else the end of ``last``."""
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
        """Post with Alertmanager's times: it takes an alert that ends in its own past as resolved.

        Its answers carry its time. So an empty request is sent before the first alert, and again with ``ask``, which
        also shows whether it is reachable. (Posting again with corrected times would not do: an alert that arrived as
        resolved is sent on minutes later, and of two ends the later one counts.)
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
    """The identity of a finding, independent of its severity."""
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
