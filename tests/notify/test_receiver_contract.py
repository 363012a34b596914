"""What each kind of receiver is held against, besides its own tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grpo_watch.config.sinks import SINKS

ROOT = Path(__file__).parents[1]
HOSTILE = (ROOT / "notify" / "test_hostile_texts.py").read_text("utf-8")
PLANTED = (ROOT / "support" / "planted.py").read_text("utf-8")
STRUCTURED = {
    "alertmanager": "annotations_of",
    "pushgateway": "Exporter",
    "textfile": "Exporter",
    "webhook": "JSON",
    "heartbeat": "sends no text of a run",
}
"""What test_hostile_texts.py holds for these, or why it need not."""
KINDS = sorted(kind.model_fields["type"].annotation.__args__[0] for kind in SINKS)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_run_says_stays_text(kind: str) -> None:
    assert kind in STRUCTURED or f"receivers.{kind} import" in HOSTILE, f"test {kind} in test_hostile_texts.py"


WITH_SECRET = sorted(
    kind.model_fields["type"].annotation.__args__[0]  # type: ignore[union-attr]
    for kind in SINKS
    if any(name == "url" or name.endswith(("_file", "_files")) for name in kind.model_fields if name != "ca_file")
)
"""A file of secrets, or an address, which may hold a password, is in the settings."""


def test_only_what_needs_no_secret_is_left_out() -> None:
    assert set(KINDS) - set(WITH_SECRET) == {"textfile"}


@pytest.mark.parametrize("kind", WITH_SECRET)
def test_a_secret_is_planted(kind: str) -> None:
    assert re.search(f'"type": "{kind}"', PLANTED), f"add {kind} with a secret of its own to tests/support/planted.py"
