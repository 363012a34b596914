"""Opens an incident in PagerDuty (Events API v2) when an alert fires, and resolves it when the alert does."""

from __future__ import annotations

import hashlib
from typing import Any

from grpo_watch.config.schema import PagerDutySink
from grpo_watch.notify.message_text import details as which_alert
from grpo_watch.notify.message_text import evidence_line, headline, moment, parts_of, sentence
from grpo_watch.notify.receiver import NOTHING, DeliveryOutcome, DeliveryResult, ReceiverContext
from grpo_watch.notify.receivers.http import HttpReceiver, HttpRequest
from grpo_watch.safe_text import clean
from grpo_watch.store.messages import RESOLVED, Notification

MAX_SUMMARY = 1_024
"""Most characters of a summary in PagerDuty."""
SEVERITIES = frozenset({"critical", "error", "warning", "info"})
"""PagerDuty's severities, which include ours."""


class PagerDutyReceiver(HttpReceiver):
    """One integration."""

    keyed = True
    default_url = "https://events.pagerduty.com/v2/enqueue"

    def __init__(self, sink: PagerDutySink, name: str, context: ReceiverContext) -> None:
        super().__init__(sink, name, context)
        self._key = sink.routing_key_file
        self._key.read()
        self._taken: set[str] = set()

    def request(self, notification: Notification) -> HttpRequest:
        """One event."""
        return HttpRequest.of(event(notification, self._key.read()))

    def send(self, notification: Notification) -> DeliveryOutcome:
        """Send an event for each alert; a digest that was interrupted continues where it stopped."""
        outcome = NOTHING
        for part in parts_of(notification):
            if part.id in self._taken:
                continue
            outcome = super().send(part)
            if outcome.result is not DeliveryResult.DELIVERED:
                return outcome
            self._taken.add(part.id)
        self._taken.clear()
        return outcome


receiver = PagerDutyReceiver


def event(notification: Notification, routing_key: str) -> dict[str, Any]:
    """The body of one event. A worse severity updates the open incident."""
    document = {"routing_key": routing_key, "dedup_key": dedup_key(notification)}
    if notification.status == RESOLVED:
        return {**document, "event_action": "resolve"}
    details = {
        "alert": which_alert(notification),
        "message": clean(sentence(notification)),
        "evidence": evidence_line(notification),
        "cause": clean(notification.cause),
        "fix": clean(notification.hint),
        "runbook": notification.runbook,
        **{f"label {name}": clean(value) for name, value in notification.labels.items()},
    }
    payload = {
        "summary": clean(f"{headline(notification)}: {sentence(notification)}", MAX_SUMMARY),
        "source": clean(notification.run) or "grpo-watch",
        "severity": notification.severity if notification.severity in SEVERITIES else "info",
        "timestamp": moment(notification.started),
        "class": notification.rule,
        "custom_details": {name: text for name, text in details.items() if text},
    }
    addresses = ((notification.page, "status page"), (notification.runbook, "runbook"))
    links = [{"href": url, "text": text} for url, text in addresses if url.startswith(("http://", "https://"))]
    return {**document, "event_action": "trigger", "client": "grpo-watch", "payload": payload, "links": links}


def dedup_key(notification: Notification) -> str:
    """The key of an alert, the same when it fires, gets worse and resolves; the next episode opens a new incident."""
    name = f"{notification.run}\x1f{notification.rule}\x1f{notification.key}"
    return hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=16).hexdigest()
