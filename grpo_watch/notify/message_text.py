"""Turns notifications into text that is safe anywhere: no control characters, bounded, numbers as people write them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from grpo_watch.notify.digest_text import counted
from grpo_watch.notify.evidence_words import evidence_words, label_of, rounded
from grpo_watch.notify.notification import RESOLVED, TEST_RULE, Notification

BARS = "▁▂▃▄▅▆▇█"
_TOP = len(BARS) - 1
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories that are shown as escapes: controls, marks that turn the direction of text, halves of pairs."""


def clean(text: str, limit: int = 2_000) -> str:
    """One line without control characters, at most ``limit`` characters; what was cut off is marked with ``…``."""
    kept = text[: limit + 1]  # bounded before it is looked at
    shown = visible(kept)
    return shown if len(kept) <= limit and len(shown) <= limit else shown[: limit - 1] + "…"


def visible(text: str) -> str:
    """The text with controls, and marks that turn its direction, as escapes; line breaks become spaces."""
    return text if text.isascii() and text.isprintable() else "".join(map(_shown, text))


def _shown(char: str) -> str:
    if char in "\n\t":
        return " "
    return repr(char)[1:-1] if unicodedata.category(char) in _HIDDEN else char


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
    text = about(notification.key, notification.message or notification.summary)
    return f"{text} ({notification.note})" if notification.note else text


def about(key: str, text: str) -> str:
    """What is wrong, with the name of what it is about (a reward function, a rank) where the words lack it."""
    return f"{key}: {text}" if key and key not in text else text


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


def plain(value: Any) -> Any:
    """The value as strict JSON holds it: NaN and infinities as strings, no halves of surrogate pairs."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {plain(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value
