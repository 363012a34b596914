"""`grpo-watch config`: the settings in force with their origin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.config.schema import Settings


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A settings file in an otherwise empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRPO_WATCH_RETENTION_DAYS", "3")
    path = tmp_path / "grpo-watch.yaml"
    path.write_text("listen: ':0'\nsinks:\n  - {type: webhook, url: 'http://u:geheim@h/'}\n")
    return path


def test_text_names_value_and_origin(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """File and line, variable, or default; no secret."""
    assert run_cli(["config"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "listen = :0 (grpo-watch.yaml:1)" in lines
    assert "retention.days = 3.0 (GRPO_WATCH_RETENTION_DAYS)" in lines
    assert "notify_backlog = live (default)" in lines
    assert any("http://***@h/" in line for line in lines)
    assert not any("geheim" in line for line in lines)


def test_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for scripts."""
    assert run_cli(["config", "--config", str(file), "--format", "json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["schema"] == "grpo-watch/config/1"
    assert reported["settings"]["listen"] == {"value": ":0", "origin": f"{file}:1"}


def test_a_broken_file_is_2(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line with the place."""
    file.write_text("lisen: 1\n")
    assert run_cli(["config"]) == 2
    assert capsys.readouterr().err == "grpo-watch: grpo-watch.yaml:1:1: unknown key 'lisen' (did you mean listen?)\n"


def test_the_schema_takes_what_the_settings_take(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["config", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["properties"].keys() == set(Settings.__struct_fields__)
    assert schema["additionalProperties"] is False
    assert run_cli(["config", "scheme"]) == 2


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        (
            "sinks: [{type: webhook, url: 'http://h/', only_rules: ['kl-*', duplicate-completion]}]",
            "grpo-watch.yaml: sinks.0.only_rules: no rule is called 'duplicate-completion' (did you mean duplicate-",
        ),
        ("rules: [{name: mine, when: kl > 1}]", "grpo-watch.yaml:1:9: rules.0: must be a path"),
    ],
)
def test_a_mistake_that_would_keep_alerts_back_is_named(
    setting: str, problem: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(setting)
    assert run_cli(["config"]) == 2
    assert capsys.readouterr().err.startswith(f"grpo-watch: {problem}")


def test_patterns_disabled_rules_and_those_of_the_command_line_may_be_named(file: Path) -> None:
    Path("mine.yaml").write_text(
        "rules: [{name: kl-stuck-at-zero, enabled: false}, {name: high, when: reward_mean > 1}]"
    )
    file.write_text("sinks: [{type: webhook, url: 'http://h/', only_rules: ['kl-*', kl-stuck-at-zero, high]}]")
    assert run_cli(["config"]) == 2
    assert run_cli(["config", "--rules", "mine.yaml"]) == 0


def test_a_mute_of_no_rule_is_logged_until_it_expires(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It keeps nothing back, so that it stops no daemon."""
    file.write_text("mute: [{rule: old, until: 2026-01-01}, {rule: kl-stuck-at-zer, until: 9999-01-01}, {run: exp7}]")
    assert run_cli(["config"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith('msg="a mute names no rule" mute=kl-stuck-at-zer fix="did you mean kl-stuck-at-zero?"')
