"""slime, SkyRL and prime-rl: launches as their examples write them, the rules that they break, and their totals."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from grpo_watch.engine.records import Severity
from grpo_watch.errors import UsageError
from grpo_watch.frameworks.launches import Launch
from grpo_watch.preflight.assess import assess
from grpo_watch.preflight.findings import Assessment
from grpo_watch.preflight.inputs.load_launch import GivenOptions, read_launch

SLIME = """
: "${GPUS:=8}"
ROLLOUT_ARGS=(
   --num-rollout 3000
   --rollout-batch-size 32
   --n-samples-per-prompt 8  # groups
   --global-batch-size 256
)
GRPO_ARGS=(--advantage-estimator grpo --use-kl-loss --kl-loss-coef 0.00)
ray job submit --address="http://127.0.0.1:8265" -- python3 train.py \\
   --actor-num-nodes 2 --actor-num-gpus-per-node ${GPUS} --colocate ${ROLLOUT_ARGS[@]} ${GRPO_ARGS[@]}
"""
SKYRL = """
uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base trainer.epochs=20 trainer.train_batch_size=1024
 trainer.policy_mini_batch_size=256 trainer.micro_train_batch_size_per_gpu=64 generator.n_samples_per_prompt=5
 trainer.placement.policy_num_gpus_per_node=4
