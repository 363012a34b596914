"""Makes text and values of a run safe to show anywhere: no control characters, bounded, strict JSON."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from typing import Any

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


def about(key: str, text: str) -> str:
    """What is wrong, with the name of what it is about (a reward function, a rank) where the words lack it."""
    return f"{key}: {text}" if key and key not in text else text


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
