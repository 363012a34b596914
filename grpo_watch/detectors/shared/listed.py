"""Lists of names in a sentence, cut to a readable length."""

from __future__ import annotations

from collections.abc import Iterable

MOST_NAMED = 8
"""As many as are readable in one sentence."""


def listed(parts: Iterable[str]) -> str:
    """The parts separated by commas: the first ``MOST_NAMED``, then the number of the others."""
    found = list(parts)
    more = [f"and {len(found) - MOST_NAMED:,} more"] if len(found) > MOST_NAMED else []
    return ", ".join(found[:MOST_NAMED] + more)
