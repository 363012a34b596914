"""The table of public logs counts as its columns say, and a download stays in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.wild import rounds


def log(**changes: Any) -> dict[str, Any]:
    first = {"missed": [], "false_critical": [], "false_warning": [], "untrue": []}
    return {
        "round": 1,
        "id": "w1-01",
        "repo": "one/runs",
        "commit": "c" * 40,
        "paths": ["logs/train.log"],
        "framework": "TRL",
        "format": "console",
        "rows": 3,
        "label": "healthy",
        "fault_start_step": None,
        "must": [],
        "may": [],
        "first_contact": first,
        **changes,
    }


def test_a_round_counts_logs_repositories_and_what_was_wrong() -> None:
    wrong = {"missed": [["run-crashed"]], "false_critical": [], "false_warning": [], "untrue": ["rows 1 of 3"]}
    alarm = {"missed": [], "false_critical": [], "false_warning": ["kl-explosion"], "untrue": []}
    drawn = [
        log(),
        log(first_contact=alarm),
        log(label="faulty", repo="two/runs"),
        log(label="faulty", first_contact=wrong),
    ]
    assert rounds.summary(drawn) == "| 1 | 4 of 2 | 1 of 2 | 0 of 0 | 0 of 2 | 1 of 2 | 1 of 4 |"
    assert rounds.wrong(drawn[3]) == "missed run-crashed; rows 1 of 3"


def test_every_fact_is_of_a_known_kind() -> None:
    logs = rounds.logs()
    assert len({each["id"] for each in logs}) == len(logs) >= 100
    assert {each["label"] for each in logs} == {"healthy", "faulty", "config-error", "ambiguous"}
    assert {each["round"] for each in logs} == set(range(1, 11))


def test_what_is_fetched_can_be_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = log(id="w1-02", paths=["other.log"])
    cut_out = log(id="w1-03", commit="")
    tree = {"tree": [{"path": "logs/train.log", "type": "blob"}]}

    def served(address: str) -> bytes:
        if "trees" in address:
            return json.dumps(tree).encode()
        if address.endswith("train.log"):
            return b"rows"
        raise OSError("404")

    monkeypatch.setattr(rounds, "_get", served)
    assert rounds.fetch(tmp_path, [log(), gone, cut_out]) == 1
    assert (tmp_path / "w1-01" / "train.log").read_bytes() == b"rows"
    (label,) = json.loads((tmp_path / "labels.json").read_text())
    assert (label["id"], label["entry"]) == ("w1-01", "w1-01")


def test_a_path_that_leads_out_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {"tree": [{"path": "logs/../../../evil", "type": "blob"}]}
    monkeypatch.setattr(rounds, "_get", lambda address: json.dumps(tree).encode() if "trees" in address else b"x")
    assert rounds.fetch(tmp_path / "set", [log(paths=["logs"])]) == 1
    assert not (tmp_path / "evil").exists()


def test_without_a_network_no_further_log_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def unreachable(address: str) -> bytes:
        asked.append(address)
        raise OSError("name or service not known")

    monkeypatch.setattr(rounds, "_get", unreachable)
    assert rounds.fetch(tmp_path, [log(id=f"w1-{number}") for number in range(9)]) == 9
    assert len(asked) == rounds.OFFLINE
    assert json.loads((tmp_path / "labels.json").read_text()) == []
