"""Preflight against real TRL on random launches: same verdict, same reason, same max_steps, same steps really made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.live_training.differential import compare

pytestmark = pytest.mark.frameworks

ROOT = Path(__file__).parent.parent.parent
SAMPLE = 60
"""Launches per version here; ``make preflight-differential`` draws 600 for each of six versions."""


@pytest.mark.parametrize("version", ["current", "0.19.1"])
def test_preflight_says_what_trl_says(version: str) -> None:
    """The current one shares the environment of these tests, the other is made by ``scripts/preflight-envs``."""
    other = ROOT / f".venv-frameworks-trl-{version}" / "bin" / "python"
    name, cases = compare(sys.executable if version == "current" else str(other), SAMPLE, seed=3)
    assert [case for case in cases if case.ours != case.theirs] == [], name
    kinds = {case.theirs.verdict.split(" ")[0] for case in cases}
    assert {"accepted", "GROUPS", "EVAL_GROUPS", "BOTH_SET", "GLOBAL_BATCH", "GROUP_SIZE"} <= kinds
