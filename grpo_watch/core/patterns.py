"""Names the way in which equal texts lie inside a group: a stride, a round-robin, one text, or no rule."""

from __future__ import annotations

from enum import Enum


class Layout(str, Enum):
    """How the copies of a group are laid out."""

    DISTINCT = "distinct"
    STRIDE = "stride"
    ROUND_ROBIN = "round-robin"
    ONE_TEXT = "one text"
    IRREGULAR = "irregular"


def layout(pattern: tuple[int, ...]) -> Layout:
    """The layout of a pattern that numbers equal texts by first appearance.

    ``(0, 1, 2, 0, 1, 2)`` is a stride (each of k engines repeats the same u texts), ``(0, 0, 1, 1, 2, 2)`` a
    round-robin (neighbours repeat), ``(0, 0, 0)`` one text.
    """
    size, unique = len(pattern), len(set(pattern))
    if unique == size:
        return Layout.DISTINCT
    if unique == 1:
        return Layout.ONE_TEXT
    if size % unique == 0:
        copies = size // unique
        if pattern == tuple(range(unique)) * copies:
            return Layout.STRIDE
        if pattern == tuple(number for number in range(unique) for _ in range(copies)):
            return Layout.ROUND_ROBIN
    return Layout.IRREGULAR
