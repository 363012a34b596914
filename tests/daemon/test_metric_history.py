"""The rows kept for charts: bounded, in order, with every spike; sparklines of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.daemon.metric_history import METRICS, NEWEST, SPANS, MetricHistory
from grpo_watch.engine.records import MetricRow, Stream
from grpo_watch.report.charts import LEVELS, SPARK_POINTS, ThinnedColumns, charts, sparks

MOST = 2 * SPANS + 2 * NEWEST


def row(step: int, values: Mapping[str, float | None], attempt: int = 1, time: float | None = None) -> MetricRow:
    return MetricRow("r", Stream.TRAIN, attempt, step, values, time=time)


def kept(rows: Iterator[MetricRow]) -> ThinnedColumns:
    history = MetricHistory()
    for each in rows:
        history.take(each)
    return history.thinned()


@settings(max_examples=20)
@given(st.integers(1, 6_000), st.sets(st.integers(1, 6_000), max_size=5), st.integers(0, 3))
def test_every_spike_stays_in_bounded_memory(count: int, spikes: set[int], restarts: int) -> None:
    """Up and down, at any row; steps rise within an attempt, and the newest row is exact."""
    spikes = {spike for spike in spikes if spike <= count}
    size = -(-count // (restarts + 1))

    def rows() -> Iterator[MetricRow]:
        for number in range(1, count + 1):
            attempt, step = divmod(number - 1, size)
            value = 1e3 + number if number in spikes else math.sin(number)
            yield row(step + 1, {"up": value, "down": -value}, attempt + 1)

    thinned = kept(rows())
    assert len(thinned) <= MOST
    assert thinned.rows == count
    assert set(map(len, (thinned.attempts, *thinned.columns.values()))) == {len(thinned.steps)}
    for spike in spikes:
        if thinned.stride == 1 or not spikes & set(range(spike - thinned.stride + 1, spike + thinned.stride)) - {spike}:
            assert 1e3 + spike in thinned.columns["up"]
            assert -1e3 - spike in thinned.columns["down"]
    assert sorted(zip(thinned.attempts, thinned.steps, strict=True)) == list(
        zip(thinned.attempts, thinned.steps, strict=True)
    )
    attempt, step = divmod(count - 1, size)
    assert (thinned.attempts[-1], thinned.steps[-1]) == (attempt + 1, step + 1)


@settings(max_examples=15)
@given(st.integers(900, 3_000), st.integers(0, 2**32 - 1))
def test_the_envelope_covers_every_row(count: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=count)
    thinned = kept(row(step, {"x": float(value)}) for step, value in enumerate(values, start=1))
    steps, column = np.array(thinned.steps), np.array(thinned.columns["x"], dtype=float)
    begins = np.searchsorted(steps, np.arange(1, count + 1), side="right") - 1
    for step, value in enumerate(values, start=1):
        at = begins[step - 1]
        around = column[max(0, at - 1) : at + 2]
        assert around.min() <= value <= around.max()


def test_a_hundred_thousand_steps_in_little_memory() -> None:
    """Ten metrics; counted in the numbers that are kept."""
    history = MetricHistory()
    names = [f"metric_{number}" for number in range(10)]
    for step in range(1, 100_001):
        history.take(row(step, dict.fromkeys(names, 77.0 if step == 54_321 else 0.5)))
    kept_bytes = sum(column.itemsize * len(column) for column in history._columns.values())
    assert len(history._columns) == 10
    assert kept_bytes <= 10 * SPANS * 16
    assert len(history._fresh) < 2 * NEWEST
    (chart,) = charts(_named(history.thinned(), "metric_7", "grad_norm"))
    assert max(chart["lines"][0]["y"]) == 77.0
    assert len(chart["x"]) <= MOST


def _named(thinned: ThinnedColumns, old: str, new: str) -> ThinnedColumns:
    return ThinnedColumns(thinned.attempts, thinned.steps, {new: thinned.columns[old]}, rows=thinned.rows)


def test_more_metrics_than_are_kept() -> None:
    rows = ({f"m{number:04}": 1.0 for number in range(400)} for _ in range(1_000))
    thinned = kept(row(step, values) for step, values in enumerate(rows, start=1))
    assert len(thinned.columns) == METRICS


def test_many_restarts_are_bounded() -> None:
    thinned = kept(row(step, {"x": float(attempt)}, attempt) for attempt in range(1, 2_001) for step in (1, 2))
    assert len(thinned) <= MOST
    assert (thinned.columns["x"][0], thinned.columns["x"][-1]) == (1.0, 2000.0)


def test_metrics_that_come_and_go_and_numbers_that_are_none() -> None:
    rows = [row(1, {"loss": 0.5, "kl": math.nan}), row(2, {"kl": None}), row(3, {"kl": math.inf}, time=9.0)]
    thinned = kept(iter(rows))
    assert thinned.series() == {"step": [1, 2, 3], "kl": [None, None, None], "loss": [0.5, None, None]}
    assert thinned.odd_values("kl") == 2


def test_odd_numbers_are_counted_when_they_are_thinned_too() -> None:
    thinned = kept(row(step, {"x": math.nan if step % 10 == 0 else 1.0}) for step in range(1, 5_001))
    assert thinned.odd_values("x") == 500


def test_what_comes_late_joins_its_step() -> None:
    """Into the newest rows, and into a stretch that is thinned already."""
    history = MetricHistory()
    for step in range(1, 3_001):
        history.take(row(step, {"loss": 0.5}))
    history.take(row(3_000, {"kl_reference": 0.25}))
    history.take(row(10, {"kl_reference": 9.0}))
    thinned = history.thinned()
    kl = np.array(thinned.columns["kl_reference"], dtype=float)
    assert (kl[-1], np.nanmax(kl)) == (0.25, 9.0)
    assert thinned.steps[int(np.nanargmax(kl))] <= 16
    assert history.recent("kl_reference", 1) == [0.25]


def evaluation(step: int) -> MetricRow:
    return MetricRow("r", Stream.EVAL, 1, step, {"eval_score[acc]": 0.5})


def test_an_evaluation_read_ahead_leaves_the_rows_of_training_in_their_order() -> None:
    """A dump of step 20 behind row 10; and one of step 15 behind all of them."""
    trained = [row(step, {"loss": float(step)}) for step in range(1, 21) if step != 15]
    thinned = kept(iter([*trained[:10], evaluation(20), *trained[10:], evaluation(15)]))
    assert thinned.steps == [*range(1, 21)]
    assert thinned.columns["loss"] == [float(step) if step != 15 else None for step in range(1, 21)]
    scores = thinned.columns["eval_score[acc]"]
    assert [step for step, score in zip(thinned.steps, scores, strict=True) if score is not None] == [15, 20]


def test_rows_behind_hundreds_of_evaluations_join_their_stretches() -> None:
    rows = [row(step, {"loss": 9.0 if step == 777 else 0.5}) for step in range(1, 3_001)]
    thinned = kept(iter([*map(evaluation, range(10, 3_001, 10)), *rows]))
    assert thinned.steps == sorted(thinned.steps)
    assert abs(thinned.steps[thinned.columns["loss"].index(9.0)] - 777) < 10 * 2 * thinned.stride
    assert len(thinned) <= MOST


def test_a_sparkline_is_small_and_keeps_the_spike() -> None:
    rows = ({"reward_mean": 5.0 if step == 777 else 0.0, "completion_duplicate_ratio": 0.25} for step in range(2_000))
    found = sparks(kept(row(step, values) for step, values in enumerate(rows, start=1)))
    assert set(found) == {"reward", "unique"}
    reward = found["reward"]
    assert len(reward.x) <= SPARK_POINTS
    assert (max(reward.y), reward.low, reward.high, reward.last) == (LEVELS, 0.0, 5.0, 0.0)
    assert abs(reward.x[reward.y.index(LEVELS)] - LEVELS * 777 / 2_000) <= 1
    assert found["unique"].last == 0.75


def test_a_sparkline_of_extremes() -> None:
    found = sparks(kept(iter([row(1, {"entropy": 1.7e308}), row(2, {"entropy": -1.7e308})])))
    assert found["entropy"].y == [LEVELS, 0]
    assert sparks(ThinnedColumns()) == {}
