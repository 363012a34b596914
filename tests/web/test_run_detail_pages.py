"""Charts over steps and over time: bands, and where a restart went on, stand on the same axis as the lines."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import MetricRow, Stream
from grpo_watch.report.series import Series, ThinnedColumns
from grpo_watch.web.run_pages import charts_document
from tests.support.reports import a_finding, a_report

BEGIN = 1.7e9


def rows() -> Iterator[MetricRow]:
    """Steps 1 to 10, a minute each; an hour later the second attempt goes on from step 8."""
    for step in range(1, 11):
        yield MetricRow("r", Stream.TRAIN, 1, step, {"entropy": float(step)}, time=BEGIN + 60 * step)
    for step in range(8, 13):
        yield MetricRow("r", Stream.TRAIN, 2, step, {"entropy": step + 0.5}, time=BEGIN + 3_600 + 60 * step)


def shown() -> dict[str, object]:
    history = Series()
    for row in rows():
        history.take(row)
    finding = a_finding(first_step=2, fired_step=10, resolved_step=9)  # over in the second attempt
    return charts_document(a_report(finding).snapshot, history, {})


def test_over_steps() -> None:
    document = shown()
    (chart,) = document["charts"]  # type: ignore[misc]
    assert chart["x"] == list(range(1, 13))
    assert chart["lines"][0]["y"][6:] == [7.0, 8.5, 9.5, 10.5, 11.5, 12.5]
    assert len(chart["lines"]) == 1
    assert document["resumes"] == [{"attempt": 2, "at": 8}]
    assert document["bands"][0]["fired"] == 10  # type: ignore[index]


def test_nothing_to_draw() -> None:
    document = charts_document(a_report().snapshot, Series(), {})
    assert (document["charts"], document["resumes"]) == ([], [])


def test_copies_are_proven_by_their_share_not_by_the_entropy_beside_it() -> None:
    values: dict[str, list[float | None]] = {"entropy": [2.0] * 5, "completion_duplicate_ratio": [0.5] * 5}
    rows = Series.of(ThinnedColumns([1] * 5, [1, 2, 3, 4, 5], values, rows=5))
    copies = a_finding("duplicate-completions", evidence={"pattern": "0, 1", "groups_alike_ratio": 1.0, "entropy": 2.0})
    charts = charts_document(a_report(copies).snapshot, rows, {})["charts"]
    assert [(chart["title"], chart["lead"]) for chart in charts] == [
        ("Completions cut off or repeated (share)", True),
        ("Entropy", False),
    ]


def test_the_chart_that_proves_the_top_finding_leads_and_only_evidence_is_shaded() -> None:
    """The finding's own evidence names its metric; a rule whose evidence is no metric goes by what it reads."""
    steps = list(range(1, 21))
    values: dict[str, list[float | None]] = {
        name: [0.0] * 20 for name in ("reward_mean", "kl_reference", "loss", "completion_duplicate_ratio")
    }
    rows = Series.of(ThinnedColumns([1] * 20, steps, values, rows=20))
    copies = a_finding("duplicate-completions", evidence={"pattern": "(0, 1, 0, 1)", "entropy": None})
    snapshot = a_report(a_finding(), copies).snapshot
    charts = charts_document(snapshot, rows, {})["charts"]
    shown = {chart["title"]: (chart["lead"], chart["rules"]) for chart in charts}
    assert charts[0]["title"] == "KL to the reference"
    assert shown["KL to the reference"] == (True, ["kl-stuck-at-zero"])
    assert shown["Completions cut off or repeated (share)"] == (False, ["duplicate-completions"])
    assert shown["Loss"] == (False, [])


def test_a_line_names_the_key_of_the_runs_own_rows() -> None:
    """What is computed here has none."""
    keys = {"entropy": "train/entropy"}
    history = Series()
    for row in rows():
        history.take(row._replace(values={**row.values, "loss": 0.5}))
    drawn = charts_document(a_report().snapshot, history, keys)["charts"]
    found = {line["name"]: line["key"] for chart in drawn for line in chart["lines"]}
    assert found == {"entropy": "train/entropy", "loss": None}


def test_steps_that_a_restart_repeats_thin_no_chart() -> None:
    """1 to 6, then again from 4 on: 9 rows of 6 steps, all of which are drawn."""
    history = Series()
    for attempt, step in [*((1, step) for step in range(1, 7)), *((2, step) for step in range(4, 7))]:
        history.take(MetricRow("r", Stream.TRAIN, attempt, step, {"loss": 0.5}))
    (chart,) = charts_document(a_report().snapshot, history, {})["charts"]
    assert chart["rows"] == len(chart["x"]) == 6


def test_the_line_that_proves_the_finding_comes_first() -> None:
    history = Series()
    values = {"completion_truncated_ratio": 1.0, "completion_duplicate_ratio": 0.5}
    for step in (1, 2, 3):
        history.take(MetricRow("r", Stream.TRAIN, 1, step, values))
    finding = a_finding("duplicate-completions", evidence={})
    (chart,) = charts_document(a_report(finding).snapshot, history, {})["charts"]
    assert [line["name"] for line in chart["lines"]] == ["completion_duplicate_ratio", "completion_truncated_ratio"]


def test_any_logged_metric_has_a_chart_on_request() -> None:
    """Those that no other chart shows: reward functions beyond six, and what no rule reads."""
    history = Series()
    functions = {f"reward_function_mean[f{number}]": 0.5 for number in range(8)}
    history.take(MetricRow("r", Stream.TRAIN, 1, 1, {"loss": 0.5, "tokens_seen": 9.0, **functions}))
    document = charts_document(a_report().snapshot, history, {})
    titles = [chart["title"] for chart in document["further"]]
    assert titles == ["tokens_seen", "reward_function_mean[f6]", "reward_function_mean[f7]"]
    assert [chart["lines"][0]["y"] for chart in document["further"]] == [[9.0], [0.5], [0.5]]
