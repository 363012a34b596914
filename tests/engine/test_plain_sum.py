"""Floats are added the same way on every Python, and nothing that is replayed adds them otherwise."""

from __future__ import annotations

import pytest

from grpo_watch.engine.window import plain_sum
from tests.support.whole_sums import whole_sums_only


def test_each_addition_is_rounded() -> None:
    """Ten times 0.1 is just below 1, and 1 is lost beside 1e16; ``sum()`` gives 1.0 and 2.0 from Python 3.12 on."""
    assert plain_sum([0.1] * 10) == 0.9999999999999999
    assert plain_sum([1e16, 1.0, 1.0, -1e16]) == 0.0
    assert plain_sum([]) == 0


def test_the_guard_refuses_floats() -> None:
    from grpo_watch.engine import reward_functions  # noqa: PLC0415  as a detector would see it

    with whole_sums_only():
        assert reward_functions.sum([1, 2]) == 3  # type: ignore[attr-defined]
        with pytest.raises(AssertionError, match="plain_sum"):
            reward_functions.sum([1, 0.5])  # type: ignore[attr-defined]
    assert not hasattr(reward_functions, "sum")
