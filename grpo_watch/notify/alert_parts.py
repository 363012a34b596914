"""Turns notifications into Alertmanager's terms: labels that name an alert, annotations that explain it, times."""

from __future__ import annotations

from datetime import datetime, timezone

from grpo_watch.notify.message_text import evidence_line, sentence
from grpo_watch.notify.notification import Notification
from grpo_watch.safe_text import clean

ALERT, ALIVE = "GrpoRunAlert", "GrpoWatchAlive"
"""``alertname`` of everything about runs, and of the heartbeat."""

Labels = dict[str, str]


def labels_of(notification: Notification) -> Labels:
    """The labels by which this alert and the one of the shipped Prometheus rule are the same."""
    own = {"alertname": ALERT, "rule": notification.rule, "run": notification.run, "severity": notification.severity}
    return {name: _label(value) for name, value in {**notification.labels, **own}.items() if value}


def annotations_of(notification: Notification) -> dict[str, str]:
    """What a person needs; what is not known is left out."""
    notes = {
        "summary": clean(sentence(notification)),
        "evidence": evidence_line(notification),
        "cause": clean(
            notification.cause or (f"explained by {notification.caused_by}" if notification.caused_by else "")
        ),
        "fix": clean(notification.hint),
        "runbook": notification.runbook,
        "runbook_url": notification.runbook if notification.runbook.startswith(("http://", "https://")) else "",
        "page": notification.page,
    }
    return {name: text for name, text in notes.items() if text}


def parts_of(notification: Notification) -> tuple[Notification, ...]:
    """The alerts of a digest, or the one alert."""
    return notification.parts or (notification,)


def moment(seconds: float) -> str:
    """Unix seconds as RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _label(value: str) -> str:
    """As the exporter writes it: only what UTF-8 can't hold is replaced, or the two alerts would differ."""
    return value.encode("utf-8", "replace").decode()
