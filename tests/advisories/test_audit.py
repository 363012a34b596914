"""``grpo-watch audit``: launches and runs, where versions are read, exit codes and JSON."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.errors import UsageError
from grpo_watch.preflight.inputs.framework_version import installed_in
from tests.preflight.launches import hide_installed
from tests.support.bundles import unpack

SWIFT = "swift rlhf --rlhf_type grpo --model m --dataset d --use_vllm true --num_generations 6"
TWO = f"{SWIFT} --num_infer_workers 2"


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_installed(monkeypatch)
    monkeypatch.chdir(tmp_path)


def audited(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    own, dashes, launch = " ".join(arguments).partition(" -- ")
    code = run_cli(["audit", "--format", "json", *own.split(), *([dashes.strip(), *launch.split()] if dashes else [])])
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "grpo-watch/audit/1"
    (only,) = document["audits"]
    return code, only


def names(audit: dict[str, Any]) -> list[str]:
    return [match["id"] for match in audit["applies"]]


def environment(folder: Path, **versions: str) -> Path:
    """An environment as pip leaves it; nothing in it can be run."""
    packages = folder / "env" / "lib" / "python3.11" / "site-packages"
    for name, version in versions.items():
        (packages / f"{name}-{version}.dist-info").mkdir(parents=True)
    (folder / "env" / "bin").mkdir()
    (folder / "env" / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
    return folder / "env"


def test_shared_seeds_of_ms_swift_3450(capsys: pytest.CaptureFixture[str]) -> None:
    """ms-swift#3450: 3.2.0, two engines beside six trainers, and half of each group a copy."""
    code, audit = audited(capsys, "--framework-version 3.2.0 --world-size 6 -- " + TWO)
    assert code == 1
    assert names(audit) == ["GW-2025-0101"]
    assert audit["versions"]["ms-swift"]["version"] == "3.2.0"
    code, audit = audited(capsys, "--framework-version 3.2.1 --world-size 6 -- " + TWO)
    assert (code, names(audit)) == (0, [])


