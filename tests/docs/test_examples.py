"""Settings, rules and rows that pages show are understood as they stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings
from grpo_watch.engine.metric_names import METRICS
from grpo_watch.engine.records import ChannelKind, RawRow
from grpo_watch.frameworks.resolver import Resolver
from tests.support.markdown import ROOT, blocks


def settings_shown() -> list[Any]:
    """The blocks of YAML that hold nothing but keys of grpo-watch.yaml."""
    shown = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.info != "yaml":
                continue
            document = yaml.safe_load(block.text)
            of_rules = isinstance(document, dict) and any(isinstance(each, dict) for each in document.get("rules", ()))
            if isinstance(document, dict) and document.keys() <= set(Settings.__struct_fields__) and not of_rules:
                shown.append(pytest.param(document, id=f"{page.relative_to(ROOT)}:{block.line}"))
    return shown


@pytest.mark.parametrize("document", settings_shown())
def test_settings_load(document: dict[str, Any]) -> None:
    assert converted(Settings, document) != Settings()


def test_a_row_in_canonical_names_needs_no_explanation() -> None:
    """The line of docs/frameworks/your-own.md: recognised, and nothing in it unknown."""
    page = Path("docs/frameworks/your-own.md").read_text(encoding="utf-8")
    (line,) = (json.loads(block.text) for block in blocks(page) if block.info == "json")
    step = line.pop("step")
    resolver = Resolver()
    row = resolver.resolve(RawRow("c", ChannelKind.JSONL, step, line))
    assert resolver.framework == "grpo-watch"
    assert resolver.unknown_keys == ()
    assert row.values == line
    assert line.keys() <= set(METRICS)
