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
            "mute: [{rule: kl-stuck-at-zer}]",
            "mute: no rule is called 'kl-stuck-at-zer' (did you mean kl-stuck-at-zero?)",
        ),
        (
            "sinks: [{type: webhook, url: 'http://h/', only_rules: ['kl-*', duplicate-completion]}]",
            "only_rules: no rule is called 'duplicate-completion' (did you mean duplicate-completions?)",
        ),
        ("rules: [{name: mine, when: kl > 1}]", "grpo-watch.yaml:1:9: rules.0: must be the path of a file"),
    ],
)
def test_a_mistake_that_would_keep_alerts_back_is_named(
    setting: str, problem: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(setting)
    assert run_cli(["config"]) == 2
    assert capsys.readouterr().err.startswith(f"grpo-watch: {problem}")


def test_patterns_and_disabled_rules_may_be_named(file: Path) -> None:
    Path("mine.yaml").write_text("rules: [{name: kl-stuck-at-zero, enabled: false}]")
    file.write_text("rules: [mine.yaml]\nmute: [{rule: 'kl-*'}, {rule: kl-stuck-at-zero}, {run: exp7}]")
    assert run_cli(["config"]) == 0
