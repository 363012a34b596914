"""Command lines: which program trains, how many processes, and which settings it is given."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from grpo_watch.engine.records import Scalar, Setting
from grpo_watch.errors import UsageError
from grpo_watch.frameworks.launches import Launch, LaunchSettings
from grpo_watch.preflight.inputs.load_launch import GivenOptions, read_launch

LAUNCHES = Path(__file__).parent / "launches"


def launch(
    line: str,
    folder: Path = LAUNCHES,
    environ: Mapping[str, str] | None = None,
    options: GivenOptions = GivenOptions(),  # noqa: B008  frozen
) -> Launch:
    return read_launch(None, shlex.split(line), options, folder, environ or {})


def values(settings: Mapping[str, Setting]) -> dict[str, Scalar]:
    return {name: setting.value for name, setting in settings.items()}


@pytest.mark.parametrize(
    ("line", "framework", "world"),
    [
        ("swift rlhf --rlhf_type grpo", "ms-swift", 1),
        ("NPROC_PER_NODE=6 swift rlhf --rlhf_type grpo", "ms-swift", 6),
        ("env NPROC_PER_NODE=4 NNODES=2 nohup swift rlhf --rlhf_type grpo", "ms-swift", 8),
        ("NPROC_PER_NODE=4 megatron rlhf --rlhf_type grpo", "ms-swift-megatron", 4),
        ("torchrun --nproc-per-node=8 --nnodes 2 swift/cli/rlhf.py --rlhf_type grpo", "ms-swift", 16),
        ("torchrun --standalone --nproc_per_node 6 gone.py --num_generations 8", "trl", 6),
        ("torchrun gone.py --num_generations 8", "trl", 1),
        ("bash -c 'NPROC_PER_NODE=2 swift rlhf --rlhf_type grpo'", "ms-swift", 2),
        ("accelerate launch --num_processes 2 trl/scripts/grpo.py --num_generations 8", "trl", 2),
        ("python -m torch.distributed.run --nproc_per_node 3 gone.py --num_generations 8", "trl", 3),
        ("CUDA_VISIBLE_DEVICES=0,1,2 torchrun --nproc_per_node gpu gone.py --num_generations 8", "trl", 3),
        ("accelerate launch --num_processes 6 gone.py --num_generations 8", "trl", 6),
        ("accelerate launch --config_file accelerate.yaml gone.py --num_generations 8", "trl", 7),
        ("accelerate launch --config_file accelerate.yaml --num_processes 3 gone.py --num_generations 8", "trl", 3),
        ("accelerate launch --multi_gpu -m open_r1.grpo --config grpo.yaml", "open-r1", None),
        ("python -m accelerate.commands.launch --num_processes=2 gone.py --num_generations 8", "trl", 2),
        ("deepspeed --num_gpus 4 --num_nodes 2 gone.py --num_generations 8", "trl", 8),
        ("deepspeed --include localhost:0,1,2 --master_port 2900 gone.py --num_generations 8", "trl", 3),
        ("CUDA_VISIBLE_DEVICES=4,5 deepspeed gone.py --num_generations 8", "trl", 2),
        ("python gone.py --num_generations 8", "trl", 1),
        ("python3 -u gone.py --num_generations 8", "trl", 1),
        ("uv run gone.py --num_generations 8", "trl", 1),
        ("trl grpo --config grpo.yaml --num_processes 4", "trl", 4),
        ("trl grpo --config grpo.yaml --accelerate_config single_gpu", "trl", 1),
        ("trl grpo --config grpo.yaml --accelerate_config accelerate.yaml", "trl", 7),
        ("axolotl train axolotl.yml --num-processes 4", "axolotl", 4),
        ("accelerate launch --num_processes 2 -m axolotl.cli.train axolotl.yml", "axolotl", 2),
        ("python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=8 trainer.nnodes=2", "verl", 16),
        ("python3 -m verl.trainer.main_ppo trainer.nnodes=2", "verl", None),
        ("python -m openrlhf.cli.train_ppo_ray --actor.num_nodes 2 --actor.num_gpus_per_node 4", "openrlhf", 8),
        ("uv run examples/run_grpo.py --config nemo.yaml cluster.num_nodes=2", "nemo-rl", 16),
        ("timeout 10h srun --nodes 1 python examples/run_grpo_math.py --config nemo.yaml", "nemo-rl", 8),
    ],
)
def test_the_program_and_its_processes(line: str, framework: str, world: int | None) -> None:
    found = launch(line)
    assert found.framework == framework
    assert (found.world_size.value if found.world_size else None) == world


@pytest.mark.parametrize(
    "line",
    ["echo swift rlhf", "swift deploy --model x", "trl sft --config grpo.yaml", "python -c 'print(1)'", "ls", "A=1"],
)
def test_what_launches_no_training_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="not a GRPO training launch"):
        launch(line)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("trl grpo --config gone.yaml", "command line: gone.yaml: no such file"),
        ("bash gone.sh", "gone.sh: no such file"),
        ("axolotl train gone.yml", "command line: gone.yml: no such file"),
    ],
)
def test_a_file_that_is_named_but_not_there_is_an_error(line: str, error: str) -> None:
    with pytest.raises(UsageError) as raised:
        launch(line)
    assert str(raised.value) == error


def test_other_methods_are_not_judged_by_the_rules_of_grpo() -> None:
    with pytest.raises(UsageError) as raised:
        launch("swift rlhf --rlhf_type dpo --num_generations 8")
    assert str(raised.value) == "command line: rlhf_type is dpo, and preflight judges GRPO only"


def test_a_file_and_a_command_together() -> None:
    found = read_launch(Path("accelerate.yaml"), ["python", "train.py"], GivenOptions(), LAUNCHES, {})
    assert found.world_size == Setting(7, "accelerate.yaml:8:1")
    assert found.settings["num_generations"].value == 8


def test_flags_of_every_style() -> None:
    found = launch(
        "swift rlhf --rlhf_type grpo --num-generations=8 --learning_rate 1e-6 --use_vllm true --log_completions "
        "--no_remove_unused_columns --max_steps -1 --reward_funcs accuracy format --beta=0.04 --system 'be brief'"
    )
    assert values(found.settings) == {
        "rlhf_type": "grpo",
        "num_generations": 8,
        "learning_rate": 1e-6,
        "use_vllm": True,
        "log_completions": True,
        "remove_unused_columns": False,
        "max_steps": -1,
        "reward_funcs": "accuracy format",
        "beta": 0.04,
        "system": "be brief",
    }
    assert {setting.origin for setting in found.settings.values()} == {"command line"}


def test_the_command_line_wins_over_the_file_it_names() -> None:
    found = launch("trl grpo --num_generations 8 --config grpo.yaml --beta 0.1")
    assert (found.settings["num_generations"].value, found.settings["num_generations"].origin) == (8, "command line")
    assert found.settings["per_device_train_batch_size"] == Setting(4, "grpo.yaml:7:1")
    assert found.peft is True


def test_overrides_of_hydra() -> None:
    found = launch(
        "python -m verl.trainer.main_ppo data.train_batch_size=64 +a.b=1 ++a.c=null trainer.logger=['console','wandb'] "
        "actor_rollout_ref.rollout.n=4 ~a.b 'data.train_files=\"x y.parquet\"'"
    )
    assert values(found.settings) == {
        "data.train_batch_size": 64,
        "trainer.logger": "console wandb",
        "actor_rollout_ref.rollout.n": 4,
        "data.train_files": "x y.parquet",
    }


def test_a_configuration_with_its_defaults_and_references() -> None:
    found = launch("python -m verl.trainer.main_ppo --config-path=. --config-name=verl data.max_prompt_length=256")
    assert values(found.settings) == {
        "data.train_batch_size": 512,
        "data.max_prompt_length": 256,
        "data.gen_batch_size": 512,
        "trainer.n_gpus_per_node": 4,
        "actor_rollout_ref.rollout.n": 8,
        "actor_rollout_ref.rollout.temperature": None,
    }
    assert found.settings["data.train_batch_size"].origin == "verl.yaml:5:3"
    assert found.settings["trainer.n_gpus_per_node"].origin == "base.yaml:5:3"
    assert found.world_size == Setting(4, "base.yaml:5:3")
    (question,) = found.unresolved
    assert question.startswith("verl.yaml:10:5: actor_rollout_ref.rollout.temperature is ${oc.env:TEMPERATURE,1.0}")


def test_nemo_with_the_file_its_defaults_name() -> None:
    found = launch("uv run examples/run_grpo.py --config nemo.yaml grpo.num_prompts_per_step=16")
    assert values(found.settings) == {
        "grpo.num_prompts_per_step": 16,
        "grpo.num_generations_per_prompt": 16,
        "policy.train_global_batch_size": 1024,
        "cluster.gpus_per_node": 8,
        "cluster.num_nodes": 1,
    }


def test_deepspeed_auto_is_the_trainers_and_stays() -> None:
    found = launch("accelerate launch --config_file accelerate.yaml gone.py --per_device_train_batch_size 4")
    assert found.deepspeed["zero_optimization.stage"] == Setting(3, "ds.json")
    assert found.deepspeed["zero_optimization.offload_optimizer.device"].value == "cpu"
    assert found.deepspeed["train_micro_batch_size_per_gpu"] == Setting("auto", "ds.json:3")
    assert found.deepspeed["gradient_accumulation_steps"].value == "auto"


def test_ms_swift_names_deepspeed_by_stage() -> None:
    found = launch("swift rlhf --rlhf_type grpo --deepspeed zero3_offload --train_type full")
    assert LaunchSettings(found).zero() == (Setting(3, "command line"), Setting("cpu", "command line"))
    assert found.peft is False


def test_accelerate_s_own_file_is_taken_as_accelerate_does(tmp_path: Path) -> None:
    home = tmp_path / "accelerate"
    home.mkdir()
    (home / "default_config.yaml").write_text("compute_environment: LOCAL_MACHINE\nnum_processes: 5\n")
    found = launch("accelerate launch gone.py --num_generations 8", environ={"HF_HOME": str(tmp_path)})
    assert found.world_size is not None
    assert found.world_size.value == 5
    assert found.world_size.origin.endswith("accelerate/default_config.yaml:2:1")


def test_the_calling_environment_counts_but_only_what_changes_the_batch() -> None:
    found = launch("swift rlhf --rlhf_type grpo", environ={"NPROC_PER_NODE": "6", "HF_TOKEN": "hf_" + "x" * 30})
    assert found.world_size == Setting(6, "$NPROC_PER_NODE")
    assert "xxxx" not in repr(found)


@pytest.mark.parametrize(
    "line",
    [
        "swift rlhf --rlhf_type grpo --hub_token hf_aaaaaaaaaaaaaaaaaaaaaa --api_key abc123secret",
        "python -m openrlhf.cli.train_ppo_ray --use_wandb sk-aaaaaaaaaaaaaaaaaaaaaaa --logger.wandb.key abc123secret",
        "trl grpo --config grpo.yaml",
        "HF_TOKEN=abc123secret swift rlhf --rlhf_type grpo --api_key=$KEY",
        "swift rlhf --rlhf_type grpo --server http://me:abc123secret@host:80",
    ],
)
def test_secrets_are_not_kept(line: str) -> None:
    shown = repr(launch(line))
    assert not any(secret in shown for secret in ("hf_a", "sk-a", "abc123secret"))


def test_an_error_names_the_program_and_nothing_else_of_the_command() -> None:
    with pytest.raises(UsageError) as raised:
        launch("HF_TOKEN=abc123secret curl --header abc123secret")
    assert str(raised.value).startswith("curl: not a GRPO training launch")
    assert "abc123secret" not in str(raised.value)


def test_what_the_user_says_wins_and_answers_questions() -> None:
    options = GivenOptions("unsloth", "0.19.0", 3, 777)
    found = launch(
        "torchrun --nproc_per_node 6 --nnodes 1:4 gone.py --dataset_name hub/x --num_generations 8", options=options
    )
    assert (found.framework, found.version, found.version_origin) == ("unsloth", "0.19.0", "--framework-version")
    assert found.world_size == Setting(3, "--world-size")
    assert found.dataset_size == Setting(777, "--dataset-size")
    assert found.unresolved == ("gone.py is not here, so what it sets itself is not known",)


def test_an_elastic_number_of_nodes_is_asked_for() -> None:
    found = launch("torchrun --nproc_per_node 6 --nnodes 1:4 gone.py --num_generations 8")
    assert found.world_size is None
    assert "command line: the number of nodes is 1:4: say --world-size" in found.unresolved
