"""Windows over the run's own past."""

from __future__ import annotations

import statistics

from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.window import SortedWindow, Window

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
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40), st.integers(1, 9))
def test_a_sorted_window_has_the_median_of_the_last_numbers(values: list[float], size: int) -> None:
    """Whatever came before them."""
    window = SortedWindow(size)
    for value in values:
        window.push(value)
    assert window.median() == statistics.median(values[-size:])
    assert list(window) == sorted(values[-size:])
    assert len(window) == min(size, len(values))


def test_an_empty_sorted_window_has_no_median() -> None:
    assert SortedWindow(3).median() is None
