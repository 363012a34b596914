"""Folders of runs that exist: which run is read, where its arguments stand, and what is not followed."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.errors import UsageError
from grpo_watch.frameworks.launches import Launch
from grpo_watch.preflight.assess import assess
from grpo_watch.preflight.inputs.load_launch import GivenOptions, read_launch
from tests.preflight.launches import hide_installed
from tests.support.bundles import unpack
from tests.support.wandb_offline import job

EVENTS = Path(__file__).parent.parent / "sources" / "tfevents"
TRL, SWIFT = "trl-1.16.0-03h-healthy-eval", "ms-swift-4.6.0-10-healthy-reuse-spg2-iters2"
FILE = "runs/Nov21_08-30-05_vm/events.out.tfevents.1795249805.vm.9321.0"
ARGUMENTS: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 2,
    "num_generations": 8,
    "steps_per_generation": 2,
    "generation_batch_size": 32,
    "max_steps": 40,
    "num_iterations": 1,
    "log_completions": True,
    "hub_token": "<HUB_TOKEN>",
}
"""As TRL records them: both generation settings; 32 / (8 x 2) = 2 processes."""


def read(folder: Path, place: Path, options: GivenOptions = GivenOptions()) -> Launch:  # noqa: B008
    return read_launch(folder, (), options, place, {})


def trl_run(folder: Path) -> Path:
    """A real run of TRL with the events that it logged (its own record: 16 per device, 8 per group, 100 steps)."""
    run = unpack(TRL, folder)
    events = run / "output" / FILE
    events.parent.mkdir(parents=True)
    events.write_bytes(gzip.decompress((EVENTS / f"{TRL}.tfevents.gz").read_bytes()))
    return run


@pytest.mark.parametrize(("inner", "origin"), [("", f"output/{FILE}"), ("output", FILE)])
def test_a_run_of_trl_has_its_arguments_in_its_events(inner: str, origin: str, tmp_path: Path) -> None:
    run = trl_run(tmp_path)
    found = read(run / inner, Path("/"))
    wanted = {"per_device_train_batch_size": 16, "num_generations": 8, "max_steps": 100, "steps_per_generation": 1}
    assert {name: (found.settings[name].value, found.settings[name].origin) for name in wanted} == {
        name: (value, origin) for name, value in wanted.items()
    }
    assert (found.framework, found.version) == ("trl", "1.16.0")
    assert found.world_size is not None
    assert found.world_size.value == 1
    assert found.unresolved == ()
    assert (found.text.split(", ")[0], found.text.split(", ")[1]) == (str(run / inner).lstrip("/"), origin)
    assessment = assess(found)
    assert (assessment.missing, assessment.prediction and assessment.prediction.max_steps) == ((), 100)


def test_a_run_of_ms_swift_is_read_from_its_root(tmp_path: Path) -> None:
    run = unpack(SWIFT, tmp_path)
    (arguments,) = run.rglob("args.json")
    found = read(run, tmp_path)
    raw = json.loads(arguments.read_text())
    assert found.settings["num_generations"].value == raw["num_generations"]
    assert found.settings["num_generations"].origin.startswith(f"{arguments.relative_to(run).as_posix()}:")
    assert found.version_origin.startswith("output/v0-")


def test_of_several_runs_the_one_written_last_is_judged_and_named(tmp_path: Path) -> None:
    for name, group, at in (("a", 4, 2_000_000_000), ("b", 8, 1_900_000_000)):
        run = unpack(SWIFT, tmp_path / "jobs" / name)
        (arguments,) = run.rglob("args.json")
        arguments.write_text(json.dumps({**json.loads(arguments.read_text()), "num_generations": group}))
        for file in run.rglob("*"):
            os.utime(file, (at, at))
    found = read(Path("jobs"), tmp_path)
    assert found.settings["num_generations"].value == 4
    (line,) = (line for line in found.unresolved if "holds 2 runs" in line)
    assert line.startswith("jobs: holds 2 runs; a")
    assert line.endswith(", written last, is judged: name another's folder")


@pytest.mark.slow
def test_wandb_s_own_folder_holds_the_configuration(tmp_path: Path) -> None:
    with job(tmp_path, **ARGUMENTS) as running:
        running.log(train__loss=0.1, train__reward=0.5, train__global_step=1)
        running.finish()
        log = running.path
    (log.parent / "files" / "requirements.txt").write_text("torch==2.13.0\ntrl==0.24.0\n")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "requirements.txt").write_text("trl==1.16.0\n")
    found = read(log.parent, tmp_path / "here")
    assert found.settings["num_generations"].value == 8
    assert found.settings["num_generations"].origin == log.name
    assert (found.framework, found.version) == ("trl", "0.24.0")
    assert found.version_origin == "trl pinned in files/requirements.txt"
    assert found.world_size is not None
    assert found.world_size.value == 2
    assert "hub_token" not in found.settings
    assert not [problem for problem in assess(found).problems if problem.check == "generation-settings-conflict"]


@pytest.mark.parametrize(("place", "version"), [(".", "0.27.0"), ("project", None)])
def test_a_pin_where_we_are_counts_for_runs_below_only(
    place: str, version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_installed(monkeypatch)
    run = trl_run(tmp_path)
    (run / "output" / "README.md").unlink(missing_ok=True)  # the model card names the version
    (tmp_path / "project").mkdir()
    (tmp_path / place / "requirements.txt").write_text("trl==0.27.0\n")
    assert read(run, tmp_path / place).version == version


def test_a_configuration_behind_a_link_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text('{"num_generations": 8, "rlhf_type": "grpo"}')
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "args.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(UsageError, match="contains no run configuration"):
        read(Path("run"), tmp_path)


def test_damaged_events_are_no_arguments(tmp_path: Path) -> None:
    run = trl_run(tmp_path)
    events = run / "output" / FILE
    events.write_bytes(events.read_bytes()[:3000])  # the arguments alone take 5,940
    with pytest.raises(UsageError, match="contains no run configuration"):
        read(run, tmp_path)


def test_nothing_heavy_is_imported_for_a_folder(tmp_path: Path) -> None:
    run = trl_run(tmp_path)
    heavy = {"torch", "transformers", "pandas", "pyarrow", "trl", "wandb", "numpy", "tensorboard", "sqlite3"}
    code = (
        "import sys\nfrom grpo_watch.cli.main import run_cli\n"
        f"assert run_cli(['preflight', {str(run)!r}]) == 0\n"
        f"print('loaded:', *sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_a_folder_of_logs_only_has_no_configuration(tmp_path: Path) -> None:
    run = unpack(SWIFT, tmp_path)
    (tmp_path / "logs").mkdir()
    shutil.copy(run / "train.log", tmp_path / "logs" / "train.log")
    with pytest.raises(UsageError, match=r"^logs: contains no run configuration .*arguments\)$"):
        read(Path("logs"), tmp_path)
    (tmp_path / "logs" / "train.sh").write_text("swift rlhf\n")
    with pytest.raises(UsageError, match=r"; name the launch script: logs/train\.sh$"):
        read(Path("logs"), tmp_path)
