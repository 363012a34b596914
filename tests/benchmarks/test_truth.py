"""The comparison of tools counts as its columns say; a made-up tool stands for those of PyPI."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.truth import __main__ as truth
from benchmarks.truth import cases
from benchmarks.truth.cases import Case
from benchmarks.truth.tools import (
    CRITICAL,
    QUIET,
    WARNING,
    GrpoWatch,
    RlDoctor,
    RlProbe,
    Row,
    RunMedic,
    Tool,
    TrainSpotter,
    UnreadError,
    worst,
)

JUDGE = "import json, sys; print(json.dumps([json.loads(line)['says'] for line in open(sys.argv[1])]))"


class Parrot(Tool):
    """Says of a run what its rows say; fails where a row says nothing."""

    name = "parrot"

    def commands(self, programs: Path, path: Path) -> list[list[str]]:
        return [[str(programs / "python"), "-c", JUDGE, str(path)]]

    def severity(self, answer: Any) -> str:
        return worst(answer)


def case(name: str, rows: Sequence[Row], *, healthy: bool) -> Case:
    return Case(name, "made up", healthy, rows)


def test_alarms_on_faulty_and_on_healthy_runs_are_counted_apart_from_what_is_not_judged() -> None:
    drawn = [
        case("found", [{"step": 1, "says": "info"}, {"step": 2, "says": "CRITICAL"}], healthy=False),
        case("missed", [{"step": 1, "says": "OK"}], healthy=False),
        case("not judged", [{"step": 1}], healthy=False),
        case("quiet", [{"step": 1, "says": "info"}], healthy=True),
        case("warned", [{"step": 1, "says": "warning"}], healthy=True),
        case("cried wolf", [{"step": 1, "says": "error"}], healthy=True),
    ]
    head, rule, line = truth.table(drawn, [Parrot()])
    assert head.count("|") == rule.count("|") == line.count("|")
    assert line.startswith("| made up | parrot | 1 of 3 | - | 2 of 3 | 1 | 1 |")


def test_a_tool_that_cannot_be_installed_has_a_row_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(truth, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(venv, "create", lambda *_, **__: None)
    refused = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refused)
    assert truth.programs(RlDoctor()) is None
    lines = list(truth.table([case("any", [], healthy=True)], [RlDoctor()]))
    assert "rldoctor: can't be installed" in lines[-1]
    assert lines[-1].count("|") == lines[0].count("|")


def test_grpo_watch_names_a_fault_that_rows_show() -> None:
    dead = {"loss": 0.0, "reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0, "kl": 0.01, "grad_norm": 0.0}
    rows = [{"step": step, **dead, "completions/mean_length": 90.0 + step % 7} for step in range(1, 41)]
    silent = Case("silent", "made up", False, rows, None, (frozenset({"reward-variance-collapse"}),))
    answer = truth.ask(GrpoWatch(), Path(sys.executable).parent, silent)
    assert (bool(answer.severity), answer.named) == (True, True)


def test_severities_of_all_spellings_have_one_order() -> None:
    assert worst(["OK", "info"]) == worst([]) == QUIET
    assert worst(["INFO", "WARNING"]) == WARNING
    assert worst(["warning", "error"]) == worst(["CRITICAL"]) == CRITICAL


@pytest.mark.parametrize(
    ("tool", "answer", "severity"),
    [
        (GrpoWatch(), {"runs": [{"verdict": "warning", "findings": [{"severity": "warning"}]}]}, WARNING),
        (RlDoctor(), {"findings": [{"severity": "OK"}, {"severity": "CRITICAL"}, {"severity": "SKIPPED"}]}, CRITICAL),
        (RunMedic(), [{"findings": [{"severity": "info"}]}], QUIET),
        (TrainSpotter(), {"run": {"metrics": {"loss": {}}}, "findings": [{"severity": "error"}]}, CRITICAL),
        (RlProbe(), [{"severity": "warning"}], WARNING),
    ],
)
def test_answers_of_each_tool_are_read(tool: Tool, answer: Any, severity: str) -> None:
    assert tool.severity(answer) == severity


@pytest.mark.parametrize(
    ("tool", "answer"),
    [
        (GrpoWatch(), {"runs": [{"verdict": "not-evaluable", "findings": []}]}),
        (RlDoctor(), {"findings": [{"severity": "SKIPPED"}]}),
        (RunMedic(), []),
        (TrainSpotter(), {"run": {"metrics": {}}, "findings": []}),
    ],
)
def test_an_answer_without_a_judgement_is_no_silence(tool: Tool, answer: Any) -> None:
    with pytest.raises(UnreadError):
        tool.severity(answer)


def test_rlprobe_is_given_its_own_names(tmp_path: Path) -> None:
    row = {"step": 3, "reward": 0.5, "kl": 0.1, "rewards/format/mean": 1.0, "epoch": 0.1}
    written = json.loads(RlProbe().write([row], tmp_path).read_text())
    assert written == {"step": 3, "reward_mean": 0.5, "kl_mean": 0.1, "reward_components": {"format": 1.0}}


def test_synthetic_runs_have_rows_and_a_label() -> None:
    drawn = list(cases.synthetic(calm=1, per_kind=0))
    assert [case.healthy for case in drawn] == [True]
    assert [row["step"] for row in drawn[0].rows] == sorted(row["step"] for row in drawn[0].rows)
    assert all("reward" in row for row in drawn[0].rows)


def test_only_healthy_and_faulty_runs_of_a_folder_are_judged(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"step": step, "reward": 0.1, "loss": 0.2, "kl": 0.01}) + "\n" for step in (1, 2, 3))
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text(rows)
    kinds = {"one": "healthy", "two": "faulty", "three": "ambiguous", "gone": "healthy"}
    labels = [{"id": name, "entry": name, "label": kind, "must": [["run-crashed"]]} for name, kind in kinds.items()]
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    drawn = list(cases.labelled(tmp_path, "your own"))
    assert [(case.name, case.healthy, len(case.rows)) for case in drawn] == [("one", True, 3), ("two", False, 3)]
