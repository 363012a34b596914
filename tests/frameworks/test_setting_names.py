"""A framework's own configuration becomes canonical settings, and nothing else of it is kept."""

from __future__ import annotations

import msgspec
import pytest

from grpo_watch.engine.records import Setting
from grpo_watch.frameworks import setting_names
from grpo_watch.frameworks.framework import SettingTerms
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.frameworks.setting_names import canonical_settings, flatten


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = (("rollout.n", "num_generations"), ("n", "num_generations"), ("optim.lr", "learning_rate"), ("m", "model"))
    settings = {key: SettingTerms(means=name) for key, name in pairs}
    table = msgspec.structs.replace(frameworks()["trl"], name="made-up", settings=settings)
    monkeypatch.setattr(setting_names, "frameworks", lambda: {"made-up": table})


def test_only_what_the_data_file_names_is_taken() -> None:
    raw = {"rollout": {"n": 8}, "api_token": "hf_secret", "optim": {"lr": 1e-6}}
    assert canonical_settings(raw, "made-up", "config.yaml") == {
        "num_generations": Setting(8, "config.yaml: rollout.n"),
        "learning_rate": Setting(1e-6, "config.yaml: optim.lr"),
    }


def test_the_key_further_up_wins() -> None:
    assert canonical_settings({"n": 4, "rollout": {"n": 8}}, "made-up", "x")["num_generations"].value == 8


def test_dotted_keys_are_the_same_as_nested_ones() -> None:
    assert canonical_settings({"rollout.n": 8}, "made-up", "x") == canonical_settings(
        {"rollout": {"n": 8}}, "made-up", "x"
    )


@pytest.mark.parametrize("silent", [None, [1], "x" * 301])
def test_what_says_nothing_is_left_out(silent: object) -> None:
    assert canonical_settings({"m": silent}, "made-up", "x") == {}


def test_an_unknown_framework_says_nothing() -> None:
    assert canonical_settings({"n": 1}, "nobody", "x") == {}


def test_nesting_is_bounded() -> None:
    deep: dict[str, object] = {}
    for _ in range(100):
        deep = {"a": deep}
    assert len(list(flatten(deep))) == 1
