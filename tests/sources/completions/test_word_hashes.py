"""Words and their triples: the arrays say what sets of tuples say."""

from __future__ import annotations

import re
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.sources.completions.near_copies import MAX_TOKENS, MIN_TOKENS, triples
from grpo_watch.sources.completions.text_reduction import HEAD

ALONE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00010000-\U0010ffff"
WORD = re.compile(f"[{ALONE}]|[^\\W{ALONE}]+")
PARTS = (
    *("a", "b", "Seven77", "eightlet", "ninechars", "sixteencharacter", "seventeenletters1", "x" * 40, "x" * 41),
    *(
        "Straße",
        "STRASSE",
        "naïve",
        "мир",
        "Труд" * 5,
        "水",
        "木水",
        "가나",
        "カナ",
        "\U0001f600",
        "İ",
        "ﬁ",
        "_",
        "e\u0301",
    ),
    *("_", "e\u0301", " ", "\n", ", ", ".", "\0", "\u00a0", "\ud800", "\udfff", "\u2019", "\ufffd"),
)


def plainly(text: str) -> list[tuple[str, str, str]]:
    """The triples of one text by regular expression; its characters beyond the basic plane stand alone."""
    words = WORD.findall(text[:HEAD].casefold())[:MAX_TOKENS]
    return list(zip(words, words[1:], words[2:], strict=False)) if len(words) >= MIN_TOKENS else []


@pytest.mark.slow
@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.lists(st.lists(st.sampled_from(PARTS), max_size=90).map(" ".join) | st.text(max_size=200), max_size=6))
def test_hashes_are_equal_where_triples_are(texts: list[str]) -> None:
    """In one text and between texts, of ASCII or not; none is lost, and all are in order."""
    expected = [plainly(text) for text in texts]
    found = [each.tolist() for each in triples(texts)]
    assert list(map(len, found)) == list(map(len, expected))
    meaning = dict(zip(chain.from_iterable(found), chain.from_iterable(expected), strict=True))
    assert [[meaning[hashed] for hashed in each] for each in found] == expected
    assert len(set(meaning.values())) == len(meaning)


def test_words_of_any_length_are_read_to_their_end() -> None:
    """They differ in their last letter only, at every length around the blocks of eight bytes."""
    for letter in ("x", "ж", "é"):
        words = [letter * length + end for length in range(40) for end in "ab"]
        (one,) = triples([" ".join(words)[:HEAD]])
        assert len(set(one.tolist())) == len(one)


def test_very_long_texts_are_cut() -> None:
    """128 words, or the first 1,000 characters."""
    assert [len(each) for each in triples(["a " * 100_000, "abcdefghi " * 100_000])] == [126, 98]
