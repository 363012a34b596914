"""Defaults follow the version; what was given comes first, under the framework's own name."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import Scalar, Setting
from grpo_watch.frameworks.launch_rules import OnTrainer, launch_rules
from grpo_watch.frameworks.launches import SUGGESTED, Launch, LaunchSettings, launch_facts
from tests.preflight.launches import launch


@pytest.mark.parametrize(
    ("framework", "version", "name", "value"),
    [
        ("trl", "0.14.0", "gradient_accumulation_steps", 8),
        ("trl", "0.15.2", "gradient_accumulation_steps", 1),
        ("trl", "0.18.2", "beta", 0.04),
        ("trl", "0.19.0", "beta", 0.0),
        ("trl", "0.26.2", "top_k", None),
        ("trl", "1.9.0", "max_completion_length", 256),
        ("trl", "1.10.0", "max_completion_length", 512),
        ("trl", "0.15.2", "top_k", None),
        ("ms-swift", "3.5.3", "split_dataset_ratio", 0.01),
        ("ms-swift", "3.12.6", "top_k", 50),
        ("ms-swift", "4.6.0", "top_k", -1),
        ("unsloth", "0.22.0", "beta", 0.001),
        ("open-r1", "0.18.0", "temperature", 1.0),
    ],
)
def test_the_default_is_that_of_the_version(framework: str, version: str, name: str, value: Scalar) -> None:
    """Values of the configuration classes of these versions; run 3.12.6 and 4.6.0 wrote theirs into args.json."""
    assert launch_facts()[framework].default(version, name) == value


def test_every_framework_with_facts_has_rules() -> None:
    """A folder offers both; facts say ``on_trainer`` of those whose rules are for that trainer."""
    assert set(launch_facts()) == set(launch_rules())
    assert {name for name, facts in launch_facts().items() if facts.on_trainer} == {
        name for name, rules in launch_rules().items() if isinstance(rules, OnTrainer)
    }


def test_what_a_framework_takes_over_can_be_replaced() -> None:
    """axolotl extends TRL: its own epochs, TRL's temperature."""
    facts = launch_facts()["axolotl"]
    assert (facts.default("1.8.0", "num_train_epochs"), facts.default("1.8.0", "temperature")) == (1.0, 1.0)
    assert facts.package == launch_facts()["trl"].package


def test_ms_swift_fills_the_accumulation_up_until_3_6() -> None:
    """ceil(16 / 4 / 2) = 2."""
    from grpo_watch.frameworks.launch_rules import batch_of  # noqa: PLC0415, launch_rules

    given = {"per_device_train_batch_size": 4, "num_generations": 4}
    old, new = (batch_of(LaunchSettings(launch("ms-swift", version, 2, **given))) for version in ("3.6.4", "3.7.0"))
    assert old is not None
    assert new is not None
    assert (old.gradient_accumulation_steps, new.gradient_accumulation_steps) == (2, 1)


def test_what_was_given_comes_first_and_text_is_read() -> None:
    settings = LaunchSettings(launch(beta="0.1", use_vllm="True", eval_strategy=False, num_generations=8.0))
    assert settings.number("beta") == 0.1
    assert settings.flag("use_vllm")
    assert settings.word("eval_strategy") == "no"
    assert settings.whole("num_generations") == 8
    assert settings.number("vllm_mode") is None
    assert settings.where("top_p", "beta") == "train.sh:3"
    assert settings.where("top_p") == ""


def test_an_unreadable_value_is_not_the_default() -> None:
    settings = LaunchSettings(Launch("trl", "1.16.0", settings={"num_generations": Setting(None, "train.sh:3")}))
    assert settings.unreadable("num_generations")
    assert settings.whole("num_generations") is None


def test_a_change_replaces_and_removes() -> None:
    settings = LaunchSettings(launch("axolotl", "1.8.0", micro_batch_size=6, trl__steps_per_generation=2))
    changed = settings.changed({"per_device_train_batch_size": 8, "steps_per_generation": None})
    assert changed.given("per_device_train_batch_size") == Setting(8, SUGGESTED)
    assert set(changed.launch.settings) == {"micro_batch_size"}
