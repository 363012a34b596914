"""The changelog names what users look for in it: each rule and receiver."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.config.schema import SINKS
from grpo_watch.rules.packs import load_rules

CHANGELOG = Path("CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", [rule.name for rule in load_rules()])
def test_each_rule_is_listed(rule: str) -> None:
    assert f"`{rule}`" in CHANGELOG


@pytest.mark.parametrize("kind", sorted(str(sink.__struct_config__.tag) for sink in SINKS))
def test_each_receiver_is_listed(kind: str) -> None:
    assert f"`{kind}`" in CHANGELOG