def test_accumulated_gradients_of_ms_swift_4348(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ms-swift#4348: two devices, batches of 1, 32 accumulated steps on DeepSpeed, and the KL stays at 0."""
    launch = f"{SWIFT} --deepspeed zero2_offload --per_device_train_batch_size 1 --gradient_accumulation_steps 32"
    env = environment(tmp_path, ms_swift="3.4.1", deepspeed="0.16.9")
    code, audit = audited(capsys, f"--python {env} --world-size 2 -- {launch}")
    assert code == 1
    (match,) = [match for match in audit["applies"] if match["severity"] != "info"]
    assert match["id"] == "GW-2026-0202"
    assert {"kl-stuck-at-zero", "gradient-lost"} <= {*match["shows"]}
    assert match["version_from"] == "--python env"


def test_the_batch_of_trl_3061(capsys: pytest.CaptureFixture[str]) -> None:
    """trl#3061: four devices, batches of 1, groups of 8 in TRL 0.15. Only preflight speaks of the refusal."""
    launch = "trl grpo --model_name_or_path m --dataset_name d --per_device_train_batch_size 1 --num_generations 8"
    code, audit = audited(capsys, f"--framework-version 0.15.2 --world-size 4 -- {launch}")
    assert code == 1
    assert names(audit) == ["GW-2025-0004"]
    assert audit["applies"][0]["settings"] == ["temperature 0.9"]


def test_without_a_version_nothing_applies_and_the_command_says_what_settles_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, audit = audited(capsys, f"-- {SWIFT} --deepspeed zero2 --sleep_level 2")
    assert (code, names(audit), audit["judged"]) == (3, [], False)
    assert {each["settle"] for each in audit["open"]} >= {"pip show ms-swift", "pip show deepspeed"}
    run_cli(["audit", "--", *SWIFT.split(), "--deepspeed", "zero2"])
    shown = capsys.readouterr().out
    assert shown.startswith("NOT JUDGED: no version known")
    assert "\n  grpo-watch audit --framework ms-swift --framework-version VERSION -- " in shown
    assert ": pip show deepspeed\n" in shown


def test_a_script_takes_the_pin_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.sh").write_text(f"NPROC_PER_NODE=4 {SWIFT} --deepspeed zero2\n")
    (tmp_path / "requirements.txt").write_text("ms-swift==3.11.0\ndeepspeed==0.18.1\n")
    code, audit = audited(capsys, "train.sh")
    assert code == 1
    assert names(audit) == ["GW-2025-0201"]
    assert audit["applies"][0]["version_from"] == "deepspeed pinned in requirements.txt"


def test_a_recorded_run_is_audited_by_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = unpack("ms-swift-4.6.0-10-healthy-reuse-spg2-iters2", tmp_path)
    code, audit = audited(capsys, str(run))
    assert (code, names(audit), audit["framework"]) == (0, [], "ms-swift")
    assert audit["versions"]["ms-swift"]["version"].startswith("4.6.0")


@pytest.mark.parametrize(
    "line",
    [
        "deepspeed==0.18.2",
        "[2026-01-01 10:00:00,000] [INFO] [logging.py:107:log_dist] [Rank 0] DeepSpeed info: version=0.18.2, git-hash=",
    ],
)
def test_a_log_that_prints_versions(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`pip freeze` at the top of a job's log, or the banner of a package."""
    rows = "".join(
        f"{{'loss': 0.1, 'grad_norm': 0.2, 'learning_rate': 1e-06, 'reward': 0.5, 'reward_std': 0.2, 'kl': 0.01, "
        f"'epoch': {step / 10}}}\n"
        for step in range(1, 9)
    )
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.log").write_text(f"{line}\n{rows}")
    (tmp_path / "run" / "ds_config.json").write_text('{"zero_optimization": {"stage": 2}}')
    code, audit = audited(capsys, "run")
    assert audit["versions"]["deepspeed"] == {"version": "0.18.2", "from": "printed in the log"}
    assert (code, names(audit)) == (1, ["GW-2025-0201"])


def test_wandb_s_list_of_packages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = unpack("ms-swift-4.6.0-10-healthy-reuse-spg2-iters2", tmp_path)
    folder = next(path.parent for path in run.rglob("args.json"))
    files = folder / "wandb" / "offline-run-20260101_000000-abc" / "files"
    files.mkdir(parents=True)
    (files / "requirements.txt").write_text("torch==2.9.0\nvllm==0.8.4\nmy-secret==1\n")
    _, audit = audited(capsys, str(run))
    assert audit["versions"]["vllm"]["version"] == "0.8.4"
    assert "my-secret" not in audit["versions"]


def test_an_environment_is_read_by_its_folders(tmp_path: Path) -> None:
    env = environment(tmp_path, trl="0.27.0", unsloth_zoo="2026.7.1")
    wanted = {"trl": "0.27.0", "unsloth-zoo": "2026.7.1"}
    assert installed_in(env) == installed_in(env / "bin" / "python") == wanted
    with pytest.raises(UsageError, match="no installed packages"):
        installed_in(tmp_path / "nowhere")


def test_text_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["audit", "--framework-version", "3.2.0", "--world-size", "6", "--", *TWO.split()]
    assert run_cli(arguments) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("1 KNOWN BUG")
    assert "\n  versions   ms-swift 3.2.0 (--framework-version)\n" in shown
    assert "GW-2025-0101" in shown
    assert "→ Use ms-swift 3.2.1 or newer, or num_infer_workers 1." in shown


def test_the_list_and_one_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["advisories", "--package", "vllm", "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["schema"] == "grpo-watch/advisories/1"
    assert {entry["package"] for entry in listed["advisories"]} == {"vllm"}
    assert run_cli(["advisories", "GW-2026-0202"]) == 0
    assert "deepspeedai/DeepSpeed#7967" in capsys.readouterr().out
    assert run_cli(["advisories", "GW-2026-9999"]) == 2
    assert "no advisory GW-2026-9999" in capsys.readouterr().err


def test_without_framework_and_version_nothing_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not called healthy, and the command that is printed settles it: for a run's folder and for a launch."""
    (tmp_path / "my run").mkdir()
    rows = "".join(f"{{'loss': 0.1, 'grad_norm': 0.2, 'step': {step}}}\n" for step in range(1, 7))
    (tmp_path / "my run" / "train.log").write_text(rows)
    for place in (["my run"], ["--", "python", "train.py"]):
        assert run_cli(["audit", *place]) == 3
        headline, command = capsys.readouterr().out.splitlines()
        assert headline.startswith("NOT JUDGED: no version known")
        assert run_cli(["audit", "--format", "json", *place]) == 3
        assert not json.loads(capsys.readouterr().out)["audits"][0]["judged"]
        arguments = shlex.split(command.replace("NAME", "trl").replace("VERSION", "0.15.2"))
        assert arguments[:2] == ["grpo-watch", "audit"]
        run_cli(arguments[1:])
        assert "NOT JUDGED" not in capsys.readouterr().out


def test_a_run_without_a_recorded_launch_takes_the_versions_of_the_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its settings stay unknown: what depends on one is open, with no default of the framework in its place."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.log").write_text("{'loss': 0.1, 'grad_norm': 0.2, 'step': 1}\n")
    env = environment(tmp_path, trl="0.15.2", vllm="0.8.4")
    for options, origin in (("--framework-version 0.15.2", "--framework-version"), (f"--python {env}",) * 2):
        code, audit = audited(capsys, f"run --framework trl {options}")
        assert (code, names(audit), audit["judged"]) == (0, [], True)
        assert audit["versions"]["trl"] == {"version": "0.15.2", "from": origin}
        assert "GW-2025-0004" in {each["id"] for each in audit["open"]}


def test_nothing_to_audit_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["audit"]) == 2
    assert "pass a PATH" in capsys.readouterr().err


def written(folder: Path, text: str, name: str = "train.py") -> str:
    (folder / name).write_text(text)
    return name


TEMPERED = "from trl import GRPOConfig, GRPOTrainer\nconfig = GRPOConfig(output_dir='o', num_generations=8{more})\n"


@pytest.mark.parametrize("more", ["**settings", "**load('grpo.yaml')"])
def test_what_a_script_spreads_may_be_any_setting(
    more: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A temperature of 1.0 may be in it: the default of 0.9 is no fact then, and the advisory is open."""
    alone = audited(capsys, f"{written(tmp_path, TEMPERED.format(more=''))} --framework-version 0.15.2")
    assert (alone[0], names(alone[1])) == (1, ["GW-2025-0004"])
    code, audit = audited(capsys, f"{written(tmp_path, TEMPERED.format(more=f', {more}'))} --framework-version 0.15.2")
    assert (code, names(audit)) == (0, [])
    assert {"id": "GW-2025-0004", "package": "trl", "settle": "the value of temperature"} in audit["open"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("train.sh", "python train_grpo.py --num_generations 8 --per_device_train_batch_size 4\n"),
        ("trainer.py", "from trl import GRPOTrainer\n"),
    ],
)
def test_a_program_that_is_not_here_may_set_anything(
    file: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, audit = audited(capsys, f"{written(tmp_path, text, file)} --framework-version 0.15.2")
    assert (code, names(audit)) == (0, [])


def test_axolotls_section_of_trl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "base_model: m\nrl: grpo\nmicro_batch_size: 4\ntrl: {{num_generations: 8, temperature: {0}}}\n"
    for temperature, expected in ((1.0, []), (0.7, ["GW-2025-0004"])):
        file = written(tmp_path, text.format(temperature), "axolotl.yaml")
        _, audit = audited(capsys, f"{file} --framework axolotl --framework-version 0.15.2")
        assert names(audit) == expected


LORA = (
    "from trl import GRPOConfig, GRPOTrainer\nfrom peft import LoraConfig\n"
    "args = GRPOConfig(temperature=1.0, gradient_checkpointing=True{more})\n"
    "GRPOTrainer(args=args, peft_config=LoraConfig())\n"
)


@pytest.mark.parametrize(
    ("more", "expected", "unread"),
    [
        ("", ["GW-2025-0002"], False),
        (", gradient_checkpointing_kwargs={'use_reentrant': True}", ["GW-2025-0002"], False),
        (", gradient_checkpointing_kwargs={'use_reentrant': False}", [], False),
        (", gradient_checkpointing_kwargs=dict(use_reentrant=False)", [], False),
        (", gradient_checkpointing_kwargs=load()", [], True),
    ],
)
def test_dictionaries_in_a_script_are_read(
    more: str, expected: list[str], *, unread: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six of 21 public scripts switch re-entrant checkpointing off in a dictionary; one that can't be read is open."""
    _, audit = audited(capsys, f"{written(tmp_path, LORA.format(more=more))} --framework-version 0.15.2")
    assert names(audit) == expected
    assert ("GW-2025-0002" in {each["id"] for each in audit["open"]}) is unread


@pytest.mark.parametrize(
    "origin", ["class GRPOConfig:\n    num_generations = 8\n", "from mine.config import GRPOConfig\n"]
)
def test_a_class_of_ones_own_is_no_configuration_of_trl(
    origin: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loops of one's own often call theirs GRPOConfig."""
    file = written(tmp_path, f"{origin}config = GRPOConfig(num_generations=8, learning_rate=1e-6)\n")
    code, audit = audited(capsys, f"{file} --framework-version 0.15.2")
    assert (code, audit["framework"], names(audit)) == (3, None, [])
