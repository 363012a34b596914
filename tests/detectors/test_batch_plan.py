"""Totals of real runs of ms-swift 4.6.0 and 3.12.6, and of the issues that asked for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.detectors.run.launch_plan import likely_cause
from grpo_watch.detectors.shared.batch_plan import BatchPlan, SamplerCount, release, style_of


@pytest.mark.parametrize(
    ("n", "per_device", "group", "accumulated", "per_generation", "iterations", "world", "epochs", "printed"),
    [
        (64, 8, 8, 1, None, 1, 1, 1.0, 64),
        (64, 8, 4, 1, None, 1, 1, 1.0, 32),
        (64, 4, 8, 2, None, 1, 1, 1.0, 64),
        (64, 2, 8, 8, None, 1, 1, 1.0, 32),
        (64, 8, 8, 1, None, 2, 1, 1.0, 128),
        (64, 8, 8, 2, 4, 1, 1, 1.0, 32),
        (64, 4, 6, 3, None, 1, 1, 1.0, 32),
        (64, 8, 4, 3, None, 1, 1, 1.0, 10),
        (64, 8, 8, 4, 2, 1, 1, 1.0, 16),
        (64, 8, 8, 3, 2, 1, 1, 1.0, 22),
        (64, 4, 4, 1, None, 1, 1, 1.5, 96),
        (50, 8, 4, 4, None, 2, 1, 2.0, 24),
        (64, 4, 8, 2, None, 1, 2, 1.0, 32),
        (95, 8, 4, 1, None, 1, 1, 1.0, 47),
        (63, 8, 8, 2, None, 1, 1, 1.0, 31),
        (58, 3, 6, 2, None, 2, 2, 1.0, 58),
        (7920, 8, 8, 2, None, 2, 6, 1.0, 1320),
    ],
)
def test_the_printed_total(  # noqa: PLR0913, PLR0917 - one column per setting
    n: int,
    per_device: int,
    group: int,
    accumulated: int,
    per_generation: int | None,
    iterations: int,
    world: int,
    epochs: float,
    printed: int,
) -> None:
    """The last one is ms-swift#3912, the others are runs whose bar showed this total."""
    plan = BatchPlan(n, per_device, group, world, accumulated, per_generation, None, iterations, epochs)
    assert plan.max_steps == printed


def test_the_generation_batch_may_be_given_instead() -> None:
    """32 completions of 8 on the device are 4 micro-steps (run M of ms-swift 4.6.0)."""
    plan = BatchPlan(64, 8, 4, gradient_accumulation_steps=2, generation_batch_size=32)
    assert (plan.micro_batches, plan.prompts, plan.max_steps) == (4, 8, 16)


def test_a_dataset_without_one_whole_batch_has_no_total() -> None:
    assert BatchPlan(7, 8, 1).max_steps is None
    assert BatchPlan(64, 4, 8).max_steps is None


def test_the_formula_shows_its_numbers() -> None:
    assert "64 prompts / 1 per generation" in BatchPlan(64, 8, 8).formula


def test_versions_are_compared_by_their_numbers() -> None:
    assert [release(text) for text in ("0.19.1", "1.10.0rc1", "4.6", "main")] == [(0, 19, 1), (1, 10, 0), (4, 6), ()]


@pytest.mark.parametrize(
    ("framework", "version", "transformers", "expected"),
    [
        ("trl", "0.14.0", None, (SamplerCount.PROMPTS, False, False, True)),
        ("trl", "0.15.2", None, (SamplerCount.COMPLETIONS, False, False, True)),
        ("trl", "0.17.0", None, (SamplerCount.COMPLETIONS, True, False, True)),
        ("trl", "0.17.0", "4.52.4", (SamplerCount.COMPLETIONS, True, False, False)),
        ("trl", "0.19.1", None, (SamplerCount.COMPLETIONS, True, False, False)),
        ("trl", "0.20.0", None, (SamplerCount.WHOLE_BATCHES, True, False, False)),
        ("trl", "0.20.0", "4.51.3", (SamplerCount.WHOLE_BATCHES, True, False, True)),
        ("trl", None, None, (SamplerCount.WHOLE_BATCHES, True, False, False)),
        ("trl", "0.13.0", None, (SamplerCount.PROMPTS, False, False, True)),
        ("ms-swift", "3.5.3", None, (SamplerCount.COMPLETIONS, True, True, True)),
        ("ms-swift", "3.6.0", None, (SamplerCount.WHOLE_BATCHES, True, False, False)),
    ],
)
def test_how_versions_count(
    framework: str, version: str | None, transformers: str | None, expected: tuple[object, ...]
) -> None:
    """TRL's samplers and transformers' rounding, as read in their sources."""
    style = style_of(framework, version, transformers)
    assert (style.counting, style.draws_whole, style.drop_last, style.floor) == expected


def test_what_is_counted_and_what_is_drawn() -> None:
    """19 prompts x 32 in micro-batches of 8 are 76; groups of 10 prompts need 40 each, so that one of them is drawn."""
    plan = BatchPlan(19, 4, 32, 2, 40, style=style_of("trl", "0.19.1"))
    assert (plan.prompts, plan.micro_steps, plan.drawn, plan.max_steps) == (10, 76, 40, 2)


def test_the_cause_is_what_nobody_reported_or_the_dataset() -> None:
    """64 prompts, one a step; with two to a step 61 steps are those of 122 or 123 prompts."""
    plan = BatchPlan(64, 8, 8)
    assert likely_cause(plan, 128, lambda _: False) == "num_iterations = 2"
    assert likely_cause(plan, 128, lambda _: True) == "dataset_size = 128"
    assert likely_cause(BatchPlan(64, 16, 8), 61, lambda _: True) == "dataset_size = 122 to 123"


def test_unsloth_puts_a_batch_of_its_own_in() -> None:
    """1 on the device and 8 per group, 8 accumulated: 64 steps; with 8 on the device 8 prompts a step, so 8 steps."""
    plan = BatchPlan(64, 1, 8, gradient_accumulation_steps=8)
    assert likely_cause(plan, 8, lambda _: True, replaces_batch=True) == "per_device_train_batch_size = 8"
    assert likely_cause(plan, 8, lambda _: True) == "dataset_size = 8"


def test_no_dataset_gives_an_odd_number_of_steps_in_two_epochs() -> None:
    assert likely_cause(BatchPlan(64, 8, 8, num_train_epochs=2), 61, lambda _: True) is None


@given(st.integers(1, 40), st.integers(1, 3000), st.integers(1, 3000))
def test_a_dataset_that_is_named_gives_the_total(per_device: int, rows: int, printed: int) -> None:
    plan = BatchPlan(rows, per_device * 2, 2, gradient_accumulation_steps=3)
    reported = likely_cause(plan, printed, lambda _: True)
    if reported is not None:
        for size in map(int, reported.removeprefix("dataset_size = ").split(" to ")):
            assert replace(plan, dataset_size=size).max_steps == printed
