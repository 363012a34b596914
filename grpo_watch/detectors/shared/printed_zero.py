"""Whether a printed value is a zero, which depends on the digits that its log prints."""

from __future__ import annotations


def is_zero(value: float, resolution: float | None) -> bool:
    """Whether a printed value is zero: exactly where the channel prints true zeros, else below half its resolution."""
    return value == 0.0 if resolution is None else abs(value) < resolution / 2
