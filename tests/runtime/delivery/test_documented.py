"""Every test that the page about delivery names exists, and every link of its settings loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grpo_watch.config.settings import load_settings

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "delivery.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)

HEADS = ("| promise |", "| fault |")


def test_the_page_names_tests() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(HEADS)]
    assert len(rows) > 30
    assert all("`tests/" in row for row in rows)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_each_promise_has_its_test(file: str, name: str) -> None:
    assert re.search(rf"^(def {name}\(|{name} = )", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_what_the_page_about_security_names_is_there() -> None:
    named = re.findall(r"`((?:tests|docs|deploy)/[\w/.-]*)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert named
    assert [place for place in named if not (ROOT / place).exists()] == []


def test_the_example_of_settings_loads(tmp_path: Path) -> None:
    file = tmp_path / "grpo-watch.yaml"
    file.write_text(PAGE.partition("```yaml\n")[2].partition("```")[0])
    settings = load_settings(config=file, environ={}).settings
    assert settings.sinks[0].per_minute == 10
    assert settings.mute[0].reason == "known"
