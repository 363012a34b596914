"""Opens an incident in PagerDuty (Events API v2) when an alert fires, and resolves the same one when it ends."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from grpo_watch.config.fields import SecretFile
from grpo_watch.config.sinks import PagerDutySink
from grpo_watch.errors import ConfigError
from grpo_watch.notify.message_text import details as which_alert
from grpo_watch.notify.message_text import evidence_line, headline, moment, parts_of, sentence
from grpo_watch.notify.receiver import NOTHING, DeliveryOutcome, DeliveryResult, ReceiverContext
from grpo_watch.notify.receivers.http import HttpAccess, HttpReceiver, authorities
from grpo_watch.safe_text import clean
from grpo_watch.store.messages import RESOLVED, Notification

EVENTS = "https://events.pagerduty.com/v2/enqueue"
MAX_SUMMARY = 1_024
"""Characters that PagerDuty takes of a summary."""
SEVERITIES = frozenset({"critical", "error", "warning", "info"})
"""PagerDuty's severities; ours are among them."""


class PagerDutyReceiver(HttpReceiver):
    """One integration.

    Args:
        name, url, access, clock: as of every ``HttpReceiver``.
        routing_key: the integration's key.
    """

    keyed = True

    def __init__(
        self,
        name: str,
        url: Callable[[], str],
        routing_key: SecretFile,
        access: HttpAccess,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(name, url, access, clock)
        self._key = routing_key
        self._taken: set[str] = set()

    def send(self, notification: Notification) -> DeliveryOutcome:
        """Send an event for each alert; of a digest that broke off the rest."""
        outcome = NOTHING
        for part in parts_of(notification):
            if part.id in self._taken:
                continue
            try:
                key = self._key.read()
            except ConfigError as problem:
                return DeliveryOutcome(DeliveryResult.RETRY, str(problem))
            outcome = self._post(event(part, key))
            if outcome.result is not DeliveryResult.DELIVERED:
                return outcome
            self._taken.add(part.id)
        self._taken.clear()
        return outcome


def receiver(sink: PagerDutySink, name: str, context: ReceiverContext) -> PagerDutyReceiver:
    """The receiver of a sink, whose key is read once now: a mistake shows at the start."""
    sink.routing_key_file.read()
    url = sink.url.reveal if sink.url is not None else lambda: EVENTS
    access = HttpAccess(ca_file=authorities(sink.ca_file))
    return PagerDutyReceiver(name, url, sink.routing_key_file, access, context.clock)


def event(notification: Notification, routing_key: str) -> dict[str, Any]:
    """The body of one event. What got worse, and the report of a stop, update the incident that is open."""
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
    """Names the alert, the same when it fires, gets worse and resolves; after that it opens a new incident."""
    name = f"{notification.run}\x1f{notification.rule}\x1f{notification.key}"
    return hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=16).hexdigest()
