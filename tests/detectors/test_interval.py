"""How many steps a row stands for."""

from __future__ import annotations

import pytest

from grpo_watch.detectors.shared.generations import BatchesPerRow, LoggingInterval
from grpo_watch.engine.engine import RunState
from grpo_watch.engine.records import RunConfig, Scalar, Setting
from tests.support.records import row


@pytest.mark.parametrize(
    ("steps", "expected"),
    [([], 1), ([40], 1), ([1, 2, 3], 1), ([1, 5, 10], 4), ([5, 10, 20], 5), ([10, 20, 11, 21], 10)],
)
def test_the_least_distance_between_rows(steps: list[int], expected: int) -> None:
    """Rows may be missing; a resume goes back."""
    interval = LoggingInterval()
    for step in steps:
        interval.add_row(step)
    assert interval.steps == expected


def batches(steps: list[int], reported: list[bool], **settings: Scalar) -> float:
    run, per_row = RunState("run", ()), BatchesPerRow()
    run.take_config(RunConfig(None, None, {name: Setting(value, "test") for name, value in settings.items()}))
    for step, tells in zip(steps, reported, strict=True):
        per_row.add_row(row(step), tells=tells)
    return per_row.count(run)


def test_batches_that_a_row_is_a_mean_over() -> None:
    """Ten steps per row; two passes over each batch halve them; rows that tell of none in between make it one."""
    assert batches([10, 20, 30], [True] * 3) == 10.0
    assert batches([10, 20, 30], [True] * 3, num_iterations=2) == 5.0
    assert batches([10, 20], [True] * 2, steps_per_generation=16, gradient_accumulation_steps=4) == 2.5
    assert batches([2, 4], [True] * 2, num_iterations=4) == 1.0
    assert batches([2, 4, 6], [True, False, True]) == 1.0
    assert batches([7], [True]) == 1.0
