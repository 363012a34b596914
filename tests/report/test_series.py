"""The rows kept of a run: bounded while it is watched, with every spike; sparklines of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.records import MetricRow, Stream
from grpo_watch.report.charts import LEVELS, POINTS, SPARK_POINTS, sparks
from grpo_watch.report.series import LIVE_NUMBERS, LIVE_ROWS, MOST_METRICS, NEWEST, Series, ThinnedColumns, thinned_rows

FEW = 2_000
"""Numbers that are kept in these tests: a thousand rows of two metrics."""


def row(step: int, values: Mapping[str, float | None], attempt: int = 1) -> MetricRow:
    return MetricRow("r", Stream.TRAIN, attempt, step, values)


def kept(rows: Iterable[MetricRow], most: int = FEW) -> Series:
    series = Series(most)
    for each in rows:
        series.take(each)
    return series


def picked(series: Series) -> ThinnedColumns:
    """All rows that are kept."""
    return series.pick(series.metrics, len(series))


@settings(max_examples=20)
@given(st.integers(1, 6_000), st.sets(st.integers(1, 6_000), max_size=5), st.integers(0, 3))
def test_the_greatest_spikes_stay_in_bounded_memory(count: int, spikes: set[int], restarts: int) -> None:
    """Up and down, at any row; steps rise within an attempt, and the newest rows are exact."""
    spikes = {spike for spike in spikes if spike <= count}
    size = -(-count // (restarts + 1))
    values = {number: 1e3 + number if number in spikes else math.sin(number) for number in range(1, count + 1)}
    places = {number: ((number - 1) // size + 1, (number - 1) % size + 1) for number in values}
    series = kept(row(step, {"up": values[n], "down": -values[n]}, attempt) for n, (attempt, step) in places.items())
    thinned = picked(series)
    assert len(series) <= FEW // 2
    assert (series.logged, len(series) == count) == (count, count <= FEW // 2)
    assert set(map(len, (thinned.attempts, *thinned.columns.values()))) == {len(thinned.steps)}
    assert max(value for value in thinned.columns["up"] if value is not None) == max(values.values())
    assert min(value for value in thinned.columns["down"] if value is not None) == -max(values.values())
    there = list(zip(thinned.attempts, thinned.steps, strict=True))
    assert there == sorted(there)
    assert there[-NEWEST:] == list(places.values())[-NEWEST:]
    assert series.recent("up", NEWEST) == list(values.values())[-NEWEST:]


@settings(max_examples=15)
@given(st.integers(1_500, 4_000), st.integers(0, 2**32 - 1))
def test_each_part_of_a_long_run_keeps_its_extremes(count: int, seed: int) -> None:
    """Of every eighth of the rows, give or take the stretches of all thinnings (141 rows)."""
    values = np.random.default_rng(seed).normal(size=count)
    thinned = picked(kept(row(step, {"x": float(value), "y": 0.0}) for step, value in enumerate(values, start=1)))
    steps, column = np.array(thinned.steps), np.array(thinned.columns["x"], dtype=float)
    for part in np.array_split(np.arange(count), 8):
        inside = column[(steps > part[0] - 141) & (steps <= part[-1] + 1 + 141)]
        assert inside.min() <= values[part].min()
        assert inside.max() >= values[part].max()


@pytest.mark.slow
def test_a_hundred_thousand_steps_in_little_memory() -> None:
    """Ten metrics; counted in the numbers that are kept."""
    names = [f"metric_{number}" for number in range(10)]
    rows = (row(step, dict.fromkeys(names, 77.0 if step == 54_321 else 0.5)) for step in range(1, 100_001))
    series = kept(rows, LIVE_NUMBERS)
    assert 10 * len(series) <= LIVE_NUMBERS
    assert max(series.column("metric_7")) == 77.0
    assert (series.logged, series.places[1][-1]) == (100_000, 100_000)


@pytest.mark.parametrize(("varying", "constant"), [(1, 0), (3, 57), (60, 0)])
def test_a_long_run_has_no_wide_gaps_however_many_metrics_it_has(varying: int, constant: int) -> None:
    noise = np.random.default_rng(3).normal(size=(10_000, varying)).tolist()
    still = {f"still{number}": 0.0 for number in range(constant)}
    series = Series(LIVE_NUMBERS, LIVE_ROWS)
    for step, values in enumerate(noise, start=1):
        series.take(row(step, {**{f"varies{number}": value for number, value in enumerate(values)}, **still}))
    assert len(series) <= LIVE_ROWS
    assert len(series) * (varying + constant) <= LIVE_NUMBERS
    assert np.diff(series.pick(["varies0"], POINTS).steps).max() < 100


def test_rows_are_bounded_too() -> None:
    """Of one metric, and of none at all."""
    series = Series(LIVE_NUMBERS, LIVE_ROWS)
    for step in range(1, 10_001):
        series.take(row(step, {"loss": None} if step % 2 else {"loss": 0.5}))
    assert len(series) <= LIVE_ROWS
    assert series.logged == 5_000
    nothing = kept(row(step, {"loss": None}) for step in range(1, 1_001))
    assert (len(nothing), nothing.logged, nothing.taken) == (0, 0, 1_000)


def test_metrics_with_one_value_each_at_different_rows_are_bounded() -> None:
    """Fifty scores, evaluated in turn."""
    columns = [[0.5 if at % 50 == number else math.nan for at in range(5_000)] for number in range(50)]
    shown = thinned_rows(columns, range(5_000), 500)
    assert len(shown) <= 500
    assert all(any(column[at] == 0.5 for at in shown) for column in columns)


def test_a_metric_that_was_only_infinite_keeps_its_column() -> None:
    series = kept(row(step, {"kl_reference": math.inf}) for step in range(1, 11))
    again = Series.of(picked(series))
    assert (again.metrics, again.odd_values("kl_reference")) == (["kl_reference"], 10)
    assert (len(again), again.logged) == (10, 10)


def test_a_thinned_row_is_not_counted_again() -> None:
    """Two channels give a step's metrics one after the other, here the second one for all steps at once."""
    series = Series(LIVE_NUMBERS, 500)
    for name in ("loss", "entropy"):
        for step in range(1, 2_001):
            series.take(row(step, {name: 0.5}))
    copy = series.copy()
    copy.take(row(3, {"kl": 0.5}))
    assert (series.logged, copy.logged) == (2_000, 2_000)


