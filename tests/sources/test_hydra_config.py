"""What Hydra keeps of a launch: composed configuration, overrides, and which folder is the run's."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.sources.settings.run_config import RunConfigSource, composed, overrides, read_run_config

CONFIG = """
actor_rollout_ref:
  actor:
    use_kl_loss: true
    kl_loss_coef: 0.002
    optim: {lr: 1e-6}
  rollout: {n: 8, temperature: 1.0, prompt_length: '${data.max_prompt_length}'}
algorithm: {adv_estimator: grpo, use_kl_in_reward: false, kl_ctrl: {kl_coef: 0.001}}
data: {max_response_length: '${oc.select:actor_rollout_ref.rollout.response_length,1024}'}
trainer: {save_freq: -1, total_epochs: 3}
"""
OVERRIDES = """
- algorithm.adv_estimator=grpo
- actor_rollout_ref.rollout.n=5
- +actor_rollout_ref.actor.optim.lr=3e-6
- actor_rollout_ref.model.path='Qwen/Qwen2.5-0.5B'
- ~trainer.logger
"""


def values(found: object) -> dict[str, object]:
    return {name: setting.value for name, setting in found.settings.items()}  # type: ignore[attr-defined]


def test_composed_configuration() -> None:
    """References are unresolved in it and say nothing; -1 is "not set"."""
    found = composed(CONFIG, ".hydra/config.yaml")
    assert found.framework == "verl"
    assert values(found) == {
        "beta": 0.002,
        "learning_rate": 1e-06,
        "num_generations": 8,
        "temperature": 1.0,
        "num_train_epochs": 3,
    }


def test_overrides() -> None:
    assert values(overrides(OVERRIDES, ".hydra/overrides.yaml")) == {
        "num_generations": 5,
        "learning_rate": 3e-06,
        "model": "Qwen/Qwen2.5-0.5B",
    }


@pytest.mark.parametrize("text", ["a: &x 1\nb: *x\n", "a: [1"])
def test_aliases_and_broken_files_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        composed(text, "config.yaml")


@pytest.mark.parametrize("text", ["", "- 1\n- {a: b}\n", "plain text"])
def test_other_content_says_nothing(text: str) -> None:
    assert values(overrides(text, "x")) == values(composed(text, "x")) == {}


def put(folder: Path, text: str = CONFIG) -> None:
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text(text)


def test_the_folder_of_the_job(tmp_path: Path) -> None:
    put(tmp_path / "outputs" / "2026-01-02" / "03-04-05")
    (config,) = read_run_config(tmp_path)
    assert config.settings["num_generations"].origin == (
        "outputs/2026-01-02/03-04-05/.hydra/config.yaml: actor_rollout_ref.rollout.n"
    )
    assert len(read_run_config(tmp_path / "outputs" / "2026-01-02" / "03-04-05")) == 1


def test_of_several_jobs_nothing_says_which(tmp_path: Path) -> None:
    put(tmp_path / "outputs" / "2026-01-02" / "03-04-05")
    put(tmp_path / "outputs" / "2026-01-03" / "03-04-05")
    assert read_run_config(tmp_path) == []


def test_a_file_that_is_too_large_is_reported(tmp_path: Path) -> None:
    put(tmp_path, CONFIG + "#" * (1 << 20))
    source = RunConfigSource("run-config", tmp_path, [tmp_path])
    assert list(source.poll(None)) == []
    assert "more than the limit of 1048576" in source.stats.first_bad
