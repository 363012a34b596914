"""Steps of trainers that count in prompts, worked by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.detectors.shared.batch_plan import PromptPlan

sizes = st.integers(1, 10_000)


def test_what_is_left_is_dropped_or_kept() -> None:
    """5000 / 1024 = 4.88."""
    assert PromptPlan(5000, 1024, 3).max_steps == 12
    assert PromptPlan(5000, 1024, 3, keeps_rest=True).max_steps == 15
    assert PromptPlan(1000, 32, 2, most_steps=40).max_steps == 40


def test_a_dataset_that_fills_no_step() -> None:
    plan = PromptPlan(100, 128, 3)
    assert (plan.steps_per_epoch, plan.max_steps) == (0, None)
    assert PromptPlan(100, 128, 3, keeps_rest=True).max_steps == 3


def test_the_formula_shows_its_numbers() -> None:
    assert PromptPlan(7473, 1024, 15).formula == "floor(7473 prompts / 1024 per step) x 15 epochs"
    rollouts = PromptPlan(5000, 1024, keeps_rest=True, words=("rollout", "episodes"))
    assert rollouts.formula == "ceil(5000 prompts / 1024 per rollout) x 1 episodes"
    assert PromptPlan(9, 3, most_steps=2).formula.startswith("min(2 max_num_steps, floor(9")


@given(sizes, sizes)
def test_the_rest_is_at_most_one_step(rows: int, prompts: int) -> None:
    dropped, kept = (PromptPlan(rows, prompts, keeps_rest=keeps).steps_per_epoch for keeps in (False, True))
    assert 0 <= rows - dropped * prompts < prompts
    assert 0 <= kept * prompts - rows < prompts
