"""Windows over the run's own past."""

from __future__ import annotations

from statistics import median

from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.window import Window

quick = settings(derandomize=True, deadline=None, max_examples=100)


def test_an_empty_window_knows_nothing() -> None:
    window = Window(3)
    assert (len(window), window.full, window.mean(), window.median()) == (0, False, None, None)


def test_a_window_holds_the_last_numbers() -> None:
    window = Window(3)
    for value in (100.0, 1.0, 2.0, 6.0):
        window.push(value)
    assert (len(window), window.full, window.mean(), window.median()) == (3, True, 3.0, 2.0)


def test_the_median_of_an_even_number_is_the_middle() -> None:
    window = Window(4)
    for value in (4.0, 1.0):
        window.push(value)
    assert (window.median(), window.full) == (2.5, False)


@quick
@given(st.lists(st.floats(-3.0, 3.0), min_size=1, max_size=30), st.integers(1, 7), st.integers(0, 30))
def test_the_median_is_that_of_the_last_numbers_whenever_it_is_asked_for(
    values: list[float], size: int, first: int
) -> None:
    """From the first time on it is kept from push to push."""
    window = Window(size)
    for at, value in enumerate(values):
        window.push(value)
        if at >= first:
            assert window.median() == median(values[: at + 1][-size:])
