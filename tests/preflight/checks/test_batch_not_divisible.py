"""Refusals that were printed by real runs, and neighbours that started."""

from __future__ import annotations

from tests.preflight.launches import launch, told

CHECK = "batch-not-divisible"


def test_the_text_of_ms_swift() -> None:
    """Run 07a of ms-swift 4.6.0 printed this."""
    problem = told(CHECK, launch("ms-swift", "4.6.0", per_device_train_batch_size=4, num_generations=6))[0]
    assert problem.says == (
        "generation_batch_size (4) must be evenly divisible by num_generations (6). Valid values: [2, 4]."
    )


def test_the_same_with_accumulation_starts() -> None:
    """Run 07b: 4 x 3 = 12 = 2 x 6."""
    given = launch("ms-swift", "4.6.0", per_device_train_batch_size=4, num_generations=6, gradient_accumulation_steps=3)
    assert told(CHECK, given) == []


def test_axolotl_leaves_the_processes_out() -> None:
    """2 per device on 4 devices hold a group of 8, but axolotl looks at 2 x 1."""
    given = launch("axolotl", "1.8.0", 4, micro_batch_size=2, gradient_accumulation_steps=1, trl__num_generations=8)
    assert told(CHECK, given)[0].says.endswith("effective_gbs=2")
    wide = launch("axolotl", "1.8.0", 4, micro_batch_size=8, gradient_accumulation_steps=4, trl__num_generations=8)
    assert told(CHECK, wide) == []


def test_it_says_when() -> None:
    """Before 0.18 the model is loaded first."""
    assert (
        "after the model was loaded" in told(CHECK, launch(version="0.17.0", per_device_train_batch_size=3))[0].message
    )
    assert "arguments are parsed" in told(CHECK, launch(version="0.18.2", per_device_train_batch_size=3))[0].message


def test_without_the_processes_nothing_is_said() -> None:
    assert told(CHECK, launch(world_size=None, per_device_train_batch_size=3)) == []
