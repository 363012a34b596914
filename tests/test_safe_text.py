"""Control characters and NaN are shown in one way, wherever a text or a value of a run appears."""

from __future__ import annotations

import pytest

from grpo_watch.safe_text import clean, plain, strict, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31m", r"a\x1b[31m"),
        ("a\u202eb", r"a\u202eb"),
        ("a\nb\t", r"a\nb\t"),
        ("a\ud83d", r"a\ud83d"),
        ("\ufffe", r"\ufffe"),
        ("数\u3000学 🙂 ß\xa0", "数\u3000学 🙂 ß\xa0"),
    ],
    ids=["escape", "backwards", "line end", "half a pair", "no character", "text"],
)
def test_what_a_terminal_obeys_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_clean_text_is_one_bounded_line() -> None:
    assert clean("a\nb\x1b") == r"a b\x1b"
    assert clean("abcdef", 4) == "abc…"
    assert clean("a\x00bc", 4) == "a\\x…"


def test_values_that_are_not_finite_are_strings() -> None:
    assert [strict(value) for value in (float("nan"), float("-inf"), 1.5, "a", None)] == ["nan", "-inf", 1.5, "a", None]
    assert plain({"a": [float("nan"), float("-inf"), 1.5, "\ud83d"]}) == {"a": ["NaN", "-Infinity", 1.5, "?"]}
