"""Is this zero a zero?"""

from __future__ import annotations

import pytest

from grpo_watch.engine.evidence import is_zero


@pytest.mark.parametrize(
    ("value", "resolution", "zero"),
    [
        (0.0, None, True),
        (-0.0, None, True),
        (5e-324, None, False),
        (0.0, 1e-8, True),
        (4.9e-9, 1e-8, True),
        (-4.9e-9, 1e-8, True),
        (5e-9, 1e-8, False),
        (1e-8, 1e-8, False),
        (4e-4, 1e-3, True),
    ],
)
def test_zero_is_what_the_channel_prints_as_zero(value: float, resolution: float | None, *, zero: bool) -> None:
    """Exactly zero where true zeros are printed (``%.4g``); below half of the last decimal elsewhere."""
    assert is_zero(value, resolution) is zero
