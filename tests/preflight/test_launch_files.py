"""Files that people launch with: scripts, configurations, Python files and run folders."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from grpo_watch.engine.records import Scalar, Setting
from grpo_watch.errors import UsageError
from grpo_watch.frameworks.launches import Launch, LaunchSettings
from grpo_watch.preflight.inputs.load_launch import GivenOptions, read_launch
from tests.preflight.launches import hide_installed
from tests.support.bundles import unpack

LAUNCHES = Path(__file__).parent / "launches"


def read(
    name: str,
    folder: Path = LAUNCHES,
    environ: Mapping[str, str] | None = None,
    options: GivenOptions = GivenOptions(),  # noqa: B008  frozen
) -> Launch:
    return read_launch(Path(name), (), options, folder, environ or {})


def values(settings: Mapping[str, Setting]) -> dict[str, Scalar]:
    return {name: setting.value for name, setting in settings.items()}


def test_a_script_for_ms_swift() -> None:
    found = read("swift.sh")
    assert found.framework == "ms-swift"
    assert found.world_size == Setting(6, "swift.sh:29: NPROC_PER_NODE")
    assert values(found.settings) == {
        "rlhf_type": "grpo",
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "train_type": "lora",
        "dataset": "AI-MO/NuminaMath-TIR#8000",
        "split_dataset_ratio": 0.01,
        "reward_funcs": "accuracy format",
        "num_generations": 8,
        "beta": 0.04,
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "num_iterations": 2,
        "learning_rate": None,
        "max_completion_length": None,
        "output_dir": None,
        "use_vllm": True,
        "deepspeed": "zero2",
    }
    assert found.settings["num_generations"].origin == "swift.sh:19"
    assert found.settings["per_device_train_batch_size"].origin == "swift.sh:37"
    assert LaunchSettings(found).zero() == (Setting(2, "swift.sh:45"), None)
    assert found.peft is True
    assert found.unresolved == (
        "swift.sh:41: learning_rate is $RATE, which is set under a condition only",
        "swift.sh:42: max_completion_length is $LENGTH, which nothing here sets",
    )
    assert found.text == "swift.sh, swift rlhf"


def test_a_variable_of_the_caller_reaches_the_script_only_if_it_is_no_secret() -> None:
    assert read("swift.sh", environ={"GROUP": "4"}).settings["num_generations"].value == 8


def test_the_script_as_a_command_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "go.sh").write_text('swift rlhf --rlhf_type grpo --num_generations $1 --beta ${2:-0.1} "${@:3}"\n')
    found = read_launch(None, ["bash", "go.sh", "16"], GivenOptions(), tmp_path, {})
    assert values(found.settings) == {"rlhf_type": "grpo", "num_generations": 16, "beta": 0.1}
    assert "arguments in it are not seen" in found.unresolved[0]


def test_the_training_is_picked_out_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "all.sh").write_text(
        "python prepare.py --out x\ntrl vllm-serve --model m &\n"
        "accelerate launch --num_processes 4 train_grpo.py --num_generations 8\npython evaluate.py\n"
    )
    found = read("all.sh", tmp_path)
    assert (found.framework, found.world_size) == ("trl", Setting(4, "all.sh:3"))
    (tmp_path / "two.sh").write_text("trl grpo --num_generations 4\ntrl grpo --num_generations 8\n")
    found = read("two.sh", tmp_path)
    assert found.settings["num_generations"].value == 4
    assert "2 commands train (two.sh:1, two.sh:2); the first is judged" in found.unresolved
    (tmp_path / "none.sh").write_text("echo hello\n")
    with pytest.raises(UsageError, match=r"none\.sh: no command launches GRPO training"):
        read("none.sh", tmp_path)


def test_a_script_that_calls_another(tmp_path: Path) -> None:
    (tmp_path / "outer.sh").write_text("export NPROC_PER_NODE=2\ncd inner\nbash run.sh 8\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "run.sh").write_text("swift rlhf --rlhf_type grpo --num_generations $1\n")
    found = read("outer.sh", tmp_path)
    assert found.settings["num_generations"] == Setting(8, "inner/run.sh:1")


def test_verl_s_script() -> None:
    found = read("verl.sh", environ={"HOME": "/home/me"})
    assert found.framework == "verl"
    assert found.world_size == Setting(16, "verl.sh:18")
    kept = values(found.settings)
    assert kept["data.train_files"] == "/home/me/data/gsm8k/train.parquet"
    assert kept["actor_rollout_ref.rollout.n"] == 5
    assert kept["data.max_response_length"] == 2048
    assert kept["actor_rollout_ref.actor.ppo_mini_batch_size"] == 256
    assert kept["actor_rollout_ref.actor.use_kl_loss"] is True
    assert kept["trainer.logger"] == "console wandb"


def test_openrlhf_inside_ray() -> None:
    found = read("openrlhf.sh")
    assert (found.framework, found.world_size) == ("openrlhf", Setting(16, "openrlhf.sh:5"))
    assert found.settings["colocate_all_models"].value is True


def test_yaml_for_trl_with_places_merges_and_no_secret() -> None:
    found = read("grpo.yaml")
    assert found.framework == "trl"
    assert found.settings["num_generations"] == Setting(16, "grpo.yaml:5:3")
    assert found.settings["learning_rate"] == Setting(1e-6, "grpo.yaml:9:1")
    assert found.settings["reward_funcs"].value == "accuracy_reward think_format_reward"
    assert "max_steps" not in found.settings
    assert "hub_token" not in found.settings
    assert found.peft is True
    assert found.unresolved == ("taken for trl by its settings' names: say --framework if it is another",)


def test_axolotl_s_yaml() -> None:
    found = read("axolotl.yml")
    assert found.framework == "axolotl"
    assert found.settings["trl.num_generations"] == Setting(8, "axolotl.yml:7:3")
    assert found.peft is True


def test_a_wandb_configuration() -> None:
    assert values(read("wandb-config.yaml").settings) == {"num_generations": 8, "per_device_train_batch_size": 2}


def test_a_python_file() -> None:
    found = read("train.py")
    assert found.framework == "trl"
    assert values(found.settings) == {
        "output_dir": None,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "generation_batch_size": 48,
        "learning_rate": None,
        "beta": 0.04,
        "num_generations": 8,
    }
    assert found.settings["per_device_train_batch_size"].origin == "train.py:26:33"
    assert found.settings["num_generations"].origin == "train.py:14:42"
    assert found.peft is True
    assert found.unresolved == (
        "train.py:27:33: gradient_accumulation_steps=2 is the default that the file has for $ACCUMULATE",
        "train.py:29:19: learning_rate is computed by the script",
    )


def test_a_notebook_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "x.ipynb").write_text("{}")
    with pytest.raises(UsageError, match=r"x\.ipynb: notebooks are not read: .* nbconvert"):
        read("x.ipynb", tmp_path)


def test_a_python_file_with_its_own_flags() -> None:
    found = read_launch(
        None,
        ["accelerate", "launch", "--num_processes", "2", "train.py", "--batch", "16", "--group", "4"],
        GivenOptions(),
        LAUNCHES,
        {},
    )
    assert found.settings["per_device_train_batch_size"].value == 16
    assert found.settings["num_generations"].value == 4
    assert "batch" not in found.settings


@pytest.mark.parametrize(
    ("body", "settings", "peft"),
    [
        ("cfg = GRPOConfig(beta=2 ** 3)", {"beta": None}, None),
        ("B = 4\nB = 8\ncfg = GRPOConfig(num_generations=B)", {"num_generations": None}, None),
        (
            "S = {'num_generations': 8}\ncfg = GRPOConfig(**S, beta=-1.5e-3)",
            {"num_generations": 8, "beta": -0.0015},
            None,
        ),
        ("cfg = trl.GRPOConfig(num_generations=int('8'))", {"num_generations": 8}, None),
        ("t = GRPOTrainer(args=GRPOConfig(use_vllm=True))", {"use_vllm": True}, False),
        ("t = GRPOTrainer(args=GRPOConfig(), peft_config=get_peft_config(m))", {}, None),
        ("model = FastLanguageModel.get_peft_model(model)\nt = GRPOTrainer(args=GRPOConfig())", {}, True),
    ],
)
def test_expressions_in_a_python_file(body: str, settings: dict[str, Scalar], peft: object, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(f"import trl\nfrom trl import GRPOConfig, GRPOTrainer\n{body}\n")
    found = read("x.py", tmp_path)
    assert (values(found.settings), found.peft) == (settings, peft)


def test_unsloth_is_distinguished_from_trl_by_its_import(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("import unsloth\nfrom trl import GRPOConfig\nGRPOConfig(num_generations=8)\n")
    assert read("x.py", tmp_path).framework == "unsloth"


def test_a_run_folder_of_ms_swift(tmp_path: Path) -> None:
    folder = unpack("ms-swift-4.6.0-10-healthy-reuse-spg2-iters2", tmp_path)
    found = read(str(folder / "output"))
    raw = json.loads(next(folder.rglob("args.json")).read_text())
    assert (found.framework, found.version) == ("ms-swift", "4.6.0")
    assert found.settings["num_generations"].value == raw["num_generations"]
    assert found.settings["steps_per_generation"].value == raw["steps_per_generation"]
    assert found.settings["dataset"].value == " ".join(raw["dataset"])
    assert found.world_size is not None
    assert found.world_size.value == raw["global_world_size"]
    assert found.peft is False


def test_checkpoints_alone_are_no_arguments(tmp_path: Path) -> None:
    """Their trainer state names the batch and the steps; that is not the group, whose default would be a guess."""
    folder = unpack("trl-1.16.0-04-healthy-lora", tmp_path)
    with pytest.raises(UsageError, match="contains no run configuration"):
        read(str(folder / "output"))


def test_a_run_folder_without_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contains no run configuration"):
        read(str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("x.yaml", "a: [1\nb: 2", "x.yaml:2:2: did not find expected"),
        ("x.yaml", "- 1\n", "x.yaml: holds no settings"),
        ("x.yaml", "", "x.yaml: holds no settings"),
        ("x.json", '{"a": }', "x.json:1:7: Expecting value"),
        ("x.json", "[1]", "x.json: not a JSON object"),
        ("x.py", "def f(:\n", "x.py:1: no valid Python"),
        ("x.yaml", "a: &a [*a, *a]\nb: 1\n", "x.yaml: more than 20000 values"),
        ("x.yaml", "a: \x00\n", "x.yaml: "),
        ("x.json", "[" * 100_000, "x.json: nested too deeply"),
    ],
)
def test_bad_files_are_one_line_with_the_place(name: str, text: str, error: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as raised:
        read(name, tmp_path)
    assert str(raised.value).startswith(error)
    assert "\n" not in str(raised.value)


def test_aliases_that_explode_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 {x: 1, y: 2}"] + [f"a{n}: &a{n} {{p: *a{n - 1}, q: *a{n - 1}}}" for n in range(1, 30)]
    (tmp_path / "x.yaml").write_text("\n".join(lines))
    with pytest.raises(UsageError, match="more than 20000 values"):
        read("x.yaml", tmp_path)


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    import os  # noqa: PLC0415

    os.mkfifo(tmp_path / "x.yaml")
    with pytest.raises(UsageError, match="not a regular file"):
        read("x.yaml", tmp_path)


def test_versions_come_from_pins_beside_the_launch(tmp_path: Path) -> None:
    shutil.copy(LAUNCHES / "swift.sh", tmp_path)
    (tmp_path / "requirements.txt").write_text("# ms-swift==1.0\ntorch==2.6\nms_swift[llm]==3.9.1  # pinned\n")
    found = read("swift.sh", tmp_path)
    assert (found.version, found.version_origin) == ("3.9.1", "ms-swift pinned in requirements.txt")


def test_a_range_names_no_version(tmp_path: Path) -> None:
    shutil.copy(LAUNCHES / "swift.sh", tmp_path)
    (tmp_path / "requirements.txt").write_text("ms-swift>=3.6\n")
    assert read("swift.sh", tmp_path).version is None


def test_a_recorded_run_gives_both_generation_settings(tmp_path: Path) -> None:
    """As TRL's arguments are after it filled them in: 64 / (8 per device x 2 steps) = 4 processes."""
    recorded = {
        "num_generations": 8, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2,
        "steps_per_generation": 2, "generation_batch_size": 64,
    }  # fmt: skip
    lines = "".join(f"{name}: {{desc: null, value: {value}}}\n" for name, value in recorded.items())
    (tmp_path / "config.yaml").write_text(f"_wandb: {{value: {{cli_version: 0.19.1}}}}\n{lines}")
    found = read("config.yaml", tmp_path)
    assert found.world_size is not None
    assert found.world_size.value == 4
    assert "generation_batch_size" not in found.settings
    assert found.settings["steps_per_generation"].value == 2
    (tmp_path / "train.yaml").write_text("".join(f"{name}: {value}\n" for name, value in recorded.items()))
    assert "generation_batch_size" in read("train.yaml", tmp_path).settings  # a launch with both is refused


