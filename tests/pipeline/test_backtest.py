"""Backtest: when rules would have fired over old runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_watch.cli.main import run_cli
from tests.support.bundles import unpack

MINE = """rules:
  - {name: low-kl, when: kl_reference < 1e-9, min_observations: 5, severity: critical}
  - {name: memory, when: memory_gib > 500}
"""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A run whose optimizer does nothing (KL 0 at all 100 steps), and a healthy one without KL."""
    folder = tmp_path / "old"
    unpack("trl-0.24.0-08-frozen-noop-step", folder)
    unpack("trl-1.16.0-02-healthy-nobeta", folder)
    return folder


def test_fires_resolves_and_blindness_per_run(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Five rows from step 1 on: it fires at 5 and never resolves; without KL the rule is blind."""
    mine = tmp_path / "mine.yaml"
    mine.write_text(MINE)
    assert run_cli(["rules", "backtest", str(mine), str(runs), "--format", "json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    frozen, healthy = sorted((each for each in results if each["rule"] == "low-kl"), key=lambda each: each["run"])
    (fired,) = frozen["fired"]
    assert (fired["first_step"], fired["fired_step"], fired["resolved_step"], frozen["steps"]) == (1, 5, None, 100)
    assert (healthy["fired"], bool(healthy["blind"]), healthy["broken"]) == ([], True, None)


def test_command_gives_table_and_json(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the file's own rules are shown; the exit code is 0 although one fired."""
    mine = tmp_path / "mine.yaml"
    mine.write_text(MINE)
    assert run_cli(["rules", "backtest", str(mine), str(runs)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:3] == [["low-kl", "2", "1", "1", "0"], ["memory", "2", "0", "2", "0"]]
    assert lines[5][:6] == ["low-kl", "critical", "1", "5", "-", "100"]

    assert run_cli(["rules", "backtest", str(mine), str(runs), "--format", "json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    fired = [(each["rule"], each["fired"][0]["fired_step"]) for each in results if each["fired"]]
    assert fired == [("low-kl", 5)]
    assert len(results) == 4


def test_a_folder_of_rule_files(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every YAML file in it counts; a folder without rules or runs is wrong use."""
    folder = tmp_path / "pack"
    folder.mkdir()
    assert run_cli(["rules", "backtest", str(folder), str(runs)]) == 2
    (folder / "a.yaml").write_text(MINE)
    (folder / "b.yaml").write_text("rules: [{name: other, when: loss > 1e9}]\n")
    assert run_cli(["rules", "backtest", str(folder), str(runs)]) == 0
    assert "other" in capsys.readouterr().out
    assert run_cli(["rules", "backtest", str(folder), str(folder)]) == 2
