"""Configuration files of real runs become settings with their origins."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.engine.records import RunConfig
from grpo_watch.errors import UsageError
from grpo_watch.sources.base import Skip
from grpo_watch.sources.settings.run_config import RunConfigSource, from_user, read_run_config

# The keys of a real ms-swift 4.6.0 args.json that matter here, and those that must not be read.
ARGS: dict[str, Any] = {
    "rlhf_type": "grpo",
    "swift_version": "4.6.0",
    "model": "/models/tiny",
    "tuner_type": "lora",
    "init_weights": True,
    "adapters": [],
    "torch_dtype": "float32",
    "beta": 0.04,
    "num_generations": 6,
    "per_device_train_batch_size": 12,
    "gradient_accumulation_steps": 1,
    "steps_per_generation": None,
    "generation_batch_size": None,
    "num_iterations": 1,
    "global_world_size": 1,
    "max_steps": -1,
    "save_steps": 20.0,
    "eval_strategy": "no",
    "eval_steps": 20.0,
    "scale_rewards": "group",
    "offload_optimizer": False,
    "overlong_filter": True,
    "deepspeed": {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
    "hub_token": "hf_do_not_read",
    "swanlab_secret": "do_not_read",
    "swanlab_webhook_url": "https://do_not_read",
    "training_args": "GRPOConfig(output_dir='out', per_device_train_batch_size=12, hub_token=None, num_generations=6,"
    " generation_batch_size=12, steps_per_generation=1, temperature=0.9)",
}


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def values(config: RunConfig) -> dict[str, object]:
    return {name: setting.value for name, setting in config.settings.items()}


def test_ms_swift_arguments(tmp_path: Path) -> None:
    """Null sizes come from the repr, -1 is "not set", world size and adapter have other names, secrets are not kept."""
    write(tmp_path / "args.json", ARGS)
    (config,) = read_run_config(tmp_path)
    assert (config.framework, config.version, config.precedence) == ("ms-swift", "4.6.0", 1)
    assert values(config) == {
        "beta": 0.04,
        "num_generations": 6,
        "per_device_train_batch_size": 12,
        "gradient_accumulation_steps": 1,
        "num_iterations": 1,
        "save_steps": 20,
        "scale_rewards": "group",
        "model": "/models/tiny",
        "world_size": 1,
        "dtype": "float32",
        "mask_truncated_completions": True,
        "adapter": True,
        "peft_type": "LORA",
        "adapter_init": "default",
        "adapter_continued": False,
        "deepspeed_stage": 2,
        "offload_optimizer": "cpu",
        "generation_batch_size": 12,
        "steps_per_generation": 1,
    }
    assert config.settings["beta"].origin == "args.json"
    assert config.settings["generation_batch_size"].origin == "args.json: training_args"
    assert "do_not_read" not in repr(config)


def test_older_ms_swift_arguments(tmp_path: Path) -> None:
    """3.12.6: no swift_version, train_type instead of tuner_type."""
    old = {key: value for key, value in ARGS.items() if key not in {"swift_version", "tuner_type", "training_args"}}
    write(tmp_path / "args.json", old | {"train_type": "full", "steps_per_generation": 2, "global_world_size": 4})
    (config,) = read_run_config(tmp_path)
    assert (config.framework, config.version) == ("ms-swift", None)
    assert config.settings["adapter"].value is False
    assert "adapter_init" not in config.settings
    batch = config.settings["generation_batch_size"]
    assert (batch.value, batch.origin) == (
        96,
        "derived: per_device_train_batch_size x world_size x steps_per_generation",
    )


def test_the_repr_is_searched_not_executed(tmp_path: Path) -> None:
    """Calls in it do nothing."""
    trap = f"GRPOConfig(x=open({str(tmp_path / 'made')!r}, 'w'), generation_batch_size=12, steps_per_generation=1)"
    write(tmp_path / "args.json", ARGS | {"training_args": trap})
    (config,) = read_run_config(tmp_path)
    assert config.settings["generation_batch_size"].value == 12
    assert not (tmp_path / "made").exists()


def test_trl_model_card_gives_the_version(tmp_path: Path) -> None:
    """`- TRL: 1.16.0` in the list of framework versions."""
    write(tmp_path / "README.md", "# Model Card\n\n### Framework versions\n\n- TRL: 1.16.0\n- Transformers: 5.23.0\n")
    (config,) = read_run_config(tmp_path)
    assert (config.framework, config.version, dict(config.settings)) == ("trl", "1.16.0", {})


def test_ms_swifts_model_card_names_a_library(tmp_path: Path) -> None:
    """ms-swift 4.6.0 writes `TRL: 0.29.1` beside its args.json: its rows are not TRL's."""
    write(tmp_path / "README.md", "- TRL: 0.29.1\n")
    write(tmp_path / "args.json", ARGS)
    assert [config.framework for config in read_run_config(tmp_path)] == ["ms-swift"]


