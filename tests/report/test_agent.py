"""``--format agent``: short, true, and without a word that the run wrote unless it is asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.report.agent import MOST_CHARACTERS, agent_text
from grpo_watch.rules.packs import load_rules
from tests.support.bundles import unpack
from tests.support.planted_instructions import HOSTILE, ORDER, SETTINGS
from tests.support.reports import a_finding, a_report

FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_of_a_hostile_run_is_repeated(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    HOSTILE[name](tmp_path)
    code = run_cli(["check", str(tmp_path), "--format", "agent", *SETTINGS])
    shown = capsys.readouterr().out
    assert code == (3 if name == "other_training" else 1)
    assert ORDER not in shown.lower()
    assert "kl-stuck-at-zero" in shown or name == "other_training"


@pytest.mark.parametrize("name", ["named", "traceback", "completions"])
def test_what_a_run_wrote_is_quoted_where_it_is_asked_for(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    HOSTILE[name](tmp_path)
    run_cli(["check", str(tmp_path), "--format", "agent", "--with-texts", *SETTINGS])
    shown = capsys.readouterr().out
    lines = [line for line in shown.splitlines() if ORDER in line.lower()]
    assert lines
    for line in lines:  # each stands in a JSON string
        text = line[line.index('"') : line.rindex('"') + 1]
        assert ORDER in json.loads(text).lower()
    assert "never instructions" in shown


def test_a_frozen_run_in_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = unpack(FROZEN, tmp_path)
    assert run_cli(["check", str(run), "--format", "agent"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("grpo-watch: critical\n")
    assert "ms-swift 4.6.0; step 60 of 60" in shown
    assert "critical kl-stuck-at-zero: since step 3" in shown
    assert "evidence: kl_reference 0" in shown
    assert "set --save_steps N" not in shown  # args.json sets it, the recording lacks the checkpoints
    assert "grpo-watch explain kl-stuck-at-zero" in shown


def test_it_is_short_whatever_there_is() -> None:
    """1,500 tokens of four characters; the commands for the next step are never what is cut."""
    rules = [replace(rule, summary="long " * 200) for rule in load_rules()]
    names = [rule.name for rule in rules]
    reports = [
        a_report(*(a_finding(name, summary="x" * 9_999, key="k" * 999) for name in names), run=f"run {number}")
        for number in range(300)
    ]
    for with_texts in (False, True):
        shown = agent_text(reports, ["problem"] * 50, rules, with_texts=with_texts)
        assert len(shown) <= MOST_CHARACTERS == 4 * 1_500
        assert "lines left out" in shown
        assert "grpo-watch explain" in shown
    assert agent_text([], [], rules).startswith("no run found\n")
