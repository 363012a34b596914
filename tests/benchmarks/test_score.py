"""The scorer: its definitions on hand-made answers, its bounds against published values, and the bundled runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.score import as_text, judge, read_label, summary, wilson

ROOT = Path(__file__).parents[2]


def label(kind: str, *must: list[str], may: tuple[str, ...] = (), **more: Any) -> Any:
    return read_label({"id": "x", "entry": "x", "label": kind, "must": list(must), "may": list(may), **more})


def run(*findings: tuple[str, str, int], verdict: str = "critical", steps: int = 100, **causes: str) -> dict[str, Any]:
    shown = [
        {"rule": rule, "severity": severity, "fired_step": step, "caused_by": causes.get(rule.replace("-", "_"))}
        for rule, severity, step in findings
    ]
    return {"verdict": verdict, "steps": steps, "findings": shown}


def test_detected_needs_one_rule_of_every_list() -> None:
    """Info does not count; one of two alternatives does."""
    wanted = label("faulty", ["a", "b"], ["c"])
    assert judge(wanted, [run(("b", "warning", 3), ("c", "critical", 4))]).detected
    assert not judge(wanted, [run(("b", "warning", 3), ("c", "info", 4))]).detected
    assert not judge(label("healthy"), [run()]).detected


def test_false_alarms_on_healthy_runs_only_and_with_their_worst_severity() -> None:
    """`may` and info are fair."""
    reported = [run(("a", "warning", 3), ("a", "critical", 9), ("b", "info", 3), ("c", "warning", 3))]
    assert judge(label("healthy", may=("c",)), reported).false_alarms == {"a": "critical"}
    assert judge(label("faulty", ["z"]), reported).false_alarms == {}


def test_wrong_extras_are_criticals_that_nothing_explains() -> None:
    reported = [
        run(("a", "critical", 3), ("b", "critical", 9), ("c", "warning", 3), ("d", "critical", 1), b="a", d="gone")
    ]
    judged = judge(label("faulty", ["a"]), reported)
    assert (judged.wrong_extras, judged.explained) == ({"d"}, {"b"})


def test_delay_is_of_the_first_matching_finding() -> None:
    """Other rules don't count; a log that counts rows is scaled by its label."""
    reported = [run(("a", "warning", 30), ("b", "critical", 20), ("z", "critical", 1), ("a", "critical", 25))]
    judged = judge(label("faulty", ["a", "b"], fault_start_step=12), reported)
    assert (judged.delay, judged.delays) == (8, {"a": 13, "b": 8})
    counted = label("faulty", ["a"], fault_start_step=100, steps_per_row=10, rows=40)
    assert judge(counted, [run(("a", "warning", 12), steps=40)]).delay == 20
    assert judge(counted, [run(("a", "warning", 120), steps=400)]).delay == 20
    assert judge(label("config-error", ["a"], fault_start_step=0), reported).delay is None


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(0, 0, 0, 1), (0, 10, 0, 0.2775), (10, 10, 0.7225, 1), (81, 263, 0.2553, 0.3662), (1, 29, 0.0061, 0.1718)],
)
def test_wilson(hits: int, of: int, low: float, high: float) -> None:
    """Values without continuity correction from R. G. Newcombe, Statistics in Medicine 17 (1998) 857-872, table I."""
    assert wilson(hits, of) == pytest.approx((low, high), abs=6e-5)


def test_summary_counts_what_was_evaluated() -> None:
    """A healthy run that could not be judged is not quiet; an undetected fault has no delay."""
    judged = [
        judge(label("healthy"), [run(verdict="healthy")]),
        judge(label("healthy"), [run(verdict="not-evaluable")]),
        judge(label("healthy"), [run(("a", "warning", 3))]),
        judge(label("faulty", ["a"], fault_start_step=1), [run(("a", "critical", 6))]),
        judge(label("faulty", ["a"], ["b"], fault_start_step=1), [run(("a", "critical", 9))]),
        judge(label("config-error", ["c"]), []),
    ]
    shown = summary(judged)
    counted = {key: (shown[key]["hits"], shown[key]["of"]) for key in ("detected", "false_alarm", "false_critical")}
    assert counted == {"detected": (1, 2), "false_alarm": (1, 2), "false_critical": (0, 2)}
    assert shown["delay"] == {"runs": 1, "median": 5, "p90": 5, "max": 5, "before_the_fault": 0}
    assert (shown["rules"]["a"]["wanted"]["hits"], shown["rules"]["a"]["delays"]) == (2, [5, 8])
    assert shown["rules"]["b"]["wanted_alone"]["of"] == 1
    assert any(line.startswith("a  ") and "1/2 = 50 %" in line for line in as_text(shown))


@pytest.mark.parametrize(
    ("value", "problem"),
    [({"id": "x", "label": "healthy"}, "lacks 'entry'"), ({"id": "x", "entry": "x", "label": "odd"}, "not 'odd'")],
)
def test_labels_that_can_not_be_read(value: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_label(value)


@pytest.mark.slow
def test_the_bundled_runs_score_without_a_miss(tmp_path: Path) -> None:
    """`make score`: every fault found, no false alarm, none without an answer."""
    out = tmp_path / "score.json"
    subprocess.run([sys.executable, "-m", "benchmarks.score", "--json", out], check=True, capture_output=True, cwd=ROOT)
    shown = json.loads(out.read_text())
    assert shown["detected"]["hits"] == shown["detected"]["of"] > 10
    assert shown["detected_config_error"]["hits"] == shown["detected_config_error"]["of"]
    assert shown["false_alarm"]["hits"] == shown["wrong_extra"]["hits"] == 0
    assert (shown["problems"], shown["not_evaluated"]) == ({}, [])
