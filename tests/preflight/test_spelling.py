"""Settings that are nearly one that is known."""

from __future__ import annotations

from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.assess import misspelt
from grpo_watch.preflight.inputs.load_launch import GivenOptions, read_launch
from tests.preflight.launches import launch
from tests.preflight.test_launch_files import LAUNCHES


def misspelt_lines(framework: str = "trl", **settings: object) -> list[str]:
    return list(misspelt(LaunchSettings(launch(framework, **settings))))  # type: ignore[arg-type]


def test_a_slip_and_a_beginning_are_reported() -> None:
    place = "train.sh:3: "
    slip = f"{place}per_device_train_batch_sise is not known and not counted: is per_device_train_batch_size meant?"
    assert misspelt_lines(per_device_train_batch_sise=6) == [slip]
    assert misspelt_lines("ms-swift", split_dataset=0.1) == [
        f"{place}split_dataset is not known and not counted: is split_dataset_ratio meant?"
    ]


def test_names_of_their_own_are_left_alone() -> None:
    """Begins like several, is short, is known, is the framework's own name, is unlike all."""
    quiet = {"per_device": 1, "lr": 1e-6, "num_generations": 8, "model": "x", "max_grad_norm": 1, "eval_steps": 5}
    assert misspelt_lines(**quiet) == []
    assert misspelt_lines("axolotl", micro_batch_size=2, sequence_len=512, val_set_size=0.1) == []
    assert misspelt_lines("verl", num_generation=8) == []


def test_real_launches_have_no_slips() -> None:
    for name in ("swift.sh", "grpo.yaml", "train.py", "axolotl.yml"):
        found = read_launch((LAUNCHES / name).relative_to(LAUNCHES), (), GivenOptions(), LAUNCHES, {})
        assert list(misspelt(LaunchSettings(found))) == [], name
