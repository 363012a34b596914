"""Turns notifications into signed JSON for any HTTP endpoint."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from grpo_watch.notify.message_text import sentence
from grpo_watch.notify.receivers.http import JSON, HttpReceiver, HttpRequest
from grpo_watch.safe_text import plain
from grpo_watch.store.messages import Notification


class WebhookReceiver(HttpReceiver):
    """Posts one JSON document per notification.

    With a secret the request carries ``X-Grpo-Watch-Timestamp`` (Unix seconds) and ``X-Grpo-Watch-Signature``:
    ``sha256=`` and the hex HMAC-SHA256 of ``TIMESTAMP.BODY``. ``Idempotency-Key`` is the notification's id.
    """

    for_programs = True

    def request(self, notification: Notification) -> HttpRequest:
        """The request of one message, signed if there is a secret."""
        body = json.dumps(plain(own_document(notification))).encode()
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
    """The document of the public interface; a digest's ``parts`` hold one per alert."""
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
