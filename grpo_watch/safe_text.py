"""Makes text and values of a run safe to show anywhere: no control characters, bounded, strict JSON."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from typing import Any


def visible(text: str) -> str:
    r"""The text with escapes for characters that control a terminal or reverse the text: ``\x1b``, ``\u202e``, ``\n``.

    Spaces of other scripts stay; controls, marks that turn the direction of writing, halves of surrogate pairs and
    code points without a character (XML refuses some of them) do not.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def one_line(text: str) -> str:
    """The visible text on one line: line breaks and tabs become spaces."""
    return text if text.isprintable() else visible(text.replace("\n", " ").replace("\t", " "))


def clean(text: str, limit: int = 2_000) -> str:
    """One line without control characters, at most ``limit`` characters; a ``…`` marks a cut."""
    kept = text[: limit + 1]  # bounded before it is scanned
    shown = one_line(kept)
    return shown if len(kept) <= limit and len(shown) <= limit else shown[: limit - 1] + "…"


def _shown(char: str) -> str:
    return char if char.isprintable() or unicodedata.category(char) == "Zs" else repr(char)[1:-1]


def about(key: str, text: str) -> str:
    """The text, preceded by its key (a reward function, a rank) if it does not name it."""
    return f"{key}: {text}" if key and key not in text else text


def strict(value: Any) -> Any:
    """A value for ``check``'s documents that every JSON parser reads: ``nan``, ``inf`` as Python writes them."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def plain(value: Any) -> Any:
    """A value for the API and webhooks as strict JSON, without halves of surrogate pairs.

    NaN and infinities become strings that JavaScript's ``Number()`` understands too; ``strict`` is older, and scripts
    rely on its spelling.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {plain(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value
