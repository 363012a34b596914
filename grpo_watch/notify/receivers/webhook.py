"""Turns notifications into signed JSON for any HTTP endpoint, in our own shape or as Alertmanager sends it."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from grpo_watch.config.sinks import WebhookSink
from grpo_watch.notify.message_text import annotations_of, labels_of, moment, parts_of, sentence
from grpo_watch.notify.receiver import ReceiverContext
from grpo_watch.notify.receivers.http import JSON, HttpReceiver, HttpRequest
from grpo_watch.safe_text import plain
from grpo_watch.store.messages import RESOLVED, Notification


class WebhookReceiver(HttpReceiver):
    """Posts one JSON document per notification.

    With a secret the request carries ``X-Grpo-Watch-Timestamp`` (Unix seconds) and ``X-Grpo-Watch-Signature``:
    ``sha256=`` and the hex HMAC-SHA256 of ``TIMESTAMP.BODY``. ``Idempotency-Key`` is the notification's id.

    Args:
        sink, name, context: as of every ``HttpReceiver``; the sink's format decides the shape of the document.
    """

    for_programs = True

    def __init__(self, sink: WebhookSink, name: str, context: ReceiverContext) -> None:
        super().__init__(sink, name, context)
        self._shape = alertmanager_document if sink.format == "alertmanager" else own_document

    def request(self, notification: Notification) -> HttpRequest:
        """The document, signed where there is a secret."""
        body = json.dumps(plain(self._shape(notification))).encode()
        headers = {**JSON, "Idempotency-Key": notification.id}
        if self._secret is not None:
            headers |= signature(self._secret.read().encode(), body, self._clock())
        return HttpRequest(body, headers=headers)


receiver = WebhookReceiver


def signature(secret: bytes, body: bytes, now: float) -> dict[str, str]:
    """The two headers that authenticate the body and its time."""
    stamp = str(int(now))
    digest = hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"X-Grpo-Watch-Timestamp": stamp, "X-Grpo-Watch-Signature": f"sha256={digest}"}


def own_document(notification: Notification) -> dict[str, Any]:
    """The document of the public interface; a digest's ``parts`` hold one for each alert."""
    document: dict[str, Any] = {
        "id": notification.id,
        "status": notification.status,
        "run": notification.run,
        "rule": notification.rule,
        "key": notification.key,
        "severity": notification.severity,
        "step": notification.step,
        "headline": notification.headline,
        "summary": sentence(notification),
        "evidence": dict(notification.evidence),
        "hint": notification.hint,
        "cause": notification.cause,
        "runbook": notification.runbook,
        "page": notification.page,
    }
    return document | ({"parts": [own_document(part) for part in notification.parts]} if notification.parts else {})


def alertmanager_document(notification: Notification) -> dict[str, Any]:
    """The document that Alertmanager's own webhooks send (version 4), for receivers that were written for it."""
    alerts = [_alert(part) for part in parts_of(notification)]
    common = dict(alerts[0]["labels"].items() & set.intersection(*(set(a["labels"].items()) for a in alerts)))
    notes = dict(set.intersection(*(set(alert["annotations"].items()) for alert in alerts)))
    return {
        "version": "4",
        "groupKey": f'{{}}:{{alertname="GrpoRunAlert"}}:{notification.id}',
        "truncatedAlerts": 0,
        "status": "resolved" if all(alert["status"] == "resolved" for alert in alerts) else "firing",
        "receiver": "grpo-watch",
        "groupLabels": {"alertname": "GrpoRunAlert"},
        "commonLabels": common,
        "commonAnnotations": notes,
        "externalURL": notification.page,
        "alerts": alerts,
    }


def _alert(notification: Notification) -> dict[str, Any]:
    labels = labels_of(notification)
    over = notification.ended if notification.status == RESOLVED and notification.ended is not None else None
    return {
        "status": "firing" if over is None else "resolved",
        "labels": labels,
        "annotations": annotations_of(notification),
        "startsAt": moment(notification.started),
        "endsAt": "0001-01-01T00:00:00Z" if over is None else moment(over),
        "generatorURL": notification.page,
        "fingerprint": hashlib.blake2s(json.dumps(plain(sorted(labels.items()))).encode(), digest_size=8).hexdigest(),
    }
