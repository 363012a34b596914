"""Expressions that wait for their first use."""

from __future__ import annotations

import copy
import re

import pytest

from grpo_watch import lazy_re


def test_an_expression_is_compiled_when_it_is_used() -> None:
    broken = lazy_re.compile("(")
    with pytest.raises(re.error, match="unterminated subpattern"):
        broken.search("a")


@pytest.mark.parametrize(("pattern", "text"), [(r"(?P<a>\d)b", "1b2B"), (rb"\d(b)", b"1b2B")])
def test_it_answers_as_the_compiled_one(pattern: str, text: str) -> None:
    waiting, plain = lazy_re.compile(pattern, lazy_re.IGNORECASE), re.compile(pattern, re.IGNORECASE)
    assert waiting.findall(text) == plain.findall(text) != []
    assert (waiting.pattern, waiting.flags, waiting.groupindex) == (plain.pattern, plain.flags, plain.groupindex)


def test_it_is_copied_before_its_first_use() -> None:
    waiting = lazy_re.compile("a+")
    for other in (copy.copy(waiting), copy.deepcopy(waiting)):
        assert other.findall("aab") == ["aa"]
