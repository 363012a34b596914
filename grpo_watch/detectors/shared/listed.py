"""Names in a sentence, however many a run has."""

from __future__ import annotations

from collections.abc import Iterable

MOST_NAMED = 8
"""As many as a person reads in one sentence."""


def listed(parts: Iterable[str]) -> str:
    """The parts with commas, at most ``MOST_NAMED`` of them, and how many more there are."""
    found = list(parts)
    more = [f"and {len(found) - MOST_NAMED:,} more"] if len(found) > MOST_NAMED else []
    return ", ".join(found[:MOST_NAMED] + more)