def test_checkpoint_files(tmp_path: Path) -> None:
    """Of the newest complete checkpoint: adapter and data type; its state is read with its rows."""
    for step in (20, 40):
        folder = tmp_path / f"checkpoint-{step}"
        write(folder / "trainer_state.json", json.dumps({"global_step": step}))
        write(
            folder / "adapter_config.json", {"peft_type": "LORA", "init_lora_weights": "pissa" if step == 40 else True}
        )
    write(tmp_path / "checkpoint-60/config.json", {"dtype": "bfloat16"})  # still being written
    found = {setting: value for config in read_run_config(tmp_path) for setting, value in values(config).items()}
    assert found == {"adapter": True, "peft_type": "LORA", "adapter_init": "pissa"}


def test_launch_files(tmp_path: Path) -> None:
    """DeepSpeed's "auto" says nothing; accelerate gives the number of processes."""
    write(tmp_path / "ds_config.json", {"zero_optimization": {"stage": 3}, "gradient_accumulation_steps": "auto"})
    write(tmp_path / "accelerate_config.yaml", "num_processes: 8\ndeepspeed_config:\n  offload_optimizer_device: cpu\n")
    found = {setting: value for config in read_run_config(tmp_path) for setting, value in values(config).items()}
    assert found == {"deepspeed_stage": 3, "world_size": 8, "offload_optimizer": "cpu"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("args.json", '{"beta": 0.0'),
        ("args.json", "[1]"),
        ("args.json", "[" * 100_000),
        ("args.json", '{"beta": NaN, "num_generations": 1e999, "model": {}}'),
        ("accelerate_config.yaml", "a: &a [1]\nnum_processes: *a\n"),
        ("accelerate_config.yaml", "{" * 5_000),
        ("accelerate_config.yaml", "- 1\n"),
        ("ds_config.json", '{"zero_optimization": [3]}'),
        ("args.json", " " * (5 << 20)),
        ("README.md", "- TRL: " + "9" * 1000),
    ],
)
def test_bad_files_are_counted_or_empty(tmp_path: Path, name: str, content: str) -> None:
    """Nothing raises and no setting is made up."""
    write(tmp_path / name, content)
    found = {setting: value for config in read_run_config(tmp_path) for setting, value in values(config).items()}
    assert found == {}


def test_a_half_written_file_is_read_when_complete(tmp_path: Path) -> None:
    """One record when it says something, none while nothing changes, a new one for new content."""
    path = write(tmp_path / "args.json", '{"beta": 0.0')
    source = RunConfigSource("run-config", tmp_path, (tmp_path,))
    assert list(source.poll(None)) == []
    assert source.stats.skipped == {Skip.BAD_VALUE: 1}
    write(path, '{"beta": 0.04}')
    (config,) = source.poll(None)
    assert isinstance(config, RunConfig)
    assert config.settings["beta"].value == 0.04
    assert list(source.poll(None)) == []
    os.utime(path, (1, 1))
    assert list(source.poll(None)) == []
    again = RunConfigSource("run-config", tmp_path, (tmp_path,), cursor=source.cursor())
    assert list(again.poll(None)) == []
    write(path, '{"beta": 0.1}')
    assert len(list(again.poll(None))) == 1


