"""Conditions that can't hold, always hold, or are in order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.expression import compile_expression
from grpo_watch.errors import FilePlace
from grpo_watch.rules.satisfiable import domain, problems_of

AT = FilePlace("mine.yaml", 7, 11)


def reported(text: str) -> list[str]:
    compile_expression(text)
    return [str(problem) for problem in problems_of(text, AT)]


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("reward_zero_std_ratio > 1", 11, "between 0 and 1"),
        ("loss > 3 and loss < 2", 11, "can never hold"),
        ("step > 5 and grad_norm < 0", 24, "grad_norm is never negative"),
        ("reward_mean > 1 or entropy <= -1", 30, "entropy <= -1"),
        ("2 < reward_mean < 1", 11, "can never hold"),
        ("not (loss > 1 or loss <= 1)", 11, "can never hold"),
        ("loss == 1 and loss != 1", 11, "can never hold"),
        ("abs(reward_mean) < 0", 11, "can never hold"),
        ('reward_function_std["acc"] < 0', 11, "can never hold"),
        ("completion_truncated_ratio + 1 > 2.5", 11, "between 0 and 1"),
        ("step >= 0", 11, "always holds"),
        ("loss < 2 or loss > 1", 11, "always holds"),
    ],
)
def test_no_sense(text: str, column: int, part: str) -> None:
    """Each is one problem, at the smallest part that is to blame."""
    (problem,) = reported(text)
    assert problem.startswith(f"mine.yaml:7:{column}: ")
    assert part in problem


@pytest.mark.parametrize(
    "text",
    [
        "reward_zero_std_ratio >= 1",
        "importance_ratio_rollout > 1.5",
        "kl_reference < 0",
        "loss > 3 or loss < 2",
        "not (0.1 < reward_mean < 0.9)",
        "loss - grad_norm > 1 and loss / step < 5",
        'raw("x") > 1 and raw("x") < 0',
        "min(loss, 1) < 1 and max(loss, 1) >= 1",
        "step > 200 and reward_mean < 0.1 and entropy < 0.2",
        "probability_error_rollout > 1.05",
    ],
)
def test_in_order(text: str) -> None:
    """Neither impossible nor always true, or not understood well enough to say."""
    assert reported(text) == []


numbers = st.sampled_from(["0", "0.5", "1", "-1", "2"])
names = st.sampled_from(["loss", "entropy", "reward_zero_std_ratio", "abs(loss)", "loss + 1"])
leaves = st.tuples(names, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), numbers).map(" ".join)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda text: f"(not {text})"),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(derandomize=True, max_examples=300, deadline=None)
@given(conditions, st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 3.0]), st.floats(0, 1))
def test_a_complaint_is_always_right(text: str, loss: float, share: float) -> None:
    """What is called impossible holds for no value in the domains; what always holds is never false."""
    values = {"loss": loss, "entropy": abs(loss), "reward_zero_std_ratio": share}
    assert all(domain(name).low <= value <= domain(name).high for name, value in values.items())
    holds = compile_expression(text).evaluate(values.get)
    problems = reported(text)
    if any("always holds" in problem for problem in problems):
        assert holds is True
    elif problems and f"`{text}`" in problems[0]:
        assert holds is False
