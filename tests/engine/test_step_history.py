"""One metric by step."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.window import StepHistory

quick = settings(derandomize=True, deadline=None, max_examples=100)
VALUES = st.dictionaries(st.integers(0, 60), st.floats(-5, 5), min_size=1, max_size=30)


def history(size: int, *pushed: tuple[int, float]) -> StepHistory:
    """A history with these values pushed in this order."""
    made = StepHistory(size)
    for step, value in pushed:
        made.push(step, value)
    return made


def test_the_value_at_a_step_is_the_newest_one_not_after_it() -> None:
    known = history(9, (10, 1.0), (20, 2.0))
    assert [known.at(step) for step in (9, 10, 19, 20, 99)] == [None, 1.0, 1.0, 2.0, 2.0]


def test_of_two_values_at_one_step_the_later_counts() -> None:
    assert history(9, (10, 1.0), (10, 2.0)).at(10) == 2.0


def test_the_highest_until_a_step_does_not_know_the_future() -> None:
    known = history(9, (1, 0.5), (2, 2.0), (3, 1.0), (4, 7.0))
    assert [known.highest(step) for step in (0, 1, 2, 3, 4)] == [0.0, 0.5, 2.0, 2.0, 7.0]


def test_what_left_the_window_is_remembered_as_a_maximum_only() -> None:
    known = history(2, (1, 9.0), (2, 1.0), (3, 2.0))
    assert known.at(1) is None
    assert (known.highest(2), known.highest(3)) == (9.0, 9.0)


def test_the_highest_is_at_least_zero() -> None:
    assert (history(3).highest(5), history(3, (1, -2.0)).highest(5)) == (0.0, 0.0)


@quick
@given(VALUES, st.randoms(use_true_random=False))
def test_a_history_does_not_depend_on_the_order_of_arrival(values: dict[int, float], random: object) -> None:
    """As long as nothing has left the window."""
    ordered = sorted(values.items())
    shuffled = list(ordered)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = history(30, *ordered), history(30, *shuffled)
    for step in range(-1, 62):
        assert one.at(step) == other.at(step)
        assert one.highest(step) == other.highest(step) == max([0.0, *(v for s, v in ordered if s <= step)])
