"""The arguments that open-r1 and others print before training become settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.engine.records import RawRow, RunConfig
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.settings.config_files import logged_config

HEAD = "2026-02-03 10:00:00 - INFO - __main__ - Training parameters GRPOConfig(\n"
ARGUMENTS = "_n_gpu=8,\nbeta=0.04,\naccelerator_config={'split_batches': False, 'x': None},\nnum_generations=16,\n"
MORE = "lr_scheduler_type=SchedulerType.COSINE,\nlearning_rate=1e-06,\nuse_vllm=True,\nhub_token=<HUB_TOKEN>,\n"
ROW = "{'loss': 0.1, 'reward': 0.5, 'kl': 0.001, 'step': 5}\n"


def read(path: Path) -> tuple[list[RunConfig], list[RawRow]]:
    source = ConsoleSource(path.name, path, [path.parent])
    items = [*source.poll(None), *source.finish()]
    assert source.stats.skipped == {}
    return [item for item in items if isinstance(item, RunConfig)], [item for item in items if isinstance(item, RawRow)]


def test_they_become_settings_and_nothing_secret_does(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(HEAD + ARGUMENTS + MORE + ")\n" + ROW)
    (config,), rows = read(path)
    assert {name: setting.value for name, setting in config.settings.items()} == {
        "beta": 0.04,
        "num_generations": 16,
        "learning_rate": 1e-06,
        "use_vllm": True,
        "lr_scheduler_type": "cosine",
    }
    assert {setting.origin for setting in config.settings.values()} == {"printed in the log"}
    assert [row.step for row in rows] == [5]


def test_open_r1_is_known_by_what_it_adds_to_trl_s_arguments(tmp_path: Path) -> None:
    """Its rows are TRL 0.18's: the spread that they log is the groups'."""
    path = tmp_path / "train.log"
    path.write_text(
        HEAD + ARGUMENTS + "benchmarks=[],\noverwrite_hub_revision=False,\npush_to_hub_revision=False,\n)\n" + ROW
    )
    (config,), _ = read(path)
    assert config.framework == "open-r1"


COMMAND = (
    "+ ray job submit --address=http://head:8265 -- python -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path "
    "org/model --rollout.n_samples_per_prompt 8 --algo.kl.init_coef 1e-3 --actor.adam.lr=5e-7 --algo.kl.use_loss "
    "--rollout.temperature 1.0 --logger.wandb.key 0123456789abcdef --data.prompt_dataset 'a, b' --ckpt.save_steps -1\n"
)
OLDER = (
    "(main pid=1) python -m openrlhf.cli.train_ppo --pretrain org/model --n_samples_per_prompt 4 --init-kl-coef 0.01 "
    "--use_kl_loss --generate_max_len 1024 --seed 7\n"
)


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        (
            COMMAND,
            {"model": "org/model", "num_generations": 8, "beta": 0.001, "learning_rate": 5e-07, "temperature": 1.0},
        ),
        (OLDER, {"model": "org/model", "num_generations": 4, "beta": 0.01, "max_completion_length": 1024, "seed": 7}),
    ],
    ids=["0.11", "before 0.10"],
)
def test_openrlhf_s_command_line_is_its_configuration(line: str, settings: dict[str, object], tmp_path: Path) -> None:
    """Printed by ``set -x`` or by Ray; no key of an account is kept, and -1 stands for never."""
    path = tmp_path / "train.log"
    path.write_text(line)
    (config,), _ = read(path)
    assert config.framework == "openrlhf"
    assert {name: setting.value for name, setting in config.settings.items()} == settings
    assert "0123456789abcdef" not in repr(config)


@pytest.mark.parametrize(
    "line", ["no module named openrlhf.cli.train_ppo", "-m openrlhf.cli.train_ppo_ray --x 'open\n"]
)
def test_a_command_line_that_says_nothing_gives_nothing(line: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(line)
    assert read(path) == ([], [])


@pytest.mark.parametrize(
    "raw",
    [
        {"algo": {"kl": {"init_coef": 0.001}}, "rollout": {"n_samples_per_prompt": 8}, "actor": {"adam": {"lr": 5e-7}}},
        {"algo.kl.init_coef": 0.001, "rollout.n_samples_per_prompt": 8, "actor.adam.lr": 5e-7},
        {"init_kl_coef": 0.001, "n_samples_per_prompt": 8, "actor_learning_rate": 5e-7, "seed": 1},
    ],
    ids=["nested", "dotted", "before 0.10"],
)
def test_what_openrlhf_gives_to_wandb_are_settings(raw: dict[str, object]) -> None:
    config = logged_config(raw, "wandb config", "c", 0)
    assert config is not None
    assert config.framework == "openrlhf"
    reported = {name: setting.value for name, setting in config.settings.items() if name != "seed"}
    assert reported == {"beta": 0.001, "num_generations": 8, "learning_rate": 5e-07}


def test_arguments_that_break_off_hide_nothing(tmp_path: Path) -> None:
    """A line of another kind ends them: the row behind it is read, and no half of a configuration counts."""
    path = tmp_path / "train.log"
    path.write_text(HEAD + ARGUMENTS + ROW)
    configs, rows = read(path)
    assert configs == []
    assert [row.step for row in rows] == [5]


@pytest.mark.parametrize(("printed", "weights"), [("[1.0, -0.5, 0.0]", "1 -0.5 0"), ("None", None)])
def test_weights_of_rewards_are_printed_as_a_list(tmp_path: Path, printed: str, weights: str | None) -> None:
    path = tmp_path / "train.log"
    path.write_text(f"{HEAD}{ARGUMENTS}reward_weights={printed},\n{MORE})\n{ROW}")
    (config,), _ = read(path)
    found = config.settings.get("reward_weights")
    assert (found.value if found else None) == weights


def test_weights_of_rewards_in_a_logged_configuration() -> None:
    """wandb, TensorBoard and trackio keep TRL's arguments as they are."""
    raw = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "reward_weights": [1.0, -0.5, 0.0]}
    config = logged_config(raw, "wandb config", "w", 0)
    assert config is not None
    assert config.settings["reward_weights"].value == "1 -0.5 0"


@pytest.mark.parametrize("broken", [{}, [], "LORA", {"default": None}])
def test_an_adapter_in_a_logged_configuration(broken: object) -> None:
    """transformers logs PEFT's configuration under the adapter's name."""
    inner = {"peft_type": "LORA", "init_lora_weights": True, "base_model_name_or_path": "base"}
    config = logged_config({"beta": 0.04, "peft_config": {"default": inner}}, "wandb config", "w", 0)
    assert config is not None
    settings = {name: setting.value for name, setting in config.settings.items()}
    assert settings == {"beta": 0.04, "adapter": True, "peft_type": "LORA", "adapter_init": "default"}
    without = logged_config({"beta": 0.04, "peft_config": broken}, "wandb config", "w", 0)
    assert without is not None
    assert set(without.settings) == {"beta"}
