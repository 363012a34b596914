"""Slopes, correlations and spreads that outliers do not move."""

from __future__ import annotations

import pytest

from grpo_watch.engine.window import correlation, deviation, explained, spread, theil_sen


def test_one_outlier_does_not_move_the_slope() -> None:
    points = [(float(x), 2.0 * x) for x in range(20)]
    points[7] = (7.0, 1e6)
    assert theil_sen(points) == 2.0
    assert theil_sen([(1.0, 5.0)]) == theil_sen([(1.0, 5.0), (1.0, 9.0)]) == 0.0


def test_correlation_of_lines_and_of_constants() -> None:
    assert correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1.0)
    assert correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert correlation([1, 2, 3, 4], [1, -1, -1, 1]) == pytest.approx(0.0)
    assert correlation([1, 1, 1], [1, 2, 3]) == 0.0


def test_deviation_is_that_of_a_normal_and_ignores_an_outlier() -> None:
    """Half of these lie within 1 of the median."""
    assert deviation([-2, -1, 0, 1, 2]) == pytest.approx(1.4826)
    assert deviation([-2, -1, 0, 1, 1e9]) == pytest.approx(1.4826)


def test_spread_is_that_of_the_quartiles() -> None:
    """Of 1 to 5 the quartiles are 2 and 4."""
    assert spread([1, 2, 3, 4, 5]) == pytest.approx(2 / 1.349)
    assert spread([1, 2, 3, 4, 1e9]) == pytest.approx(2 / 1.349)


def test_explained_is_one_for_a_line() -> None:
    assert explained([(float(x), 3.0 - x) for x in range(9)]) == pytest.approx(1.0)
