"""Words that say what to do name what the evidence names, and nothing of a run's folder is a command in them."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.engine.rule import filled, general


@pytest.mark.parametrize(
    ("hint", "evidence", "shown"),
    [
        ("see {a} and {b}", {"a": "x/y", "b": 3}, "see x/y and 3"),
        ("see {a}", {}, "see {a}"),
        ("see {a}", {"a": None}, "see {a}"),
        ("see {a}", {"a": 0.25}, "see 0.25"),
        ('set {"beta": 0.04} or {}', {"beta": 1.0}, 'set {"beta": 0.04} or {}'),
        ("{a}", {"a": "{b}", "b": "no"}, "'{b}'"),
    ],
)
def test_places_are_filled(hint: str, evidence: dict[str, str | float | None], shown: str) -> None:
    assert filled(hint, evidence) == shown


def test_without_a_finding_places_read_like_a_commands_usage() -> None:
    assert general('run `digest {a_b} {c}`, not {"beta": 0.04}') == 'run `digest A_B C`, not {"beta": 0.04}'


@given(st.text(min_size=1))
def test_a_name_is_one_word_of_a_command(name: str) -> None:
    assert shlex.split(filled("digest {a}", {"a": name})) == ["digest", name]