def test_more_metrics_than_are_kept() -> None:
    rows = ({f"m{number:04}": 1.0 for number in range(400)} for _ in range(100))
    series = kept((row(step, values) for step, values in enumerate(rows, start=1)), LIVE_NUMBERS)
    assert len(series.metrics) == MOST_METRICS


def test_many_restarts_are_bounded() -> None:
    thinned = picked(kept(row(step, {"x": float(attempt)}, attempt) for attempt in range(1, 2_001) for step in (1, 2)))
    assert len(thinned.steps) <= FEW
    assert (thinned.columns["x"][0], thinned.columns["x"][-1]) == (1.0, 2000.0)


def test_metrics_that_come_and_go_and_numbers_that_are_none() -> None:
    series = kept([row(1, {"loss": 0.5, "kl": math.nan}), row(2, {"kl": None}), row(3, {"kl": math.inf})])
    thinned = picked(series)
    assert (thinned.steps, thinned.columns) == ([1, 3], {"kl": [None, None], "loss": [0.5, None]})
    assert (series.odd_values("kl"), series.odd_rows("kl"), thinned.odd["kl"]) == (2, [0, 1], 2)


def test_odd_numbers_are_counted_when_they_are_thinned_too() -> None:
    series = kept(row(step, {"x": math.nan if step % 10 == 0 else 1.0}) for step in range(1, 5_001))
    assert series.odd_values("x") == 500


def test_what_comes_late_joins_its_step() -> None:
    """Into the newest rows, and where rows are thinned already."""
    series = kept(row(step, {"loss": 0.5}) for step in range(1, 3_001))
    series.take(row(3_000, {"kl_reference": 0.25}))
    series.take(row(10, {"kl_reference": 9.0}))
    thinned = picked(series)
    kl = dict(zip(thinned.steps, thinned.columns["kl_reference"], strict=True))
    assert (kl[3_000], kl[10]) == (0.25, 9.0)
    assert series.recent("kl_reference", 1) == [0.25]


def evaluation(step: int) -> MetricRow:
    return MetricRow("r", Stream.EVAL, 1, step, {"eval_score[acc]": 0.5})


def test_an_evaluation_read_ahead_leaves_the_rows_of_training_in_their_order() -> None:
    """A dump of step 20 behind row 10; and one of step 15 behind all of them."""
    trained = [row(step, {"loss": float(step)}) for step in range(1, 21) if step != 15]
    thinned = picked(kept([*trained[:10], evaluation(20), *trained[10:], evaluation(15)]))
    assert thinned.steps == [*range(1, 21)]
    assert thinned.columns["loss"] == [float(step) if step != 15 else None for step in range(1, 21)]
    scores = thinned.columns["eval_score[acc]"]
    assert [step for step, score in zip(thinned.steps, scores, strict=True) if score is not None] == [15, 20]


def test_rows_behind_hundreds_of_evaluations_join_their_steps() -> None:
    rows = [row(step, {"loss": 9.0 if step == 777 else 0.5}) for step in range(1, 3_001)]
    thinned = picked(kept([*map(evaluation, range(10, 3_001, 10)), *rows]))
    assert thinned.steps == sorted(set(thinned.steps))
    assert thinned.steps[thinned.columns["loss"].index(9.0)] == 777


def test_a_copy_stays_as_it_was() -> None:
    series = kept(row(step, {"loss": 0.5}) for step in range(1, 11))
    copy = series.copy()
    series.take(row(10, {"loss": 7.0}))
    series.take(row(11, {"loss": math.nan}))
    assert (copy.logged, copy.column("loss"), copy.odd_values("loss")) == (10, [0.5] * 10, 0)


def test_a_sparkline_is_small_and_keeps_the_spike() -> None:
    rows = ({"reward_mean": 5.0 if step == 777 else 0.0, "completion_duplicate_ratio": 0.25} for step in range(2_000))
    found = sparks(kept((row(step, values) for step, values in enumerate(rows, start=1)), LIVE_NUMBERS))
    assert set(found) == {"reward", "unique"}
    reward = found["reward"]
    assert len(reward.x) <= SPARK_POINTS
    assert (max(reward.y), reward.low, reward.high, reward.last) == (LEVELS, 0.0, 5.0, 0.0)
    assert abs(reward.x[reward.y.index(LEVELS)] - LEVELS * 777 / 2_000) <= 1
    assert found["unique"].last == 0.75


def test_a_sparkline_of_extremes() -> None:
    found = sparks(kept(iter([row(1, {"entropy": 1.7e308}), row(2, {"entropy": -1.7e308})])))
    assert found["entropy"].y == [LEVELS, 0]
    assert sparks(Series()) == {}
