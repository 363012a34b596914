"""Evidence as a person reads it."""

from __future__ import annotations

import math

import pytest

from grpo_watch.engine.records import Scalar
from grpo_watch.report.words import evidence_words, pattern_words, rounded


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (3.52721095, "3.53"),
        (24.0, "24"),
        (0.8083, "0.808"),
        (0.0045, "0.0045"),
        (1.234e-7, "1.2e-07"),
        (512_000.0, "512,000"),
        (1234.5, "1,234"),
        (-0.25, "-0.25"),
        (math.nan, "nan"),
    ],
)
def test_numbers_are_rounded_for_people(value: float, shown: str) -> None:
    assert rounded(value) == shown


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(0, 1, 2, 0, 1, 2)", "completions 1\u20133 repeat as 4\u20136"),
        ("(0, 1, 0, 1, 0, 1)", "completions 1\u20132 repeat as 3\u20134 and 5\u20136"),
        ("(0, 0, 0, 0)", "all 4 completions are one text"),
        ("(0, 0, 1, 2)", "equal completions: 1 = 2"),
        ("(0, 1, 2)", ""),
        ("none", ""),
    ],
)
def test_a_pattern_gets_words(pattern: str, words: str) -> None:
    assert pattern_words(pattern) == words


def test_shares_are_percent_unknown_values_are_left_out_and_the_example_is_last() -> None:
    evidence = {
        "example": "a" * 80,
        "completion_truncated_ratio": 0.954,
        "reward_zero_std_ratio": 0.001,
        "silent_seconds": 3511600.0,
        "entropy": None,
        "my_metric": 7,
        "against_ratio": 1.5,
    }
    assert evidence_words(evidence) == [
        "truncated completions 95%",
        "groups with zero std 0.1%",
        "silent 41 days",
        "my metric 7",
        "against 1.5",
        f"e.g. \u201c{'a' * 59}\u2026\u201d",
    ]


def test_an_error_that_the_sentence_quotes_is_not_repeated() -> None:
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    evidence: dict[str, Scalar] = {"last_step": 3.0, "error": error, "sign": "traceback"}
    assert evidence_words(evidence, f"the job died at step 3: {error}") == ["last step 3", "sign traceback"]
    assert evidence_words(evidence, "the job died at step 3") == ["last step 3", f"error {error}", "sign traceback"]
