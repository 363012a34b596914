"""Windows over the run's own past."""

from __future__ import annotations

from hypothesis import settings

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
