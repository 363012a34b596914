"""`grpo-watch explain`: the runbook in the terminal, the same as JSON, and help with misspelt names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_watch.cli.main import run_cli


def test_text_shows_how_the_rule_ships_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Severity, distances, parameters and the last section, without tool markers."""
    assert run_cli(["explain", "kl-stuck-at-zero"]) == 0
    shown = capsys.readouterr().out
    for text in ("kl-stuck-at-zero", "critical · fires after 8 steps", "min_cumulative_lr", "What to do"):
        assert text in shown
    assert "parameters:begin" not in shown
    assert "\033" not in shown


def test_in_chinese(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong and what to do; of an advisory all, of a misspelt name the nearest."""
    monkeypatch.setenv("GRPO_WATCH_LANGUAGE", "zh")
    assert run_cli(["explain", "kl-stuck-at-zero"]) == 0
    shown = capsys.readouterr().out
    for text in ("参考模型 KL 一直是 0", "严重 · 持续 8 步且有 3 行超标后触发", "检查优化器里有没有可训练的参数"):
        assert text in shown
    assert run_cli(["explain", "GW-2026-0204"]) == 0
    assert "梯度被缩放且从不清零" in capsys.readouterr().out
    assert run_cli(["advisories", "GW-2026-0204"]) == 0
    assert "  怎么办    安装 DeepSpeed 0.18.6 以上" in capsys.readouterr().out
    assert run_cli(["explain", "kl-stuck-at-zeros"]) == 2
    assert capsys.readouterr().err == "grpo-watch: 没有这条规则：'kl-stuck-at-zeros'（是不是想写 kl-stuck-at-zero？）\n"  # noqa: RUF001


def test_json_carries_rule_parameters_and_runbook(capsys: pytest.CaptureFixture[str]) -> None:
    """One object that says what a script would ask."""
    assert run_cli(["explain", "kl-stuck-at-zero", "--format", "json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["schema"], reported["rule"], reported["severity"]) == (
        "grpo-watch/explain/1",
        "kl-stuck-at-zero",
        "critical",
    )
    parameter = {param["name"]: param for param in reported["params"]}["min_cumulative_lr"]
    assert (parameter["default"], parameter["allowed"]) == (1e-7, "≥ 0")
    assert reported["runbook"].startswith("# kl-stuck-at-zero\n")
    assert reported["hint"]


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("kl-stuck-at-zer", "did you mean kl-stuck-at-zero?"),
        ("xyz", "`grpo-watch rules list` lists all"),
        ("kl", "kl-explosion"),
        ("kl", "kl-stuck-at-zero"),
    ],
)
def test_an_unknown_rule_is_2_with_a_suggestion(capsys: pytest.CaptureFixture[str], name: str, fix: str) -> None:
    """The nearest name, or all of them."""
    assert run_cli(["explain", name]) == 2
    assert fix in capsys.readouterr().err


def test_a_check_of_preflight_is_explained_by_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["explain", "sampling-greedy"]) == 0
    assert "all completions of a prompt are the same" in capsys.readouterr().out
    assert run_cli(["explain", "sampling-greedy", "--format", "json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["schema"], reported["check"]) == ("grpo-watch/explain/1", "sampling-greedy")
    assert reported["runbook"].startswith("# sampling-greedy\n")


@pytest.mark.parametrize("name", ["GW-2025-0002", "checkpointing-loses-gradients"])
def test_a_known_bug_is_explained(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """By its id, and by the name under which preflight reports it."""
    assert run_cli(["explain", name]) == 0
    shown = capsys.readouterr().out
    assert "GW-2025-0002" in shown
    assert "huggingface/trl#2848" in shown
    assert run_cli(["explain", name, "--format", "json"]) == 0
    assert [bug["id"] for bug in json.loads(capsys.readouterr().out)["advisories"]] == ["GW-2025-0002"]


def test_a_rule_of_the_users_own_is_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("rules:\n  - {name: low, when: reward_mean < 0.1, for_steps: 20, summary: Reward stays low.}\n")
    assert run_cli(["explain", "low", "--rules", str(mine), "--format", "json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["rule"], reported["for_steps"], reported["params"]) == ("low", 20, [])
    assert "`reward_mean < 0.1`" in reported["runbook"]
    assert f"{mine}:2" in reported["runbook"]


def test_a_shipped_rule_is_shown_as_it_is_in_force(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("rules:\n  - {name: kl-explosion, params: {limit: 7.5}, severity: critical}\n")
    assert run_cli(["explain", "kl-explosion", "--rules", str(mine), "--format", "json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["severity"] == "critical"
    assert {param["name"]: param["value"] for param in reported["params"]}["limit"] == 7.5
