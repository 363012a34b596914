"""The workflows, the action and the pre-commit hook: of their published schemas, and of commands that exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

WORKFLOWS = sorted(Path(".github/workflows").glob("*.yml"))


@pytest.mark.parametrize(
    ("file", "schema"),
    [*((path, "vendor.github-workflows") for path in WORKFLOWS), (Path("action.yml"), "vendor.github-actions")],
    ids=str,
)
def test_it_is_of_the_published_schema(file: Path, schema: str) -> None:
    program = Path(sys.executable).parent / "check-jsonschema"
    done = subprocess.run([program, "--builtin-schema", schema, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_release_runs_scripts_that_exist() -> None:
    """And only the job that publishes gets a right to do so."""
    jobs = yaml.safe_load(Path(".github/workflows/release.yml").read_text())["jobs"]
    commands = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert all(Path(command.split()[0]).is_file() for command in commands if "/" in command.split()[0])
    assert [name for name, job in jobs.items() if "write" in job["permissions"].values()] == [
        "package",
        "image-and-chart",
    ]
    assert all(job["needs"] == "build" for name, job in jobs.items() if name != "build")


LAUNCH = "accelerate launch --num_processes 1 -m trl.scripts.grpo --per_device_train_batch_size 3 --num_generations"


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("train_it.sh", f"{LAUNCH} 8\n", 1),
        ("train_it.sh", f"{LAUNCH} 3\n", 0),
        ("launch_db.sh", "pg_ctl start -D data\n", 0),
        ("train-tokenizer.yaml", "vocab_size: 32000\n", 0),
    ],
)
def test_the_hook_refuses_what_preflight_calls_wrong(tmp_path: Path, name: str, text: str, code: int) -> None:
    """And passes a launch whose world size and data set are not known, and a file that launches no GRPO training."""
    (hook,) = yaml.safe_load(Path(".pre-commit-hooks.yaml").read_text())
    launch = tmp_path / name
    assert re.search(hook["files"], str(launch))
    launch.write_text(text)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [*shlex.split(hook["entry"]), str(launch)]
    assert subprocess.run(command, env=env, capture_output=True, check=False).returncode == code
