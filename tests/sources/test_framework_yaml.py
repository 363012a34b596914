"""The YAML of a framework becomes settings by its data file; anyone else's YAML says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.sources.settings.run_config import framework_yaml, read_run_config

NEMO = """
grpo: {num_prompts_per_step: 32, num_generations_per_prompt: 16, max_num_epochs: 1, val_period: 10, seed: 42}
loss_fn: {reference_policy_kl_penalty: 0, ratio_clip_min: 0.2}
policy: {model_name: org/model, generation: {temperature: 1.0, max_new_tokens: 512}, optimizer: {kwargs: {lr: 5.0e-06}}}
"""
AXOLOTL = """
base_model: org/model
rl: grpo
trl: {num_generations: 8, beta: 0.001, use_vllm: true, max_completion_length: 256}
micro_batch_size: 4
gradient_accumulation_steps: 2
hub_token: hf_secret
"""


def values(text: str) -> dict[str, object]:
    return {name: setting.value for name, setting in framework_yaml(text, "x.yaml").settings.items()}


def test_nemo_rls_configuration_says_that_there_is_no_reference() -> None:
    """A coefficient of 0 is why its KL is written as 0."""
    assert framework_yaml(NEMO, "config.yaml").framework == "nemo-rl"
    assert values(NEMO) == {
        "beta": 0,
        "num_generations": 16,
        "prompts_per_step": 32,
        "num_train_epochs": 1,
        "eval_steps": 10,
        "seed": 42,
        "learning_rate": 5e-06,
        "temperature": 1.0,
        "max_completion_length": 512,
        "model": "org/model",
    }


def test_numbers_that_yaml_takes_for_texts() -> None:
    """YAML 1.1 wants a dot in ``1e-6``; trainers read a number."""
    assert values(NEMO.replace("5.0e-06", "5e-6"))["learning_rate"] == 5e-06
    assert values(AXOLOTL.replace("0.001", "1e-3"))["beta"] == 0.001


def test_axolotls_yaml_and_nothing_secret_of_it() -> None:
    assert framework_yaml(AXOLOTL, "grpo.yaml").framework == "axolotl"
    assert values(AXOLOTL) == {
        "num_generations": 8,
        "beta": 0.001,
        "use_vllm": True,
        "max_completion_length": 256,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "raw:micro_batch_size": 4,  # advisories have a condition on it
        "model": "org/model",
    }


@pytest.mark.parametrize(
    "text",
    [
        "learning_rate: 1.0e-06\nseed: 1\ntemperature: 1.0\nsave_steps: 10\nlogging_steps: 1\nbeta: 0.04\n",  # anyone's
        "runs:\n  - path: out\n",
        "- a\n- b\n",
        "{{ template }}",
        "",
    ],
)
def test_anyone_elses_yaml_says_nothing(text: str) -> None:
    """Names that every trainer has don't say whose configuration it is."""
    found = framework_yaml(text, "x.yaml")
    assert (found.framework, found.settings) == (None, {})


def test_files_of_a_run_are_found(tmp_path: Path) -> None:
    """In the run's folder, or in the newest complete checkpoint of NeMo-RL (never in one that is being written)."""
    (tmp_path / "step_10").mkdir()
    (tmp_path / "step_10" / "training_info.json").write_text("{}")
    (tmp_path / "step_10" / "config.yaml").write_text(NEMO)
    (tmp_path / "tmp_step_20").mkdir()
    (tmp_path / "tmp_step_20" / "config.yaml").write_text(NEMO.replace("16", "8"))
    (config,) = read_run_config(tmp_path)
    assert config.framework == "nemo-rl"
    assert config.settings["num_generations"].value == 16
    (tmp_path / "grpo.yml").write_text(AXOLOTL)
    assert {found.framework for found in read_run_config(tmp_path)} == {"nemo-rl", "axolotl"}


def test_every_framework_that_names_settings_can_be_recognised_by_them() -> None:
    """Each has at least three keys that no other data file and no argument of transformers has."""
    for name, table in frameworks().items():
        keys = [*table.settings]
        if keys and table.based_on is None:
            text = "".join(f"{key}: 1\n" for key in keys)
            assert framework_yaml(text, "x.yaml").framework == name, name
