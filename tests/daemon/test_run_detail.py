"""What a run's page shows beyond its snapshot: equal completions; bounded, stored and read again."""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import replace

from grpo_watch.daemon import run_detail
from grpo_watch.daemon.run_detail import RunDetail, RunDetailRecorder, pack, unpack, unpack_sparks
from grpo_watch.engine.records import (
    CompletionSummary,
    GroupSummary,
    MetricRow,
    Stream,
)
from grpo_watch.report.charts import charts, sparks
from grpo_watch.web.run_pages import columns_document


def group(*pattern: int) -> GroupSummary:
    return GroupSummary("p", len(pattern), pattern, len(set(pattern)), (20,) * len(pattern))


def batch(step: int, *groups: GroupSummary) -> CompletionSummary:
    return CompletionSummary("c", step, groups)


def test_a_batch_keeps_who_is_equal() -> None:
    recorder = RunDetailRecorder()
    recorder.observe(batch(5, group(0, 1, 0, 1), group(0, 1, 2, 3)))
    (view,) = recorder.batches
    assert view.patterns == (bytes([0, 1, 0, 1]), bytes([0, 1, 2, 3]))
    assert (view.step, view.groups, view.completions, view.repeated) == (5, 2, 8, 2)


def test_rows_of_the_table_of_completions() -> None:
    """Lengths and rewards of the first completions; they come back from the state as they were."""
    one = replace(group(0, 0), rewards={"format": (0.5, None), "advantage": (math.inf, -1.0)}, shown=("p", "a", "a"))
    recorder = RunDetailRecorder()
    recorder.observe(batch(5, one, group(*range(40))))
    detail = recorder.detail()
    first, second = detail.batches[0].listed
    assert (first.length_column(), first.shown) == ([20, 20], ("p", "a", "a"))
    assert first.score_columns() == {"format": [0.5, None], "advantage": [math.inf, -1.0]}
    assert (len(second.length_column()), second.shown) == (run_detail.LISTED_EACH, ())
    assert unpack(pack(detail)).batches == detail.batches


def test_a_batch_of_an_older_state_lists_nothing() -> None:
    rows = {"attempts": [1, 1], "steps": [1, 9], "columns": {"loss": [0.5, 0.1]}, "odd": {}, "rows": 9, "stride": 5}
    batch = {"step": 1, "groups": 1, "completions": 2, "repeated": 0, "patterns": ["AAE="], "reason": ""}
    stored = {"thinned": rows, "batches": [batch]}
    packed = zlib.compress(json.dumps(stored).encode())
    front = zlib.compress(b"{}")
    detail = unpack(b"close-up 1\n" + len(front).to_bytes(4, "big") + front + packed)
    (view,) = detail.batches
    assert (view.patterns, view.listed) == ((bytes([0, 1]),), ())
    assert (detail.series.logged, detail.series.column("loss")) == (9, [0.5, 0.1])


def test_a_metric_that_was_never_finite_has_its_chart_in_the_stored_detail() -> None:
    recorder = RunDetailRecorder()
    for step in range(1, 11):
        recorder.observe(MetricRow("r", Stream.TRAIN, 1, step, {"reward_mean": 0.5, "kl_reference": math.inf}))
    series = unpack(pack(recorder.detail())).series
    (chart,) = [chart for chart in charts(series) if chart["title"] == "KL to the reference"]
    assert chart["odd"] == 10


def test_batches_are_bounded() -> None:
    recorder = RunDetailRecorder()
    wide = group(*range(300))
    for step in range(100):
        recorder.observe(batch(step, *(wide,) * 200))
    recorder.observe(batch(99, wide))
    assert [view.step for view in recorder.batches] == list(range(92, 100))
    assert recorder.batches[-1].groups == 1
    assert len(recorder.batches) == run_detail.BATCHES
    assert len(recorder.batches[0].patterns) == run_detail.GROUPS
    assert len(recorder.batches[0].patterns[0]) == run_detail.POSITIONS
    assert (recorder.batches[0].groups, recorder.batches[0].completions) == (200, 60_000)
    assert len(recorder.batches[0].listed) == run_detail.LISTED_GROUPS


def test_it_comes_back_from_the_store() -> None:
    detail_recorder = RunDetailRecorder()
    for step in range(1, 2_001):
        detail_recorder.observe(
            MetricRow("r", Stream.TRAIN, 1, step, {"reward_mean": step / 7, "loss": None}, time=1e9 + step)
        )
    detail_recorder.observe(MetricRow("r", Stream.EVAL, 1, 2_000, {"eval_score[reward]": 0.25}))
    detail_recorder.observe(batch(3, group(0, 1, 0, 1)))
    detail = detail_recorder.detail()
    assert columns_document(detail.series)["step"][-1] == 2_000
    assert columns_document(detail.series)["eval_score[reward]"][-2:] == [None, 0.25]
    packed = pack(detail)
    again = unpack(packed)
    assert columns_document(again.series) == columns_document(detail.series)
    assert (again.series.logged, again.batches) == (2_000, detail.batches)
    assert unpack_sparks(packed) == sparks(detail.series)


def test_sparklines_are_worked_out_once_for_each_row() -> None:
    detail_recorder = RunDetailRecorder()
    assert detail_recorder.sparks() == {}
    detail_recorder.observe(MetricRow("r", Stream.TRAIN, 1, 1, {"reward_mean": 0.5, "loss": 1.0}))
    first = detail_recorder.sparks()
    assert first == sparks(detail_recorder.detail().series)
    assert detail_recorder.sparks() is first
    detail_recorder.observe(MetricRow("r", Stream.TRAIN, 1, 1, {"entropy": 2.0}, supplement=True))
    assert set(detail_recorder.sparks()) == {"reward", "entropy"}


def test_what_is_no_run_detail_shows_nothing() -> None:
    for nothing in map(unpack, (None, b"another format")):
        assert (len(nothing.series), nothing.batches, nothing.keys) == (0, (), {})
    assert unpack_sparks(b"another format") == {}


def test_the_mark_that_state_files_hold_stays() -> None:
    """Another mark would make every stored run detail unreadable."""
    assert pack(RunDetail()).startswith(b"close-up 1\n")


def test_rows_with_values_that_are_no_numbers_come_back() -> None:
    """Pairs for keys, as ``asdict`` makes of a Counter, can not be stored: the daemon died at the end of such a run."""
    recorder = RunDetailRecorder()
    for step, loss in ((1, 0.5), (2, math.nan), (3, math.inf)):
        recorder.observe(MetricRow("run", Stream.TRAIN, 1, step, {"loss": loss}))
    detail = recorder.detail()
    assert unpack(pack(detail)).series.odd_values("loss") == 2
