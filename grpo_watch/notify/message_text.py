"""Notifications as safe text: headlines, sentences, sparklines, lists of digests, Alertmanager's labels and notes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone

from grpo_watch.report.words import evidence_words, label_of, rounded
from grpo_watch.safe_text import about, clean
from grpo_watch.store.messages import RESOLVED, Notification

BARS = "▁▂▃▄▅▆▇█"
_TOP = len(BARS) - 1
TEST_RULE = "notify-test"
"""What `grpo-watch notify test` sends is about."""


def evidence_line(notification: Notification, limit: int = 1_000) -> str:
    """``reference KL 0 · groups with zero std 12%``, without what the sentence says already."""
    return clean(" · ".join(evidence_words(notification.evidence, sentence(notification))), limit)


def headline(notification: Notification) -> str:
    """What a phone shows: ``CRITICAL kl-stuck-at-zero · run · step 12 of 80``; ``1 critical, 3 warnings on 4 runs``."""
    if notification.parts:
        runs = len({part.run for part in notification.parts})
        return f"{counted(notification.parts)} on {runs} run{'' if runs == 1 else 's'}"
    word = _word(notification)
    goal = f" of {notification.max_steps}" if notification.max_steps else ""
    return clean(f"{word} {notification.rule} · {notification.run} · step {notification.step}{goal}", 200)


def sentence(notification: Notification) -> str:
    """What is wrong in the detector's own words, the same to every receiver; it names what it is about."""
    return about(notification.key, notification.message or notification.summary)


def _word(notification: Notification) -> str:
    if notification.rule == TEST_RULE:
        return "TEST"
    if notification.status == RESOLVED:
        return "RESOLVED"
    return notification.severity.upper()


def sparkline(values: Iterable[float]) -> str:
    """A bar per value between the least and the greatest one; a gap where a value is not finite."""
    row = list(values)
    finite = [value for value in row if math.isfinite(value)]
    if not finite:
        return ""
    low = min(finite) / 2  # halves: the difference of two numbers may be none
    span = max(finite) / 2 - low or 1.0
    return "".join(BARS[round((value / 2 - low) / span * _TOP)] if math.isfinite(value) else " " for value in row)


def trends(notification: Notification) -> list[str]:
    """``reference KL ▁▂▄▆ 0.001 → 0.4`` for each series of the message."""
    lines = []
    for name, values in notification.series.items():
        bars = sparkline(values)
        if bars:
            lines.append(f"{clean(label_of(name), 60)} {bars} {rounded(values[0])} → {rounded(values[-1])}")
    return lines


_URGENCY = ("critical", "warning", "info", "resolved")
_PLURALS = {"warning": "warnings"}


def ranked(parts: Iterable[Notification]) -> list[Notification]:
    """What fires before what ended, the severest first; else in order of arrival."""
    return sorted(parts, key=lambda part: _URGENCY.index(_urgency(part)))


def counted(parts: Iterable[Notification]) -> str:
    """``1 critical, 30 warnings, 2 resolved``."""
    count = Counter(map(_urgency, parts))
    counts = ((count[kind], _PLURALS.get(kind, kind) if count[kind] > 1 else kind) for kind in _URGENCY)
    return ", ".join(f"{number} {kind}" for number, kind in counts if number)


def listed(
    parts: Sequence[Notification],
    line: Callable[[Notification, int], str],
    *,
    most: int,
    room: int,
    lengths: Sequence[int],
) -> list[str]:
    """A line per part: ``most`` of them, and however many are critical, as long as there is room; the rest is counted.

    Args:
        parts: of a digest.
        line: makes the line of one part, its summary in at most this many characters.
        most: lines, where fewer are critical.
        room: bytes of all lines in UTF-8.
        lengths: of the summaries; the next one where the lines have no room.
    """
    parts = ranked(parts)
    wanted = max(most, sum(_urgency(part) == "critical" for part in parts))
    for length in lengths:
        lines = [line(part, length) for part in parts[:wanted]]
        if _size([*lines, _rest(parts[wanted:])]) <= room:
            break
    while lines and _size([*lines, _rest(parts[len(lines) :])]) > room:
        lines.pop()
    rest = _rest(parts[len(lines) :])
    return [*lines, rest] if rest else lines


def _urgency(part: Notification) -> str:
    return "resolved" if part.status == RESOLVED else part.severity


def _rest(parts: Sequence[Notification]) -> str:
    """``… and 20 more: 20 warnings``."""
    return f"… and {len(parts)} more: {counted(parts)}" if parts else ""


def _size(lines: Iterable[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


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
