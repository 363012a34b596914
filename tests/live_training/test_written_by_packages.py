"""Each source as the real package writes it: a frozen policy and its healthy twin, with the findings of JSON lines."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from grpo_watch.sources.discovery.discover import ChannelContent, discover
from tests.live_training.log_like_verl import STEPS
from tests.live_training.test_tracker_packages import found_in

pytestmark = pytest.mark.frameworks

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-frameworks-trackers" / "bin" / "python"
"""With packages whose versions would displace others (scripts/preflight-envs trackers)."""
DUMPED = ChannelContent.COMPLETION_DUMPS
WRITTEN = {
    "mlflow-files": ("verl", "kl-stuck-at-zero", "critical", {ChannelContent.MLFLOW_FILES}),
    "swanlab-0.7": ("verl", "kl-stuck-at-zero", "critical", {ChannelContent.SWANLAB}),
    "trl-async": ("trl-async", "gradient-lost", "critical", {ChannelContent.TRACKIO}),
    "tinker-cookbook": (
        *("tinker-cookbook", "kl-stuck-at-zero", "critical"),
        {ChannelContent.JSONL, ChannelContent.ROLLOUT_SUMMARIES},
    ),
    "prime-rl": ("prime-rl", "gradient-lost", "critical", {ChannelContent.JSONL_PIECES, DUMPED}),
    "slime": ("slime", "kl-stuck-at-zero", "warning", {ChannelContent.CONSOLE}),  # nothing says that its groups differ
    "verl-dumps": ("verl", "kl-stuck-at-zero", "critical", {ChannelContent.JSONL, DUMPED}),
}
"""The framework, what is found in the frozen run, how severe that is, and the channels besides settings."""


@pytest.mark.parametrize("writer", WRITTEN)
def test_a_source_gives_the_findings_of_its_rows(writer: str, tmp_path: Path) -> None:
    framework, rule, severity, contents = WRITTEN[writer]
    command = [str(PYTHON), str(Path(__file__).with_name("write_runs.py")), writer, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    for kind in ("healthy", "frozen"):
        (run,) = discover(tmp_path / kind / "source")
        assert {channel.what for channel in run.channels} - {ChannelContent.RUN_CONFIG} == contents
        found = found_in(tmp_path / kind / "source")
        assert found == found_in(tmp_path / kind / "rows")
        assert found["framework"] == framework
        assert found["steps"] >= STEPS - 1  # some count from 0
        expected = ("healthy", []) if kind == "healthy" else (severity, [(rule, severity)])
        assert (found["verdict"], [each[:2] for each in found["findings"]]) == expected
