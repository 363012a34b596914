"""Turns notifications into text that is safe anywhere: no control characters, bounded, numbers as people write them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from grpo_watch.notify.digest_text import counted
from grpo_watch.notify.notification import RESOLVED, TEST_RULE, Notification
from grpo_watch.report.words import evidence_words, label_of, rounded
from grpo_watch.safe_text import about, clean

BARS = "▁▂▃▄▅▆▇█"
_TOP = len(BARS) - 1


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