def test_attributes_that_are_set_after_the_configuration_was_made(tmp_path: Path) -> None:
    """They may be set under a condition: they are asked for."""
    (tmp_path / "train.py").write_text(
        "from trl import GRPOConfig\n"
        "args = GRPOConfig(output_dir='x', num_generations=8, per_device_train_batch_size=8)\n"
        "other.beta = 3\n"
        "if len(sys.argv) > 1:\n    args.num_generations = 16\n"
        "args.max_steps += 1\n"
    )
    found = read("train.py", tmp_path)
    assert values(found.settings) == {
        "output_dir": "x", "per_device_train_batch_size": 8, "num_generations": None, "max_steps": None,
    }  # fmt: skip
    assert "train.py:5:28: num_generations is set after the configuration was made" in found.unresolved


def test_attributes_of_what_trl_s_parser_gives(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "from trl import GRPOConfig, TrlParser\n"
        "def main():\n"
        "    script_args, training_args = TrlParser((A, GRPOConfig)).parse_args_and_config()\n"
        "    training_args.num_generations = 6\n"
        "main()\n"
    )
    words = ("python", "train.py", "--num_generations", "8", "--beta", "0.1")
    found = read_launch(None, words, GivenOptions(), tmp_path, {})
    assert found.settings["num_generations"] == Setting(None, "train.py:4:37")
    assert found.settings["beta"].value == 0.1


