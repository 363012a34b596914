"""Rows become charts: restarts, gaps, NaN and spikes stay visible however much is left out."""

from __future__ import annotations

import ast
import inspect
import math
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.metric_names import METRICS
from grpo_watch.engine.records import MetricRow, Severity, Stream
from grpo_watch.report.charts import KINDS, bands, charts
from grpo_watch.report.series import Series, thinned_rows
from tests.support.reports import a_finding, a_series

VALUE = st.floats(-10, 10) | st.just(math.nan)
NOT_DRAWN = {
    "epoch": "it only rises, with the steps",
    "tokens_seen": "it only rises, with the steps",
    "step_seconds_average": "an average since the start hides what the seconds of each step show",
}
"""Metrics without a chart, and why."""


def test_a_gap_is_no_zero_and_a_nan_is_counted() -> None:
    rows = [{"entropy": 1.0}, {"epoch": 0.1}, {"entropy": math.nan}, {"entropy": math.inf}, {"entropy": 123456.7}]
    (chart,) = charts(a_series(rows))
    assert chart["title"] == "Entropy"
    assert chart["x"] == [1, 2, 3, 4, 5]
    assert chart["lines"][0]["y"] == [1.0, None, None, None, 123460.0]
    assert chart["odd"] == 2


def test_metrics_that_come_later_join_their_step() -> None:
    series = a_series([{"reward_mean": 0.5}, {"reward_mean": 0.6}])
    series.take(MetricRow("r", Stream.TRAIN, 1, 1, {"kl_reference": 0.01}, supplement=True))
    reported = {chart["title"]: chart for chart in charts(series)}
    assert reported["KL to the reference"]["x"] == [1, 2]
    assert reported["KL to the reference"]["lines"][0]["y"] == [0.01, None]


def test_what_a_restart_threw_away_is_not_drawn() -> None:
    """Steps 1 to 5; the second attempt begins again at 4."""
    series = a_series([{"entropy": float(step)} for step in range(1, 6)])
    for step in (4, 5, 6):
        series.take(MetricRow("r", Stream.TRAIN, 2, step, {"entropy": step + 0.5}))
    (chart,) = charts(series)
    (line,) = chart["lines"]
    assert chart["x"] == [1, 2, 3, 4, 5, 6]
    assert line["y"] == [1.0, 2.0, 3.0, 4.5, 5.5, 6.5]


@pytest.mark.parametrize(
    "logged", [("reward_batch_std",), ("reward_group_std",), ("reward_batch_std", "reward_group_std")]
)
def test_each_spread_has_a_chart_that_says_which_it_is(logged: tuple[str, ...]) -> None:
    """Whatever else is logged: TRL gives the share of groups without spread beside either."""
    reported = charts(a_series([{"reward_zero_std_ratio": 0.5, **dict.fromkeys(logged, 0.3)}]))
    titles = {line["name"]: chart["title"] for chart in reported for line in chart["lines"]}
    expected = {
        "reward_group_std": "Reward spread inside the groups",
        "reward_batch_std": "Reward spread over the whole batch",
    }
    assert {name: titles.get(name) for name in expected} == {
        name: title if name in logged else None for name, title in expected.items()
    }


def test_every_metric_that_a_rule_reads_has_a_chart() -> None:
    drawn = {metric for metrics in KINDS.values() for metric in metrics}
    read: dict[str, set[str]] = {}
    for name, detector in catalogue().items():
        tree = ast.parse(inspect.getsource(inspect.getmodule(detector)))  # type: ignore[arg-type]
        texts = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        read[name] = (texts | {need for needed in detector.needs for need in needed}) & METRICS.keys()
    assert {name: metrics - drawn - NOT_DRAWN.keys() for name, metrics in read.items() if metrics} == {
        name: set() for name, metrics in read.items() if metrics
    }
    assert {"memory-creep", "clip-fraction-high", "train-rollout-mismatch"} <= {name for name in read if read[name]}


def test_every_metric_has_one_chart_or_a_reason() -> None:
    drawn = [metric for metrics in KINDS.values() for metric in metrics]
    assert sorted([*drawn, *NOT_DRAWN]) == sorted(METRICS)


def test_a_single_reward_function_is_the_total() -> None:
    one = a_series([{"reward_mean": 1.0, "reward_function_mean[x]": 1.0}])
    two = a_series([{"reward_mean": 1.0, "reward_function_mean[x]": 1.0, "reward_function_mean[y]": 0.0}])
    assert len(charts(one)[0]["lines"]) == 1
    assert len(charts(two)[0]["lines"]) == 3


def test_nothing_to_draw() -> None:
    assert charts(Series()) == []


@given(st.lists(st.tuples(VALUE, VALUE), min_size=1, max_size=80), st.integers(6, 30))
def test_no_extreme_is_lost(values: list[tuple[float, float]], most: int) -> None:
    columns = list(zip(*values, strict=True))
    rows = thinned_rows(columns, range(len(values)), most)
    assert list(rows) == sorted(set(rows))
    assert {0, len(values) - 1} <= set(rows)
    assert len(rows) <= most
    for column in columns:
        logged, shown = (
            [value for value in values if not isnan(value)] for values in (column, [column[r] for r in rows])
        )
        if logged:
            assert (min(shown), max(shown)) == (min(logged), max(logged))


def test_every_spike_stays() -> None:
    """A value of 9 at one row in a thousand, of 100,000 rows thinned to 700."""
    column = [9.0 if row % 1000 == 500 else 0.0 for row in range(100_000)]
    assert sum(column[row] == 9.0 for row in thinned_rows([column], range(100_000), 700)) == 100


def test_bands_of_what_is_worth_a_look() -> None:
    """Consequences first, so that their cause is drawn over them; no band for an explanation."""
    info = a_finding("entropy-collapse", severity=Severity.INFO)
    consequence = a_finding("reward-collapse", caused_by="kl-stuck-at-zero", severity=Severity.WARNING)
    reported = bands([a_finding(resolved_step=15), consequence, info])
    assert [(band["rule"], band["explained"]) for band in reported] == [
        ("reward-collapse", True),
        ("kl-stuck-at-zero", False),
    ]
    assert (reported[1]["first"], reported[1]["fired"], reported[1]["resolved"]) == (2, 10, 15)
