"""The changelog names each receiver; `make docs` writes its list of rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.config.schema import SINKS

CHANGELOG = Path("CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", sorted(str(sink.__struct_config__.tag) for sink in SINKS))
def test_each_receiver_is_listed(kind: str) -> None:
    assert f"`{kind}`" in CHANGELOG
