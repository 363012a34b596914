"""``grpo-watch preflight``: exit codes, JSON, text, what it imports, and the examples of its documentation."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_watch.cli.main import run_cli
from grpo_watch.cli.preflight import as_text
from grpo_watch.engine.records import Setting, Severity
from grpo_watch.frameworks.launches import Launch
from grpo_watch.preflight.findings import Assessment, LaunchProblem, Prediction, Suggestion
from tests.preflight.launches import hide_installed

ROOT = Path(__file__).parent.parent.parent
LAUNCHES = ROOT / "tests" / "preflight" / "launches"
DOCS = (ROOT / "docs" / "preflight.md").read_text()

GOOD = "--num_generations 8 --per_device_train_batch_size 8 --gradient_accumulation_steps 2 --log_completions true"
BAD = "--num_generations 8 --per_device_train_batch_size 3 --gradient_accumulation_steps 1"


@pytest.fixture(autouse=True)
def _plain_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable and no accelerate configuration of the machine takes part."""
    monkeypatch.chdir(tmp_path)
    hide_installed(monkeypatch)
    for name in ("NPROC_PER_NODE", "NNODES", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run_cli(["preflight", "--format", "json", *arguments])
    written = capsys.readouterr()
    return code, json.loads(written.out) if written.out else {"error": written.err}


def swift(flags: str, *ours: str) -> list[str]:
    return [*ours, "--", "swift", "rlhf", "--rlhf_type", "grpo", *flags.split()]


KNOWN = ("--framework-version", "4.6.0", "--dataset-size", "8000")


def test_a_launch_that_works_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """8000 prompts x 8 completions over 1 process x 8 x 2: 16 completions, 2 prompts per step, 4000 steps an epoch."""
    code, answer = ask(capsys, *swift(f"{GOOD} --num_train_epochs 1", *KNOWN))
    assert (code, answer["ok"], answer["framework"], answer["framework_version"]) == (0, True, "ms-swift", "4.6.0")
    assert answer["prediction"]["max_steps"] == 4000
    assert answer["prediction"]["completions_per_step"] == 16
    assert repr(answer["prediction"]["prompts_per_step"]) == "2"
    assert answer["missing"] == []


def test_a_launch_that_will_be_refused_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = ask(capsys, *swift(BAD, *KNOWN))
    assert (code, answer["ok"]) == (1, False)
    problem = answer["problems"][0]
    assert (problem["check"], problem["severity"]) == ("batch-not-divisible", "critical")
    assert {"check", "severity", "message", "hint", "where"} <= problem.keys()
    assert problem["where"] == "command line"
    assert all("why" in suggestion for suggestion in answer["suggestions"])


def test_the_document_has_the_keys_of_the_interface(capsys: pytest.CaptureFixture[str]) -> None:
    _, answer = ask(capsys, *swift(GOOD, *KNOWN))
    assert answer["schema"] == "grpo-watch/preflight/1"
    assert list(answer) == [
        *("schema", "framework", "framework_version", "framework_version_from"),
        *("ok", "problems", "suggestions", "prediction", "missing", "unresolved"),
    ]
    steps = (
        "max_steps",
        "steps_per_epoch",
        "completions_per_step",
        "prompts_per_step",
        "generation_batch_size",
        "formula",
    )
    assert set(steps) <= answer["prediction"].keys()


@pytest.mark.parametrize(
    ("before", "version", "origin"),
    [
        ("", "4.6.0", "ms-swift as installed here"),
        ("env RANK=0", "4.6.0", "ms-swift as installed here"),
        ("uv run", "4.5.0", "ms-swift pinned in requirements.txt"),
        ("/opt/train/bin/python -m swift.cli.rlhf", "4.5.0", "ms-swift pinned in requirements.txt"),
    ],
)
def test_what_is_installed_counts_where_the_launch_takes_it(
    before: str,
    version: str,
    origin: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hide_installed(monkeypatch, ms_swift="4.6.0")
    (tmp_path / "requirements.txt").write_text("ms-swift==4.5.0\n")
    launch = before.split() if "swift.cli" in before else [*before.split(), "swift", "rlhf"]
    answer = ask(capsys, "--", *launch, "--rlhf_type", "grpo", *GOOD.split())[1]
    assert (answer["framework_version"], answer["framework_version_from"]) == (version, origin)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--num_train_epochs $EPOCHS", "num_train_epochs could not be read (train.sh:1)"),
        ("--max_steps $STEPS", "max_steps could not be read (train.sh:1)"),
        ("--num_iterations $1", "num_iterations could not be read (train.sh:1)"),
        ("--split_dataset_ratio $SPLIT", "split_dataset_ratio could not be read (train.sh:1)"),
        ("--eval_strategy $EVAL", "eval_strategy could not be read (train.sh:1)"),
        ("--num_train_epochs -1", "num_train_epochs is -1, not more than 0 (train.sh:1)"),
        ("--num_iterations 0", "num_iterations is 0, not a positive whole number (train.sh:1)"),
        ("--gradient_accumulation_steps sk-shortsecret", "gradient_accumulation_steps could not be read (train.sh:1)"),
        ("--streaming true", "a dataset that is streamed has no length: set max_steps (train.sh:1)"),
        ("--sequence_parallel_size 4", "sequence_parallel_size lets several processes share one batch"),
        ("--auto_find_batch_size true", "auto_find_batch_size changes the per-device batch"),
    ],
)
def test_what_decides_and_is_not_known_is_no_ok(
    flags: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.sh").write_text(f"swift rlhf --rlhf_type grpo {GOOD} {flags}\n")
    code, answer = ask(capsys, "train.sh", *KNOWN)
    assert (code, answer["ok"]) == (3, False)
    assert any(each.startswith(line) for each in answer["missing"])
    if "eval" not in flags:
        assert answer["prediction"] is None or answer["prediction"]["max_steps"] is None


def test_a_total_that_is_set_needs_no_epochs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.sh").write_text(f"swift rlhf --rlhf_type grpo {GOOD} --max_steps 50 --num_train_epochs $E\n")
    code, answer = ask(capsys, "train.sh", *KNOWN)
    assert (code, answer["prediction"]["max_steps"]) == (0, 50)
    assert answer["unresolved"] == ["train.sh:1: num_train_epochs is $E, which nothing here sets"]


def test_versions_outside_of_what_is_known_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = ask(capsys, *swift(GOOD, "--dataset-size", "80", "--framework-version", "2.6.0"))
    assert code == 3
    assert answer["missing"][0].startswith("the rules of 2.6.0 are not known")
    code, answer = ask(capsys, *swift(GOOD, "--dataset-size", "80", "--framework-version", "9.9.9"))
    assert (code, answer["unresolved"]) == (0, ["9.9.9 is newer than 4.6.0, whose rules are applied"])
    assert ask(capsys, *swift(GOOD, "--dataset-size", "80", "--framework-version", "4.6.3"))[1]["unresolved"] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.py", "from trl import GRPOConfig\na = GRPOConfig(max_steps=login(token='SECRET', k=f('SECRET')))\n"),
        ("train.sh", "swift rlhf --rlhf_type grpo --dataset 'hf::me/x?token=SECRET&a=SECRET'\n"),
        ("train.sh", "swift rlhf --rlhf_type grpo --dataset 'https://me:SECRET@host/x.jsonl'\n"),
    ],
)
def test_secrets_in_what_can_t_be_read_are_not_printed(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    for output in ("text", "json"):
        assert run_cli(["preflight", name, "--format", output]) in {1, 3}
        written = capsys.readouterr()
        assert "SECRET" not in written.out + written.err


def test_a_path_that_is_not_there_is_named_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(["preflight", str(tmp_path / "gone.sh")]) == 2
    assert f"{tmp_path / 'gone.sh'}: no such file or folder" in capsys.readouterr().err


def test_problems_outrank_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, *swift(BAD))[0] == 1


