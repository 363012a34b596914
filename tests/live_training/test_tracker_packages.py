"""verl's own ``Tracking`` with real SwanLab, MLflow, TensorBoard and file logger: the same verdict from each alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.engine.records import EndState, Tick
from grpo_watch.report.check_document import document
from grpo_watch.rules.packs import load_rules
from tests.live_training.log_like_verl import STEPS, TRACKERS

pytestmark = pytest.mark.frameworks

NOW = 2_000_000_000.0


def found_in(folder: Path) -> dict[str, object]:
    """What ``check`` says, with the steps of each finding, and which settings it was read with."""
    (report,) = check_runs(find_runs([str(folder)])[0], load_rules([]), {}, Tick(NOW, live=False, state=EndState.ENDED))
    (run,) = document([report])["runs"]
    return {
        "framework": run["framework"],
        "verdict": run["verdict"],
        "steps": run["steps"],
        "findings": [
            (each["rule"], each["severity"], each["first_step"], each["fired_step"]) for each in run["findings"]
        ],
    }


@pytest.mark.parametrize("kind", ["healthy", "frozen"])
def test_each_tracker_alone_gives_one_verdict(kind: str, tmp_path: Path) -> None:
    script = Path(__file__).with_name("log_like_verl.py")
    subprocess.run([sys.executable, str(script), str(tmp_path), kind], check=True, cwd=tmp_path, capture_output=True)
    found = {tracker: found_in(tmp_path / tracker) for tracker in TRACKERS}
    assert found["file"]["verdict"] == ("healthy" if kind == "healthy" else "critical")
    assert found["file"]["framework"] == "verl"
    assert found["file"]["steps"] == STEPS
    for tracker in TRACKERS:
        assert found[tracker] == found["file"], tracker
