"""Two runs made by hand: NaN in one only, findings in one only, metrics that do not count."""

from __future__ import annotations

import math
from dataclasses import replace

from grpo_watch.report.check_document import RunReport
from grpo_watch.report.compare import compare, document
from tests.support.reports import a_finding, a_report, a_series

ROWS = [{"reward_mean": 0.5 + 0.01 * (row % 3), "step_seconds": 1.0, "entropy": 1.0} for row in range(30)]


def a_run(rows: list[dict[str, float]], report: RunReport | None = None) -> RunReport:
    return replace(report or a_report(), series=a_series(rows))


def test_nan_in_one_run_only() -> None:
    """A loss of NaN at row 21 parts them there, though one row is no course."""
    odd = [row if n != 20 else {**row, "entropy": math.nan} for n, row in enumerate(ROWS)]
    comparison = compare(a_run(ROWS), a_run(odd))
    assert (comparison.verdict, comparison.step) == ("parted", 21)
    (metric,) = [metric for metric in document(comparison)["metrics"] if metric["metric"] == "entropy"]
    assert (metric["a"], metric["b"], metric["status"]) == (1.0, "nan", "parted")


def test_a_slower_machine_is_listed_and_does_not_count() -> None:
    slow = [{**row, "step_seconds": 9.0} for row in ROWS]
    comparison = compare(a_run(ROWS), a_run(slow))
    assert (comparison.verdict, comparison.step) == ("same", None)
    (metric,) = [metric for metric in comparison.metrics if metric.name == "step_seconds"]
    assert (metric.status, metric.counted) == ("parted", False)


def test_a_metric_that_only_one_logs() -> None:
    comparison = compare(a_run(ROWS), a_run([{**row, "kl_reference": 0.1} for row in ROWS]))
    assert {metric.name: metric.status for metric in comparison.metrics if metric.parting is None} == {
        "kl_reference": "only-b"
    }


def test_a_finding_parts_where_the_other_run_came_too() -> None:
    """Step 12 is within the common steps, step 80 is not: there the other run had ended."""
    early, late = a_finding("duplicate-completions", first_step=12), a_finding("run-crashed", first_step=80)
    both = a_finding("kl-stuck-at-zero")
    comparison = compare(a_run(ROWS, a_report(both)), a_run(ROWS, a_report(both, early, late)))
    assert (comparison.verdict, comparison.step) == ("parted", 12)
    assert [(lone.of, lone.finding.rule, lone.counted) for lone in comparison.findings] == [
        ("b", "duplicate-completions", True),
        ("b", "run-crashed", False),
    ]


def test_no_common_step() -> None:
    comparison = compare(a_run(ROWS), replace(a_report(), series=a_series(ROWS, first=1000)))
    assert (comparison.verdict, comparison.steps) == ("not-evaluable", ())
