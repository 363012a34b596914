"""Rows become charts: restarts, gaps, NaN and spikes stay visible however much is left out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.core.records import MetricRow, Severity, Stream
from grpo_watch.report import series as series_module
from grpo_watch.report.series import Series
from grpo_watch.report.thin import telling_rows
from grpo_watch.runtime.charts import bands, charts
from tests.support.reports import a_finding, a_series

VALUE = st.floats(-10, 10) | st.just(math.nan)


def test_a_gap_is_no_zero_and_a_nan_is_counted() -> None:
    rows = [{"entropy": 1.0}, {"loss": 0.1}, {"entropy": math.nan}, {"entropy": math.inf}, {"entropy": 123456.7}]
    (chart,) = charts(a_series(rows))
    assert chart["title"] == "Entropy"
    assert chart["x"] == [1, 2, 3, 4, 5]
    assert chart["lines"][0]["y"] == [1.0, None, None, None, 123460.0]
    assert chart["odd"] == 2


def test_metrics_that_come_later_join_their_step() -> None:
    series = a_series([{"reward_mean": 0.5}, {"reward_mean": 0.6}])
    series.take(MetricRow("r", Stream.TRAIN, 1, 1, {"kl_reference": 0.01}, supplement=True))
    told = {chart["title"]: chart for chart in charts(series)}
    assert told["KL to the reference"]["x"] == [1, 2]
    assert told["KL to the reference"]["lines"][0]["y"] == [0.01, None]


def test_a_restart_keeps_what_was_thrown_away_apart() -> None:
    """Steps 1 to 5; the second attempt begins again at 4."""
    series = a_series([{"entropy": float(step)} for step in range(1, 6)])
    for step in (4, 5, 6):
        series.take(MetricRow("r", Stream.TRAIN, 2, step, {"entropy": step + 0.5}))
    (chart,) = charts(series)
    line, lost = chart["lines"]
    assert chart["x"] == [1, 2, 3, 4, 5, 6]
    assert line["y"] == [1.0, 2.0, 3.0, 4.5, 5.5, 6.5]
    assert (lost["y"], lost["faint"]) == ([None, None, None, 4.0, 5.0, None], True)


def test_the_batch_spread_stands_in_only() -> None:
    both = a_series([{"reward_group_std": 0.2, "reward_batch_std": 0.3}])
    alone = a_series([{"reward_batch_std": 0.3}])
    assert [line["name"] for line in charts(both)[0]["lines"]] == ["reward_group_std"]
    assert [line["name"] for line in charts(alone)[0]["lines"]] == ["reward_batch_std"]


def test_a_single_reward_function_is_the_total() -> None:
    one = a_series([{"reward_mean": 1.0, "reward_function_mean[x]": 1.0}])
    two = a_series([{"reward_mean": 1.0, "reward_function_mean[x]": 1.0, "reward_function_mean[y]": 0.0}])
    assert len(charts(one)[0]["lines"]) == 1
    assert len(charts(two)[0]["lines"]) == 3


def test_nothing_to_draw() -> None:
    assert charts(Series()) == []


def test_rows_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_module, "MOST_ROWS", 3)
    series = a_series([{"loss": 1.0}] * 5)
    assert (len(series), series.left_out) == (3, 2)


@given(st.lists(st.tuples(VALUE, VALUE), min_size=1, max_size=80), st.integers(6, 30))
def test_no_extreme_is_lost(values: list[tuple[float, float]], most: int) -> None:
    columns = [np.array(column) for column in zip(*values, strict=True)]
    rows = telling_rows(columns, most)
    assert list(rows) == sorted(set(rows))
    assert {0, len(values) - 1} <= set(rows)
    assert len(rows) <= most
    for column in columns:
        if not np.isnan(column).all():
            assert np.nanmax(column[rows]) == np.nanmax(column)
            assert np.nanmin(column[rows]) == np.nanmin(column)


def test_every_spike_stays() -> None:
    """A value of 9 at one row in a thousand, of 100,000 rows thinned to 700."""
    column = np.zeros(100_000)
    column[500::1000] = 9.0
    assert (column[telling_rows([column], 700)] == 9.0).sum() == 100


def test_bands_of_what_is_worth_a_look() -> None:
    """Consequences first, so that their cause is drawn over them; no band for an explanation."""
    info = a_finding("entropy-collapse", severity=Severity.INFO)
    consequence = a_finding("reward-collapse", caused_by="kl-stuck-at-zero", severity=Severity.WARNING)
    told = bands([a_finding(resolved_step=15), consequence, info])
    assert [(band["rule"], band["explained"]) for band in told] == [
        ("reward-collapse", True),
        ("kl-stuck-at-zero", False),
    ]
    assert (told[1]["first"], told[1]["fired"], told[1]["resolved"]) == (2, 10, 15)
