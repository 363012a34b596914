"""Whether a log's numbers were rounded, judged by the numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.engine.learning import Decimals
from tests.support.records import row

NORMS, LENGTHS, REWARDS = (0.43216, 0.78921, 0.55555), (312.65432, 287.12345, 301.87654), (1.23456, -2.34567, 0.98765)


def seen(*rows: dict[str, float | None]) -> float | None:
    decimals = Decimals()
    for step, values in enumerate(rows, 1):
        decimals.add_row(row(step, **values))
    return decimals.resolution


def three(shown: object) -> list[dict[str, float | None]]:
    """Three rows of three metrics as ``shown`` prints them, each with a zero KL and a rate of its own precision."""
    assert callable(shown)
    metrics = ("grad_norm", "completion_length_mean", "reward_mean")
    own: dict[str, float | None] = {"kl_reference": 0.0, "learning_rate": 1.2345678e-6}
    rows = zip(NORMS, LENGTHS, REWARDS, strict=True)
    return [{**own, **{m: shown(v) for m, v in zip(metrics, each, strict=True)}} for each in rows]


@pytest.mark.parametrize("decimals", [1, 2, 3, 4])
def test_rounded_numbers_show_their_last_decimal(decimals: int) -> None:
    assert seen(*three(lambda value: round(value, decimals))) == pytest.approx(10.0**-decimals)


def test_significant_digits_hide_no_small_number() -> None:
    """transformers 5 prints 0.4322, 312.7 and 1.235: a small number keeps its four digits and is never 0."""
    assert seen(*three(lambda value: float(f"{value:.4g}"))) is None


def test_one_float_in_full_ends_it() -> None:
    rows = three(lambda value: round(value, 3))
    assert seen(*rows, {"entropy": 0.123456789}, *rows) is None


def test_a_few_numbers_tell_nothing() -> None:
    """Two rows have six fractions; shares and whole numbers of two metrics are no sign either."""
    assert seen(*three(lambda value: round(value, 3))[:2]) is None
    assert seen(*[{"reward_mean": 1.25, "completion_length_mean": 200.25, "kl_reference": 0.0}] * 20) is None
    assert seen(*[{"reward_mean": None, "grad_norm": float("nan"), "entropy": float("inf")}] * 20) is None


def test_eight_fractions_of_three_metrics_are_enough() -> None:
    """Two rows of three metrics and one more value hold seven; four rows of two metrics hold eight."""
    rows = three(lambda value: round(value, 3))
    assert seen(*rows[:2], {"grad_norm": 0.556}) is None
    assert seen(*rows[:2], {"grad_norm": 0.556, "reward_mean": 0.988}) == 1e-3
    assert seen(*[{"grad_norm": 0.432, "reward_mean": 1.235}] * 4) is None


@given(st.lists(st.tuples(*[st.floats(-1e6, 1e6)] * 3), min_size=3, max_size=20), st.integers(0, 8))
def test_no_printed_number_lies_below_what_a_log_can_show(printed: list[tuple[float, ...]], decimals: int) -> None:
    """A resolution above a number that was printed would excuse zeros that are real."""
    values = [[round(value, decimals) for value in each] for each in printed]
    resolution = seen(*(dict(zip(("grad_norm", "entropy", "reward_mean"), each, strict=True)) for each in values))
    smallest = min((abs(value) for each in values for value in each if value), default=1.0)
    assert resolution is None or smallest >= resolution * 0.999