def test_links_pickles_and_pipes_are_not_opened(tmp_path: Path) -> None:
    """A link out is counted, a FIFO does not hang, training_args.bin is no configuration."""
    run = tmp_path / "run"
    write(tmp_path / "secret.json", {"beta": 0.5})
    write(run / "training_args.bin", "not looked at")
    (run / "args.json").symlink_to(tmp_path / "secret.json")
    os.mkfifo(run / "ds_config.json")
    source = RunConfigSource("run-config", run, (run,))
    assert list(source.poll(None)) == []
    assert source.stats.skipped == {Skip.OUTSIDE: 2}


def test_what_the_user_says() -> None:
    """Texts become numbers and booleans; it outranks everything."""
    config = from_user(
        {"beta": "0.04", "world_size": "8", "use_vllm": "true", "framework": "trl", "framework_version": "1.0"}
    )
    assert values(config) == {"beta": 0.04, "world_size": 8, "use_vllm": True}
    assert (config.framework, config.version, config.precedence) == ("trl", "1.0", 0)
    with pytest.raises(UsageError, match="no such setting; did you mean beta"):
        from_user({"betta": 0.1})


@pytest.mark.parametrize(
    ("weights", "read"),
    [([1.0, -0.5, 0.0], "1 -0.5 0"), ([1e-05], "1e-05"), (None, None), ([], None), ([1.0, None], None), ("auto", None)],
)
def test_weights_of_rewards_are_read_as_one_setting(tmp_path: Path, weights: object, read: str | None) -> None:
    write(tmp_path / "args.json", {**ARGS, "reward_weights": weights})
    (config,) = read_run_config(tmp_path)
    assert values(config).get("reward_weights") == read


def test_weights_in_the_yaml_of_axolotl(tmp_path: Path) -> None:
    text = "rl: grpo\nmicro_batch_size: 4\ntrl:\n  num_generations: 4\n  beta: 0.04\n  reward_weights: [1.0, -0.5]\n"
    write(tmp_path / "config.yaml", text)
    (config,) = read_run_config(tmp_path)
    assert (config.framework, values(config)["reward_weights"]) == ("axolotl", "1 -0.5")


RECIPE = "model_name_or_path: Qwen/Qwen2.5-1.5B\nbeta: 0.0\nnum_generations: 16\nreward_funcs:\n- accuracy\n- format\n"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (RECIPE + "reward_weights:\n- 1.0\n- 0.2\n", {"reward_weights": "1 0.2"}),
        (RECIPE + "reward_weights: [1.0, -0.5]\nmax_completion_length: 2048\n", {"reward_weights": "1 -0.5"}),
        (RECIPE + "reward_weights: null\n", None),
        (RECIPE, None),
        ("reward_weights: [1.0, 0.5]\nnum_generations: 16\n", None),
        ("trainer:\n  num_generations: 16\n  reward_funcs: [a]\n  reward_weights: [2.0]\n", None),
    ],
)
def test_weights_in_a_recipe_of_trl(tmp_path: Path, text: str, read: dict[str, str] | None) -> None:
    """Nothing else is taken: the recipe may be another run's, and only weights are checked by the rows."""
    write(tmp_path / "config_demo.yaml", text)
    assert [values(config) for config in read_run_config(tmp_path)] == ([read] if read else [])


def test_weights_that_a_user_says() -> None:
    assert from_user({"reward_weights": "1,-0.5"}).settings["reward_weights"].value == "1,-0.5"


@pytest.mark.parametrize(("aggregation", "scale"), [("sum_then_normalize", "group"), ("normalize_then_sum", "gdpo")])
def test_rewards_that_are_scaled_one_by_one(tmp_path: Path, aggregation: str, scale: str) -> None:
    """TRL then divides their sum by the deviation of the batch, whatever ``scale_rewards`` says."""
    write(tmp_path / "args.json", {**ARGS, "scale_rewards": "group", "multi_objective_aggregation": aggregation})
    (config,) = read_run_config(tmp_path)
    assert values(config)["scale_rewards"] == scale
