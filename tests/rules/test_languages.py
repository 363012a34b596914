"""Rules in another language: none is missing or left over, and their hints name the same settings and commands."""

from __future__ import annotations

import re

import pytest
import yaml

from grpo_watch.config.settings import load_settings
from grpo_watch.engine.rule import Rule
from grpo_watch.errors import ConfigError
from grpo_watch.rules.packs import load_rules, packs_folder

ENGLISH = {rule.name: rule for rule in load_rules()}
CHINESE = {rule.name: rule for rule in load_rules(language="zh")}
NAMES = re.compile(r"--\w+|\{\w+\}|`[^`]+`|\b\w+(?:\.\w+)+\b|\b[a-z]+(?:_[a-z0-9]+)+\b|\b[A-Z]+(?:_[A-Z0-9]+)+\b")
"""Options, places for evidence, commands, dotted names, settings and variables."""


def hints(rule: Rule) -> dict[str, str]:
    return {"": rule.hint, **rule.hints}


def test_no_entry_is_left_over() -> None:
    entries = yaml.safe_load((packs_folder() / "languages" / "zh.yaml").read_text(encoding="utf-8"))
    assert entries.keys() == ENGLISH.keys()


@pytest.mark.parametrize("name", ENGLISH)
def test_it_is_translated_with_the_same_names(name: str) -> None:
    chinese, english = CHINESE[name], ENGLISH[name]
    assert chinese.translated
    assert re.search(r"[一-鿿]", chinese.summary)
    assert chinese.hints.keys() == english.hints.keys()
    for framework, hint in hints(english).items():
        said = hints(chinese)[framework]
        assert re.search(r"[一-鿿]", said)
        assert set(NAMES.findall(said)) == set(NAMES.findall(hint)), framework


def test_lines_are_joined_without_spaces() -> None:
    for rule in CHINESE.values():
        for text in (rule.summary, *hints(rule).values()):
            assert not re.search(r"[\u4e00-\u9fff] [\u4e00-\u9fff]|[\u3000-\u303f\uff00-\uff60] ", text), text


def test_a_finding_begins_in_the_readers_language() -> None:
    rule = CHINESE["kl-stuck-at-zero"]
    assert rule.says("KL has been 0 for 9 steps") == f"{rule.summary} KL has been 0 for 9 steps"
    assert rule.says("") == rule.summary
    assert rule.advice("verl", "Try zero2.") == f"{rule.hints['verl']} Try zero2."
    assert ENGLISH["kl-stuck-at-zero"].advice("verl", "Try zero2.") == "Try zero2."


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "zh_TW.UTF-8", "GRPO_WATCH_LANGUAGE": "en"}, "en"),
        ({"LANG": "de_DE.UTF-8", "GRPO_WATCH_LANGUAGE": "zh"}, "zh"),
    ],
)
def test_the_setting_decides_else_the_locale(environ: dict[str, str], language: str, tmp_path: object) -> None:
    assert load_settings(environ=environ, folder=tmp_path).settings.language == language  # type: ignore[arg-type]


def test_another_language_is_refused() -> None:
    with pytest.raises(ConfigError, match="GRPO_WATCH_LANGUAGE"):
        load_settings(environ={"GRPO_WATCH_LANGUAGE": "fr"})
