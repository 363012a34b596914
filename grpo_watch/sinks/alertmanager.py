"""Keeps Alertmanager's view equal to what fires: posts alerts, repeats them, and ends them when they resolve."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from grpo_watch.sinks.alerts import ALIVE, Labels, annotations_of, labels_of, moment, parts_of
from grpo_watch.sinks.base import Picture
from grpo_watch.sinks.http import Access, Http
from grpo_watch.sinks.notification import FIRING, NOTHING, RESOLVED, Notification, Outcome, Result
from grpo_watch.sinks.text import plain

REPEAT_SECONDS = 60.0
"""Alertmanager forgets alerts when it restarts; after this long it has them again."""
EXPIRES_SECONDS = 5 * REPEAT_SECONDS
"""An alert that is not repeated for this long ends by itself: the watcher may be gone."""
MOST = 200
"""Alerts in one request."""

Key = tuple[tuple[str, str], ...]
"""The sorted labels of an alert, its identity in Alertmanager."""


class AlertmanagerReceiver:
    """One Alertmanager; several are several receivers, each with a queue of its own.

    Findings that differ only in what they are about (a tensor, a reward function) share their labels: they are one
    alert, which ends with the last of them.

    Args:
        name: what metrics call it.
        url: the address, with the path under which it is served.
        access: headers and authorities.
        instance: names this watcher in the heartbeat, which is sent unless it is empty.
        clock: Unix seconds.
        late: by how many seconds the engine is late; None when it is not. The heartbeat of one that is stuck is left
            out, and ends by itself.
    """

    pace = 0.0
    refresh_every: float | None = REPEAT_SECONDS

    def __init__(
        self,
        name: str,
        url: str,
        access: Access,
        instance: str,
        clock: Callable[[], float],
        late: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.name = name
        self._url = f"{url.rstrip('/')}/api/v2/alerts"
        self._instance, self._clock, self._late = instance, clock, late
        self._http = Http(access, clock)
        self._firing: dict[Key, dict[tuple[int, str], Notification]] = {}

    def send(self, notification: Notification) -> Outcome:
        """Post what changed."""
        now = self._clock()
        touched: dict[Key, Notification] = {}
        for part in parts_of(notification):
            touched |= self._escalated(part)
            touched[self._note(part)] = part
        return self._post([self._alert(key, last, now) for key, last in touched.items()])

    def refresh(self, firing: Sequence[Notification], picture: Picture, now: float) -> Outcome:  # noqa: ARG002
        """Post everything that fires, and an end for what was posted before and fires no more."""
        before, self._firing = self._firing, {}
        for told in firing:
            self._note(told)
        gone = [
            _document(labels_of(newest), newest, now)
            for key, held in before.items()
            if key not in self._firing
            for newest in [next(reversed(held.values()))]
        ]
        alerts = [self._alert(key, next(iter(held.values())), now) for key, held in self._firing.items()]
        outcome = self._post([*gone, *alerts, *self._heartbeat(now)])
        if outcome.result is Result.RETRY:  # what ended is told with the next turn
            self._firing = {**before, **self._firing}
        return outcome

    def close(self) -> None:
        """Free the connections."""
        self._http.close()

    def _escalated(self, told: Notification) -> dict[Key, Notification]:
        """The alerts that held this finding under other labels, as when it was a warning; they hold it no more."""
        mine, left = tuple(sorted(labels_of(told).items())), {}
        for key, held in list(self._firing.items()):
            before = held.get((told.attempt, told.key))
            if key != mine and before is not None and (before.run, before.rule) == (told.run, told.rule):
                self._note(replace(before, status=RESOLVED))
                left[key] = replace(before, ended=None)
        return left

    def _note(self, told: Notification) -> Key:
        key = tuple(sorted(labels_of(told).items()))
        held = self._firing.setdefault(key, {})
        held.pop((told.attempt, told.key), None)
        if told.status == FIRING:
            held[told.attempt, told.key] = told
        if not held:
            del self._firing[key]
        return key

    def _alert(self, key: Key, last: Notification, now: float) -> dict[str, Any]:
        """What still fires under these labels, else the end of what fired last."""
        held = self._firing.get(key)
        if not held:
            return _document(dict(key), last, now if last.ended is None else min(last.ended, now))
        oldest = min(held.values(), key=lambda told: told.started)
        return _document(dict(key), oldest, now + EXPIRES_SECONDS)

    def _heartbeat(self, now: float) -> list[dict[str, Any]]:
        if not self._instance or self._late() is not None:
            return []
        labels = {"alertname": ALIVE, "instance": self._instance, "severity": "none"}
        notes = {"summary": "Always fires while grpo-watch is alive; tell people when it stops."}
        return [{"labels": labels, "annotations": notes, "endsAt": moment(now + EXPIRES_SECONDS)}]

    def _post(self, alerts: Sequence[Mapping[str, Any]]) -> Outcome:
        """In as many requests as it takes; an empty one shows whether Alertmanager is there."""
        outcome = NOTHING
        for start in range(0, max(1, len(alerts)), MOST):
            body = json.dumps(plain(alerts[start : start + MOST])).encode()
            outcome = self._http.send("POST", self._url, body, {"Content-Type": "application/json"})
            if outcome.result is not Result.DELIVERED:
                return outcome
        return outcome


def _document(labels: Labels, told: Notification, ends: float) -> dict[str, Any]:
    link = {"generatorURL": told.page} if told.page else {}
    started = min(told.started, ends)
    return {
        "labels": labels,
        "annotations": annotations_of(told),
        "startsAt": moment(started),
        "endsAt": moment(ends),
        **link,
    }
