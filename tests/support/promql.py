"""Which metrics a PromQL expression asks for."""

from __future__ import annotations

import re

KEYWORDS = {
    "and",
    "or",
    "unless",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "offset",
    "bool",
    "inf",
}
STRING = r'"(?:[^"\\]|\\.)*"|' + r"'(?:[^'\\]|\\.)*'"
LABELS = r"\{[^}]*\}"
RANGE = r"\[[^]]*\]"
GROUPING = r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"
NAME = r"(?<![\w:.])[a-zA-Z_:][\w:]*(?!\s*\(|[\w:])"
"""A word that is no function call, and no unit of a number."""


def metrics_of(expression: str) -> set[str]:
    """Names of the metrics; labels, functions and operators are left out."""
    bare = expression
    for pattern in (STRING, LABELS, RANGE, GROUPING):
        bare = re.sub(pattern, " ", bare)
    return set(re.findall(NAME, bare)) - KEYWORDS
