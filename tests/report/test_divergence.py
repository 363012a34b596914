"""Where two columns part: worked out by hand, and what must hold for any columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.report.compare import StepColumn, noise_before, part

WAVE = [0.0, 1.0, 0.0, -1.0] * 10
"""Changes by 1 from row to row."""
columns = st.lists(st.floats(-100, 100).map(lambda value: round(value, 3)), min_size=1, max_size=60)


def col(values: list[float], first: int = 1, every: int = 1) -> StepColumn:
    return StepColumn(range(first, first + len(values), every), values[::every])


def test_noise_by_hand() -> None:
    """All changes are of size 1: 1.4826 / sqrt(2) = 1.0483, at every row."""
    assert noise_before(WAVE, 10) == pytest.approx([1.04836] * 40, rel=1e-4)


def test_noise_of_rare_changes_is_not_zero() -> None:
    """Nine equal rows, then one step of 2: the median change is 0, the mean one 2/9; 1.2533 x 0.2222 / sqrt(2)."""
    assert noise_before([0.0] * 9 + [2.0], 10)[9] == pytest.approx(0.19694, rel=1e-4)


def test_a_jump_beyond_the_noise() -> None:
    """The limit is 3 x 1.0483 = 3.145; from row 21 on the difference is 10 more. Five rows of ten must be beyond."""
    other = [*WAVE[:20], *(value + 10 for value in WAVE[20:])]
    found = part(col([0.0] * 40), col(other))
    assert (found.step, found.differs, found.a, found.b) == (21, 2, 0.0, 10.0)
    assert found.noise == pytest.approx(1.04836, rel=1e-4)


def test_noise_alone_parts_nothing() -> None:
    found = part(col([0.0] * 40), col(WAVE))
    assert (found.step, found.differs, found.rows) == (None, 2, 40)


def test_one_odd_row_parts_nothing() -> None:
    assert part(col(WAVE), col([*WAVE[:20], 1e6, *WAVE[21:]])).step is None


def test_a_slow_drift_parts() -> None:
    """0.1 a row on a noise of 1.05 is beyond 3.145 after some thirty rows."""
    drift = [value + 0.1 * row for row, value in enumerate(WAVE * 2)]
    found = part(col([0.0] * 80), col(drift)).step
    assert found is not None
    assert 24 < found < 45


def test_equal_runs_part_at_the_first_lasting_difference() -> None:
    other = [*WAVE[:25], *(value + 0.01 for value in WAVE[25:])]
    assert part(col(WAVE), col(other)).step == 26


def test_different_from_the_first_row() -> None:
    assert part(col(WAVE), col([value + 50 for value in WAVE])).step == 1


def test_what_is_set_has_no_noise() -> None:
    """A schedule that is 1 % off from its third row on."""
    rates = [1e-6 * row for row in range(1, 21)]
    other = [*rates[:2], *(rate * 1.01 for rate in rates[2:])]
    assert part(col(rates), col(other), exact=True).step == 3


def test_digits_that_were_not_printed_are_no_difference() -> None:
    assert part(col([0.12] * 20), col([0.1234] * 20), resolution=0.01).differs is None
    assert part(col([0.12] * 20), col([0.1234] * 20)).step == 1


def test_rows_are_matched_by_step() -> None:
    """One run logs every row, the other every fifth: eight rows are common."""
    every_fifth = col(WAVE, every=5)
    assert part(col(WAVE), every_fifth).rows == 8
    assert part(col(WAVE), every_fifth).differs is None
    assert part(col(WAVE[:4]), col([9.0] * 4)).step is None, "four rows say nothing"
    assert part(col(WAVE), col(WAVE, first=100)).rows == 0


def test_rows_without_a_value_on_either_side_are_left_out() -> None:
    other = [float("nan"), *WAVE[1:]]
    assert part(col(other), col(WAVE)).rows == 39
    assert part(col(WAVE), col(other)).differs is None


@given(columns.filter(lambda values: len(values) > 1), st.integers(2, 12))
def test_noise_is_what_pandas_makes_of_the_same_changes(values: list[float], window: int) -> None:
    """The change up to row r counts from row r + 1 on, and the first window is judged by its own changes."""
    changes = pd.Series(values).diff().abs().iloc[1:]
    spread, mean = 1.4826 * changes.expanding().median(), 1.2533 * changes.expanding().mean()
    known = (spread.where(spread > 0, mean) / 2**0.5).tolist()
    window = min(window, len(values))
    expected = [known[max(row - 2, window - 2)] for row in range(len(values))]
    assert noise_before(values, window) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(columns)
def test_a_run_does_not_part_from_itself(values: list[float]) -> None:
    assert (part(col(values), col(values)).step, part(col(values), col(values)).differs) == (None, None)


@given(columns, columns)
def test_the_order_does_not_matter(a: list[float], b: list[float]) -> None:
    there, back = part(col(a), col(b)), part(col(b), col(a))
    assert (there.step, there.differs, there.noise) == (back.step, back.differs, back.noise)


@given(columns, columns)
def test_more_rows_afterwards_change_nothing(a: list[float], b: list[float]) -> None:
    """Once ten rows have shown it, the answer stands: it depends on the past only."""
    found = part(col(a), col(b)).step
    if found is not None and min(len(a), len(b)) >= 10:
        length = min(len(a), len(b))
        longer = part(col([*a[:length], *[0.0] * 10]), col([*b[:length], *[0.0] * 10]))
        assert longer.step == found


def test_independent_noise_rarely_parts() -> None:
    """200 pairs of 300 rows of white noise: at most one pair in a hundred is taken for parted."""
    random = np.random.default_rng(7)
    found = [part(col(list(a)), col(list(b))).step for a, b in random.normal(size=(200, 2, 300))]
    assert sum(step is not None for step in found) <= 2