"""
PRIME = """
max_steps = 20
[orchestrator]
batch_size = 128
group_size = 16
[trainer.optim]
lr = 3e-6
"""


def read(folder: Path, command: str, rows: int | None = None, version: str | None = None) -> Launch:
    options = GivenOptions(version=version, dataset_size=rows)
    return read_launch(None, shlex.split(command), options, folder, {})


def slime(folder: Path, script: str = SLIME) -> Assessment:
    (folder / "run.sh").write_text(script)
    return assess(read_launch(Path("run.sh"), (), GivenOptions(version="0.3.1"), folder, {}))


def refused(found: Assessment) -> list[str]:
    return [problem.says for problem in found.problems if problem.severity is Severity.CRITICAL]


def test_a_script_of_slime_s(tmp_path: Path) -> None:
    """32 prompts x 8, one update, 3000 rollouts: 768,000 completions."""
    found = slime(tmp_path)
    assert (found.framework, found.problems, found.missing, found.unresolved) == ("slime", (), (), ())
    run = found.prediction
    assert run is not None
    assert (run.max_steps, run.prompts_per_step, run.completions_per_step) == (3000, 32, 256)
    assert (run.optimizer_steps_per_generation, run.completions, run.notes) == (1, 768_000, ())
    assert read(tmp_path, "bash run.sh").world_size is not None
    world = read(tmp_path, "bash run.sh").world_size
    assert world is not None
    assert world.value == 16


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (
            "--global-batch-size 256",
            "--global-batch-size 256 --num-steps-per-rollout 2",
            (
                "global_batch_size 256 is not equal to rollout_batch_size 32 * n_samples_per_prompt 8 "
                "// num_steps_per_rollout 2"
            ),
        ),
        ("--global-batch-size 256", "--global-batch-size 512", "num_rollouts (256) < global_batch_size (512)"),
        (
            "--num-rollout 3000",
            "--over-sampling-batch-size 16 --num-rollout 9",
            "over_sampling_batch_size 16 should be greater than or equal to rollout_batch_size 32",
        ),
        ("--kl-loss-coef 0.00", "--kl-loss-coef 0.1 --kl-coef 0.1", "Only one of kl_coef and kl_loss_coef can be set"),
        (
            "--num-rollout 3000",
            "--rollout-function-path x",
            "num_epoch is not set, but num_rollout is not set, please set --num-rollout or --num-epoch",
        ),
    ],
)
def test_what_slime_refuses(tmp_path: Path, before: str, after: str, says: str) -> None:
    assert refused(slime(tmp_path, SLIME.replace(before, after))) == [says]


def test_completions_that_slime_drops(tmp_path: Path) -> None:
    """256 completions in updates of 96: two of them, 64 are left."""
    run = slime(tmp_path, SLIME.replace("--global-batch-size 256", "--global-batch-size 96")).prediction
    assert run is not None
    assert run.optimizer_steps_per_generation == 2
    assert run.notes == ("64 of the 256 completions of a rollout are not trained on",)


def test_slime_without_its_batch(tmp_path: Path) -> None:
    found = slime(tmp_path, SLIME.replace("--rollout-batch-size 32", ""))
    assert "rollout_batch_size is not known, and slime demands it" in found.missing
    assert found.prediction is None


def test_a_command_of_skyrl_s(tmp_path: Path) -> None:
    """floor(7473 / 1024) = 7 steps, 20 epochs: 140; 4 mini-batches of 256 prompts each."""
    found = assess(read(tmp_path, SKYRL, rows=7473, version="0.3.0"))
    assert (found.framework, refused(found), found.missing) == ("skyrl", [], ())
    run = found.prediction
    assert run is not None
    assert (run.max_steps, run.steps_per_epoch, run.completions_per_step) == (140, 7, 5120)
    assert run.optimizer_steps_per_generation == 4
    capped = assess(read(tmp_path, f"{SKYRL} trainer.max_training_steps=100", rows=7473, version="0.3.0")).prediction
    assert capped is not None
    assert capped.max_steps == 100


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            "trainer.policy_mini_batch_size=384",
            "train_batch_size 1024 should be divisible by policy_mini_batch_size 384",
        ),
        (
            "trainer.micro_train_batch_size_per_gpu=48",  # 256 x 5 / 4 = 320
            "normalized policy_mini_batch_size_per_gpu 320 should be divisible by micro_train_batch_size_per_gpu 48",
        ),
        ("trainer.algorithm.use_kl_in_reward=true", "use_kl_in_reward and use_kl_loss should be mutually exclusive"),
    ],
)
def test_what_skyrl_refuses(tmp_path: Path, change: str, says: str) -> None:
    assert refused(assess(read(tmp_path, f"{SKYRL} {change}", version="0.3.0"))) == [says]


def test_an_entry_point_of_one_s_own_is_skyrl(tmp_path: Path) -> None:
    command = SKYRL.replace("skyrl.train.entrypoints.main_base", "examples.mine.main_env")
    assert read(tmp_path, command).framework == "skyrl"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_a_configuration_of_prime_rl_s(tmp_path: Path) -> None:
    """128 samples in groups of 16: 8 prompts; 20 steps are 2,560 completions. A flag wins over the file."""
    (tmp_path / "rl.toml").write_text(PRIME)
    found = assess(read(tmp_path, "uv run rl @ rl.toml", version="0.8.0"))
    assert (found.framework, found.problems, found.missing) == ("prime-rl", (), ())
    run = found.prediction
    assert run is not None
    assert (run.max_steps, run.prompts_per_step, run.completions) == (20, 8, 2560)
    other = assess(read(tmp_path, "rl @ rl.toml --orchestrator.batch-size 120", version="0.8.0"))
    assert refused(other) == ["Batch size must be divisible by the number of samples per problem"]
    assert assess(read_launch(Path("rl.toml"), (), GivenOptions(), tmp_path, {})).framework == "prime-rl"


def test_only_prime_rl_s_words_name_toml(tmp_path: Path) -> None:
    """To others it is a value like any."""
    command = "trl grpo --model_name_or_path m --num_generations 8 --foo=bar.toml --sep @ --beta 0.1"
    settings = read(tmp_path, command).settings
    assert [settings[name].value for name in ("foo", "sep", "beta")] == ["bar.toml", "@", 0.1]


def test_toml_that_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "rl.toml").write_text("max_steps = ")
    with pytest.raises(UsageError, match=r"rl\.toml: "):
        read(tmp_path, "rl @ rl.toml")
