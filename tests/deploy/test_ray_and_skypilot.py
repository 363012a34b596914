"""The RayJob's head pod and SkyPilot's task: valid, closed, and with options that the command has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.image import DOCKERFILE, read_image
from tests.support.kubernetes import assert_closed, assert_mounted, objects, validate

(RAY_JOB,) = objects(Path("deploy/kubernetes/rayjob.yaml").read_text())
TASK = yaml.safe_load(Path("deploy/skypilot/train.yaml").read_text())


def test_kubernetes_takes_the_head_pod_and_its_sidecar() -> None:
    spec = RAY_JOB["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "head"}, "spec": spec})
    (watcher,) = [each for each in spec["initContainers"] if each["name"] == "grpo-watch"]
    assert watcher["restartPolicy"] == "Always"
    assert_closed(watcher, read_image(DOCKERFILE.read_text()).user)
    assert_mounted(spec, watcher)
    folder = spec["initContainers"][0]["command"][-1]
    assert f"tee {folder}/" in RAY_JOB["spec"]["entrypoint"]


@pytest.mark.parametrize("code", [0, 3])
def test_the_job_on_ray_ends_as_its_trainer_did(tmp_path: Path, code: int) -> None:
    trainer = tmp_path / "python"
    trainer.write_text(f"#!/bin/sh\necho loss\nexit {code}\n")
    trainer.chmod(0o755)
    entrypoint = RAY_JOB["spec"]["entrypoint"].replace("/runs/my-run", str(tmp_path))
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", entrypoint], env=env, stdout=subprocess.PIPE, check=False, timeout=60)
    assert (done.returncode, done.stdout, (tmp_path / "train.log").read_text()) == (code, b"loss\n", "loss\n")


@pytest.mark.parametrize("part", ["setup", "run"])
def test_the_shell_reads_the_task(part: str) -> None:
    subprocess.run(["bash", "-n"], input=TASK[part], text=True, check=True)


@pytest.mark.parametrize("code", [0, 3])
def test_the_task_notifies_before_it_stops_the_watcher(tmp_path: Path, code: int) -> None:
    """And ends as the trainer did: its own script, with programs that note how they are called."""
    programs = tmp_path / "grpo-watch" / "bin"
    programs.mkdir(parents=True)
    (programs / "grpo-watch").write_text('#!/bin/sh\necho "watch $*" >>"$HOME/calls"\nexec sleep 60\n')
    for name, says, ends in (("python", "train", code), ("sleep", "wait", 0)):
        text = f'#!/bin/sh\n[ "$1" = 60 ] && exec /bin/sleep 60\necho "{says} $*" >>"$HOME/calls"\nexit {ends}\n'
        (programs / name).write_text(text)
    for program in programs.iterdir():
        program.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", TASK["run"]],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": f"{programs}:/usr/bin:/bin"},
        check=False,
        timeout=60,
    )
    assert done.returncode == code
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call for call in calls if not call.startswith("watch")] == [
        "train train.py --output_dir output/my-run",
        "wait 15",
    ]