def test_a_script_is_judged_by_the_pin_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be for another machine than this one; the difference is reported."""
    hide_installed(monkeypatch, ms_swift="4.6.0")
    shutil.copy(LAUNCHES / "swift.sh", tmp_path)
    assert read("swift.sh", tmp_path).version == "4.6.0"
    (tmp_path / "pyproject.toml").write_text('[tool.poetry.dependencies]\nms-swift = "4.4.1"\n')
    found = read("swift.sh", tmp_path)
    assert (found.version, found.version_origin) == ("4.4.1", "ms-swift pinned in pyproject.toml")
    assert (
        "ms-swift 4.4.1 is judged (ms-swift pinned in pyproject.toml), not 4.6.0 (ms-swift as installed here): "
        "say --framework-version if it is the other" in found.unresolved
    )
    assert (
        read("swift.sh", tmp_path, options=GivenOptions(version="4.2.0")).unresolved
        == read("swift.sh", tmp_path, options=GivenOptions(version="4.4.1")).unresolved
    )


def test_a_lock_answers_what_a_range_leaves_open(tmp_path: Path) -> None:
    shutil.copy(LAUNCHES / "swift.sh", tmp_path)
    (tmp_path / "pyproject.toml").write_text('dependencies = ["ms-swift>=4"]\n')
    (tmp_path / "uv.lock").write_text('[[package]]\nname = "ms-swift"\nversion = "4.4.1"\n')
    found = read("swift.sh", tmp_path)
    assert (found.version, found.version_origin) == ("4.4.1", "ms-swift pinned in uv.lock")


def test_deepspeed_s_version_is_looked_up_where_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.sh").write_text("swift rlhf --rlhf_type grpo --deepspeed zero2\n")
    (tmp_path / "requirements.txt").write_text("deepspeed==0.18.2\n")
    hide_installed(monkeypatch, deepspeed="0.18.4")
    assert read("train.sh", tmp_path).packages == {
        "deepspeed": Setting("0.18.2", "deepspeed pinned in requirements.txt")
    }
    (tmp_path / "train.sh").write_text("swift rlhf --rlhf_type grpo\n")
    assert read("train.sh", tmp_path).packages == {}


def test_an_installed_version_is_found_without_importing_it(tmp_path: Path) -> None:
    site = tmp_path / "site"
    info = site / "ms_swift-4.6.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ms-swift\nVersion: 4.6.0\n")
    (site / "swift").mkdir()
    (site / "swift" / "__init__.py").write_text("raise SystemExit('imported')")
    code = (
        "import sys; from pathlib import Path; from grpo_watch.preflight.inputs.load_launch import *; "
        f"x = read_launch(Path('swift.sh'), (), GivenOptions(), Path({str(LAUNCHES)!r}), {{}}); "
        "print(x.version, x.version_origin)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "4.6.0 ms-swift as installed here\n"
