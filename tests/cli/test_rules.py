"""`grpo-watch rules`: list, lint, test and backtest on the command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.cli.main import run_cli
from tests.support.bundles import unpack


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run_cli(["rules", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asked(capsys, *arguments, "--format", "json")[1])
    return found


def test_list_shows_severity_needs_and_origin(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A shipped rule, a changed one, an own one, one that is off."""
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "rules:\n"
        "  - {name: low, when: reward_mean < 0.1, severity: info}\n"
        "  - {name: kl-explosion, severity: critical}\n"
        "  - {name: memory-creep, enabled: false}\n"
        "  - {name: length-collapse, enabled: false, match: {framework: trl}}\n"
    )
    listed = as_json(capsys, "list", "--rules", str(mine))
    rules = {rule.pop("rule"): rule for rule in listed["rules"]}
    assert rules["kl-stuck-at-zero"] == {
        "severity": "critical",
        "enabled": True,
        "needs": [["kl_reference", "learning_rate"], ["kl_policy_update", "learning_rate"]],
        "origin": "shipped",
        "overrides": [],
    }
    assert (rules["low"]["needs"], rules["low"]["origin"]) == ([["reward_mean"]], f"{mine}:2")
    assert (rules["kl-explosion"]["severity"], rules["kl-explosion"]["origin"]) == ("critical", f"{mine}:3")
    assert rules["memory-creep"]["enabled"] is False
    assert rules["length-collapse"]["overrides"] == [{"framework": "trl"}]

    code, text, _ = asked(capsys, "list", "--rules", str(mine))
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert code == 0
    assert lines["memory-creep"].split()[1] == "off"
    assert "shipped, changed where framework is trl" in lines["length-collapse"]


def test_lint_names_place_and_fix(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """1 with problems, 0 without, 2 for wrong use; JSON has the same."""
    mine = tmp_path / "mine.yaml"
    mine.write_text("rules:\n  - name: a\n    when: reward_men < 1\n")
    place = f"{mine}:3:11: unknown name 'reward_men' (did you mean reward_mean?)\n"
    assert asked(capsys, "lint", str(mine)) == (1, place, "")
    assert as_json(capsys, "lint", str(mine))["problems"] == [
        {
            "file": str(mine),
            "line": 3,
            "column": 11,
            "message": "unknown name 'reward_men'",
            "fix": "did you mean reward_mean?",
        }
    ]
    mine.write_text("rules:\n  - name: a\n    when: memory_gib > 70\n")
    assert asked(capsys, "lint", str(mine))[0] == 0
    assert asked(capsys, "lint", str(tmp_path / "nix.yaml"))[0] == 2


def test_help_loads_no_command() -> None:
    """Quick help: nothing heavy, and no command's module."""
    code = (
        "import sys; from grpo_watch.cli.main import run_cli; run_cli(['rules', '--help'])\n"
        "print({'numpy', 'yaml', 'grpo_watch.cli.rules'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(command in done.stdout for command in ("list", "lint", "test", "backtest"))
    assert done.stdout.endswith("set()\n")


def test_the_documentation_is_right(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The files of docs/writing-rules.md load without a problem, and its test passes under its rule."""
    text = (Path(__file__).parents[2] / "docs" / "writing-rules.md").read_text(encoding="utf-8")
    files = []
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)):
        files.append(tmp_path / f"{number}.yaml")
        files[-1].write_text(block)
    rules, for_some, tests = map(str, files)
    assert asked(capsys, "lint", rules, for_some)[0] == 0
    assert asked(capsys, "test", tests, "--rules", rules) == (0, "1 of 1 tests passed\n", "")


def test_a_rule_is_changed_for_runs_with_a_label(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The label comes from the settings; without it nothing changes."""
    run = unpack("trl-1.16.0-09-frozen-lr0", tmp_path)
    mine, config = tmp_path / "mine.yaml", tmp_path / "grpo-watch.yaml"
    mine.write_text(
        "rules: [{name: learning-rate-zero, enabled: false, match: {framework: trl, labels: {team: 'ma*'}}}]\n"
    )
    config.write_text(f"runs: [{{path: {run}, labels: {{team: math}}}}]\n")
    arguments = ["check", str(run), "--rules", str(mine), "--now", "2027-01-01T00:00:00Z", "--format", "json"]
    found = []
    for more in ([], ["--config", str(config)]):
        run_cli([*arguments, *more])
        (checked,) = json.loads(capsys.readouterr().out)["runs"]
        found.append("learning-rate-zero" in {finding["rule"] for finding in checked["findings"]})
    assert found == [True, False]
