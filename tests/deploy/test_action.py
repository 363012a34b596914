"""The GitHub Action's script: the report is in the job summary, and the exit code is that of the check."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.bundles import unpack

ACTION = yaml.safe_load(Path("action.yml").read_text())
FROZEN, HEALTHY = "trl-1.16.0-09-frozen-lr0", "trl-1.16.0-04-healthy-lora"
VENV = """#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "$*" >"$RUNNER_TEMP/pip"\\n' >"$3/bin/pip"
printf '#!/bin/sh\\nexec "{python}" -m grpo_watch "$@"\\n' >"$3/bin/grpo-watch"
chmod +x "$3/bin/pip" "$3/bin/grpo-watch"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "fail_on", "code"), [(FROZEN, "critical", 1), (FROZEN, "never", 0), (HEALTHY, "critical", 0)]
)
def test_the_summary_and_the_exit_code(run: str, fail_on: str, code: int, tmp_path: Path) -> None:
    unpack(run, tmp_path)
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "python3"
    fake.write_text(VENV.format(python=sys.executable))
    fake.chmod(0o755)
    (step,) = ACTION["runs"]["steps"]
    ours = "${{ inputs.requirement || github.action_path }}"
    inputs = {name: f"${{{{ inputs.{name} }}}}" for name in ACTION["inputs"]} | {"requirement": ours}
    assert set(inputs.values()) == set(step["env"].values())
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path.cwd()),
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "RUN_PATH": str(tmp_path / run),
        "FAIL_ON": fail_on,
        "REQUIREMENT": ACTION["inputs"]["requirement"]["default"] or str(Path.cwd()),  # the action's folder
    }
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", step["run"]], env=environment, cwd=tmp_path, check=False)
    assert done.returncode == code
    assert (tmp_path / "temp" / "pip").read_text().split()[-1] == str(Path.cwd())
    assert ("learning-rate-zero" in (tmp_path / "summary").read_text()) == (run == FROZEN)