def test_what_is_missing_ends_with_3_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = ask(capsys, *swift(GOOD, "--framework-version", "4.6.0"))
    assert (code, answer["ok"]) == (3, False)
    assert any("--dataset-size" in line for line in answer["missing"])


def test_a_dataset_that_is_not_here_is_no_problem_once_its_size_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, *swift(f"{GOOD} --dataset gone.jsonl", *KNOWN))[0] == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "pass a FILE"),
        (["gone.sh"], "gone.sh: no such file or folder"),
        (["--", "ls"], "ls: not a GRPO training launch"),
        (
            ["--framework", "keras", "--", "swift", "rlhf"],
            "--framework keras: unknown; known frameworks: axolotl, ms-swift",
        ),
        (["--world-size", "0", "--", "swift", "rlhf"], "--world-size: 0: must be a whole number, at least 1"),
        (["--dataset-size", "x", "--", "swift", "rlhf"], "--dataset-size"),
        (["--framework-version", "banana", "--", "swift", "rlhf"], "--framework-version banana: not a version"),
    ],
)
def test_wrong_use_ends_with_2_and_one_line(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer = ask(capsys, *arguments)
    assert code == 2
    assert error in answer["error"]
    assert answer["error"].count("\n") == 1


def test_all_after_the_first_dashes_belongs_to_the_launch(capsys: pytest.CaptureFixture[str]) -> None:
    """Flags that we have too, ``--help`` and a second ``--`` among them."""
    code, answer = ask(capsys, *swift(f"{GOOD} --framework x --version --world-size 4 --help -- -v", *KNOWN))
    assert (code, answer["framework"]) == (0, "ms-swift")


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    files = [str(LAUNCHES / name) for name in ("swift.sh", "grpo.yaml", "train.py", "verl.sh", "axolotl.yml")]
    launches = [
        f"swift rlhf --rlhf_type grpo {BAD}",
        f"accelerate launch --num_processes 2 train.py {BAD}",
        "trl grpo --num_generations 8",
        "python -m verl.trainer.main_ppo data.train_batch_size=64",
    ]
    heavy = {"torch", "transformers", "pandas", "pyarrow", "trl", "swift", "wandb", "numpy"}
    code = (
        "import sys\nfrom grpo_watch.cli.main import run_cli\n"
        f"for file in {files!r}: assert run_cli(['preflight', file]) in (1, 3)\n"
        f"for launch in {launches!r}: assert run_cli(['preflight', '--', *launch.split()]) in (1, 3)\n"
        f"print('loaded:', *sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "loaded:"


LAUNCH = Launch(
    framework="trl",
    version="1.16.0",
    settings={
        "per_device_train_batch_size": Setting(3, "train.sh:14"),
        "gradient_accumulation_steps": Setting(2, "train.sh:15"),
    },
    world_size=Setting(6, "train.sh:9"),
    dataset_size=Setting(8000, "data/train.jsonl"),
    unresolved=("train.sh:16: learning_rate is $RATE, which nothing here sets",),
    text="train.sh, accelerate train.py",
)
ASSESSMENT = Assessment(
    framework="trl",
    version="1.16.0",
    problems=(
        LaunchProblem(
            check="batch-not-divisible",
            severity=Severity.CRITICAL,
            message="refused before the model is loaded: 36 completions can't be shared out in groups of 8",
            hint="make 6 processes x per_device_train_batch_size x steps_per_generation a multiple of 8",
            where="train.sh:14",
            says="generation_batch_size (36) must be divisible by num_generations (8).",
        ),
        LaunchProblem(
            Severity.INFO,
            "save_steps is larger than the run",
            "save twice early",
            "train.sh:18",
            check="no-checkpoints",
        ),
    ),
    suggestions=(
        Suggestion({"per_device_train_batch_size": 4}, "one change; 48 completions per generation"),
        Suggestion(
            {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}, "memory per device is lowered"
        ),
    ),
    prediction=Prediction(
        max_steps=1320, steps_per_epoch=1320, completions_per_step=96, formula="floor(7920 / 12) x 2"
    ),
    missing=("the version is not known (--framework-version)",),
)
TEXT = """\
WILL FAIL  train.sh, accelerate train.py  trl 1.16.0 · 6 processes · 8,000 rows
  critical  batch-not-divisible  train.sh:14
            refused before the model is loaded: 36 completions can't be shared out in groups of 8
            it says: generation_batch_size (36) must be divisible by num_generations (8).
            → make 6 processes x per_device_train_batch_size x steps_per_generation a multiple of 8
  info      no-checkpoints  train.sh:18
            save_steps is larger than the run
            → save twice early

     nearest valid settings
  1  per_device_train_batch_size 3 → 4  one change; 48 completions per generation
  2  per_device_train_batch_size 3 → 2  memory per device is lowered
     gradient_accumulation_steps 2 → 4

  prediction
    max_steps             1,320
    steps per epoch       1,320
    completions per step     96
    floor(7920 / 12) x 2

  missing
    the version is not known (--framework-version)

  not read
    train.sh:16: learning_rate is $RATE, which nothing here sets
"""


def test_the_text_is_aligned_and_short() -> None:
    assert as_text(LAUNCH, ASSESSMENT, color=False, width=110) == TEXT


@pytest.mark.parametrize(
    ("framework", "origin", "shown"),
    [
        ("ms-swift", "ms-swift pinned in requirements.txt", "ms-swift 4.6.0 (pinned in requirements.txt)"),
        ("open-r1", "trl as installed here", "open-r1 on TRL 4.6.0 (trl as installed here)"),
        ("trl", "--framework-version", "trl 4.6.0"),
    ],
)
def test_the_headline_says_whose_rules_hold(framework: str, origin: str, shown: str) -> None:
    text = as_text(Launch(), Assessment(framework, "4.6.0", version_origin=origin), color=False, width=110)
    assert text.splitlines()[0].endswith(f"  {shown}")


def test_it_is_chinese_where_the_settings_say_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the framework says, names and numbers stay."""
    monkeypatch.setenv("GRPO_WATCH_LANGUAGE", "zh")
    assert run_cli(["preflight", *swift(BAD, *KNOWN)]) == 1
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "会失败  swift rlhf  ms-swift 4.6.0 · 1 个进程 · 8,000 条数据"
    factors = "per_device_train_batch_size x processes x gradient_accumulation_steps"
    assert [line.strip() for line in lines[:4]] == [
        "严重      batch-not-divisible  命令行",
        "3 x 1 x 1 = 3 条生成凑不成整组（每组 8 条），解析参数时会报错",
        "框架原文：generation_batch_size (3) must be evenly divisible by num_generations (8). Valid values: [3].",
        f"→ 让 {factors} 是 num_generations 的整数倍",
    ]
    assert any("每批生成 8 条 = 1 x 8；不变的有：组大小" in line for line in lines)


def test_colours_add_nothing_but_colours() -> None:
    coloured = as_text(LAUNCH, ASSESSMENT, color=True, width=110)
    assert "\x1b[1;31mWILL FAIL" in coloured
    plain = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert [line.rstrip() for line in plain.splitlines()] == TEXT.splitlines()


def test_control_characters_of_a_launch_never_reach_the_terminal() -> None:
    launch = Launch(text="\x1b[2Jevil", unresolved=("a\x07b",))
    text = as_text(launch, Assessment(None, None, missing=("the framework",)), color=False, width=110)
    assert "\x1b" not in text
    assert "\\x1b[2Jevil" in text
    assert "a\\x07b" in text


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)


def stub(folder: Path, name: str) -> Path:
    """A program that says its name and arguments; the real one costs a GPU."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "started {name} $*"\n')
    path.chmod(0o755)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code", "started"),
    [
        (f"swift rlhf --rlhf_type grpo {BAD}", 1, False),
        (f"swift rlhf --rlhf_type grpo {GOOD}", 0, True),
        ("swift deploy --model x", 0, True),
        (f"accelerate launch --num_processes 1 train.py {BAD}", 1, False),
        (f"accelerate launch --num_processes 2 train.py {GOOD}", 0, True),
    ],
)
def test_the_wrapper_of_the_documentation(line: str, code: int, started: object, tmp_path: Path) -> None:
    (script,) = blocks("sh")
    guard, real = tmp_path / "guard", tmp_path / "real"
    guard.mkdir()
    (guard / "swift").write_text(script)
    (guard / "swift").chmod(0o755)
    (guard / "accelerate").symlink_to("swift")
    stub(real, "swift")
    stub(real, "accelerate")
    path = os.pathsep.join([str(guard), str(real), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        shlex.split(line),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        executable=str(guard / line.split(maxsplit=1)[0]),
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == (f"started {line}\n" if started else "")
    off = subprocess.run(
        [guard / line.split(maxsplit=1)[0], *shlex.split(line)[1:]],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PREFLIGHT": "off"},
    )
    assert off.stdout == f"started {line}\n"


@pytest.mark.slow
def test_the_hook_and_the_action_of_the_documentation(tmp_path: Path) -> None:
    action, hook = (yaml.safe_load(block) for block in blocks("yaml"))
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "grpo.sh").write_text(f"swift rlhf --rlhf_type grpo {GOOD}\n")
    (tmp_path / "train" / "bad.sh").write_text(f"swift rlhf --rlhf_type grpo {BAD}\n")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = {**os.environ, "PATH": path}
    (ours,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    (named,) = hook["repos"][0]["hooks"]
    assert named["id"] == ours["id"]
    assert re.search(named["files"], "train/grpo.sh")
    entry = ours["entry"]
    codes = [
        subprocess.run(
            [*shlex.split(entry), *files], env=environ, cwd=tmp_path, capture_output=True, check=False
        ).returncode
        for files in (["train/grpo.sh"], ["train/grpo.sh", "train/bad.sh"])
    ]
    assert codes == [0, 1]
    command = action["jobs"]["preflight"]["steps"][-1]["run"]
    done = subprocess.run(["sh", "-c", command], env=environ, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


def test_settings_that_cannot_be_used_keep_no_answer_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They only say in which language it is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRPO_WATCH_LANGUAGE", "zh")
    Path("grpo-watch.yaml").write_text("nonsense: 1\n")
    assert run_cli(["preflight", "--", "trl", "grpo", "--num_generations", "1"]) == 1
    assert "会失败" in capsys.readouterr().out
