"""Builds HTML in which nothing but our own tags is markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from grpo_watch.safe_text import visible


class Html(str):
    """Text that is markup already and is not escaped again."""

    __slots__ = ()


def tag(name: str, *inner: object, **attributes: str) -> Html:
    """An element; content that is not ``Html`` is escaped. ``class_`` stands for ``class``, ``a_b`` for ``a-b``."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{_plain(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{given}>{joined(inner)}</{name}>")


def joined(parts: Iterable[object]) -> Html:
    """The parts one after the other, those that are not ``Html`` escaped."""
    return Html("".join(part if isinstance(part, Html) else _plain(part) for part in parts))


def prose(text: str) -> Html:
    """A sentence in which `code` is between backticks."""
    parts = text.split("`")
    closed = len(parts) % 2 == 1  # an odd backtick out is a character like any other
    return (
        joined(tag("code", part) if index % 2 else part for index, part in enumerate(parts))
        if closed
        else joined([text])
    )


def _plain(value: object) -> str:
    """Text without markup; control characters (also those that turn the direction of writing) are shown as codes."""
    return escape(visible(str(value)))
