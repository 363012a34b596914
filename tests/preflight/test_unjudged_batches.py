"""slime, SkyRL and prime-rl: launches as their examples write them are read; their batches are not judged."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

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


def test_a_script_of_slime_s(tmp_path: Path) -> None:
    """Its settings are read and judged; its batch is not, and no steps are predicted."""
    found = slime(tmp_path)
    assert (found.framework, found.problems, found.unresolved) == ("slime", (), ())
    assert "how slime counts and what it refuses is not known: its batch is not judged" in found.missing
    assert found.prediction is None
    world = read(tmp_path, "bash run.sh").world_size
    assert world is not None
    assert world.value == 16
    greedy = slime(tmp_path, SLIME.replace("--num-rollout", "--rollout-temperature 0.0 --num-rollout"))
    assert [problem.check for problem in greedy.problems] == ["sampling-greedy"]


def test_a_command_of_skyrl_s(tmp_path: Path) -> None:
    found = read(tmp_path, SKYRL)
    assert (found.framework, found.settings["trainer.epochs"].value) == ("skyrl", 20)
    own = SKYRL.replace("skyrl.train.entrypoints.main_base", "examples.mine.main_env")
    assert read(tmp_path, own).framework == "skyrl"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_a_configuration_of_prime_rl_s(tmp_path: Path) -> None:
    """A flag wins over the file."""
    (tmp_path / "rl.toml").write_text(PRIME)
    found = read(tmp_path, "uv run rl @ rl.toml --orchestrator.batch-size 120")
    assert (found.framework, found.unresolved) == ("prime-rl", ())
    names = ("max_steps", "orchestrator.batch_size", "orchestrator.group_size")
    assert [found.settings[name].value for name in names] == [20, 120, 16]
    assert read_launch(Path("rl.toml"), (), GivenOptions(), tmp_path, {}).framework == "prime-rl"


def test_only_prime_rl_s_words_name_toml(tmp_path: Path) -> None:
    """To others it is a value like any."""
    command = "trl grpo --model_name_or_path m --num_generations 8 --foo=bar.toml --sep @ --beta 0.1"
    settings = read(tmp_path, command).settings
    assert [settings[name].value for name in ("foo", "sep", "beta")] == ["bar.toml", "@", 0.1]


def test_toml_that_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "rl.toml").write_text("max_steps = ")
    with pytest.raises(UsageError, match=r"rl\.toml: "):
        read(tmp_path, "rl @ rl.toml")
