"""How alike the texts of a group are."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.sources.completions.text_reduction import (
    ALIKE,
    HEAD,
    MAX_COMPARED,
    MAX_TOKENS,
    NearCopies,
    near_copies,
    triples,
)

PROSE = (
    "First the train leaves at noon and rides three hours to the coast, where the second one is waiting. Since both "
    "go at the same speed, the distance between them stays 40 kilometres, so the answer must be half of that plus ten."
)
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def likeness(*texts: str) -> NearCopies:
    return near_copies(list(map(triples, texts)))


def near_unique(*texts: str) -> int | None:
    return likeness(*texts).near_unique


def test_near_copies_are_one() -> None:
    """One other word at the end, other case and punctuation: 39 of 41 triples are shared; another text shares none."""
    near = PROSE.replace("plus ten.", "plus nine!").upper()
    other = " ".join(PROSE.split()[::-1])
    assert near_unique(PROSE, other, near) == 2


def test_near_copies_chain() -> None:
    """a is like b and b like c: 38, 43 and 48 words of which the later hold the earlier."""
    words = [f"w{number}" for number in range(48)]
    texts = [" ".join(words[:count]) for count in (38, 43, 48)]
    # 36 of 41 and 41 of 46 triples: 0.88, 0.89; 36 of 46: 0.78
    assert near_unique(texts[0], texts[2]) == 2
    assert near_unique(*texts) == 1


def test_exactly_four_fifths_are_alike() -> None:
    """22 and 27 words, the first ones common: 20 of 25 triples; one more word: 20 of 26."""
    words = [f"w{number}" for number in range(28)]
    assert near_unique(" ".join(words[:22]), " ".join(words[:27])) == 1
    assert near_unique(" ".join(words[:22]), " ".join(words)) == 2


def test_short_texts_are_only_compared_exactly() -> None:
    """Nineteen words are too few."""
    nineteen, twenty = " ".join("abcdefghijklmnopqrs"), " ".join("abcdefghijklmnopqrst")
    assert [len(triples(text)) for text in (nineteen, twenty)] == [0, 18]
    assert near_unique(nineteen, nineteen + "!", twenty, twenty + "!") == 3


def test_large_groups_are_not_compared() -> None:
    """The cost grows with the square; distinct-3 is reported all the same."""
    assert near_unique(*[PROSE] * MAX_COMPARED) == 1
    found = likeness(*[PROSE] * (MAX_COMPARED + 1))
    assert found.near_unique is None
    assert found.distinct == pytest.approx(1 / 65)


def test_distinct_3_counts_different_triples_of_the_whole_group() -> None:
    """22 words give 20 triples; 2 x 20 of which 20 are different, then 20 others."""
    text = " ".join(f"a{number}" for number in range(22))
    assert likeness(text).distinct == 1.0
    assert likeness(text, text.upper()).distinct == 0.5
    assert likeness(text, text, text.replace("a", "b")).distinct == pytest.approx(2 / 3)
    assert likeness("too short").distinct is None


def test_chinese_is_cut_by_character() -> None:
    """23 characters, then the same with one other at the end: 20 of 22 triples are shared."""
    text = "因为火车在中午出发三个小时后到达海边所以距离不变"
    assert len(triples(text)) == len(text) - 2
    assert near_unique(text, text[:-1] + "大") == 1
    assert near_unique(text, text[::-1]) == 2


def test_zero_bytes_separate_words() -> None:
    assert near_unique("\0" + PROSE.replace(" ", "\0"), PROSE) == 1


def test_words_of_all_scripts() -> None:
    """Accents that stand alone, signs and broken surrogates separate; emoji are words, with or without a blank."""
    text = "Straße_2 naïve e\u0301t カ・ナ 水木 \U0001f600\U0001f600x \ud800 c-d"
    words = ["strasse_2", "naïve", "e", "t", "カ", "ナ", "水", "木", "😀", "😀", "x", "c", "d"]
    padded = [*words, *"abcdefghij"]
    assert triples(text + " a b c d e f g h i j") == list(zip(padded, padded[1:], padded[2:], strict=False))


def test_very_long_texts_are_cut() -> None:
    """128 words, or the first 1,000 characters."""
    assert [len(triples(text)) for text in ("a " * 100_000, "abcdefghi " * 100_000)] == [126, 98]


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "B7", "_", ".", "-", "\0", "\x1c", "\n", "x" * 9, "cd"]), max_size=90).map(" ".join)
)
def test_texts_of_ascii_have_the_words_that_others_have(text: str) -> None:
    """They are cut in another way; a sign beyond ASCII at the end is no word."""
    assert triples(text) == triples(f"{text} \u2019")


@pytest.mark.slow
@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.lists(st.text("ab ,B.水木\U0001f600", max_size=300) | st.just(PROSE), min_size=1, max_size=6))
def test_pairs_agree_with_sets_of_words(texts: list[str]) -> None:
    """The same by regular expression and sets, one text at a time (an emoji counts as a word)."""
    pattern = re.compile(WORD.pattern + "|\U0001f600")
    sets = []
    for text in texts:
        words = pattern.findall(text[:HEAD].casefold())[:MAX_TOKENS]
        sets.append(set(zip(words, words[1:], words[2:], strict=False)) if len(words) >= 20 else set())
    assert [set(triples(text)) for text in texts] == sets
    for one, other in combinations(range(len(sets)), 2):
        shared, union = len(sets[one] & sets[other]), len(sets[one] | sets[other])
        alike = bool(sets[one] and sets[other]) and shared >= ALIKE * union
        assert near_unique(texts[one], texts[other]) == (1 if alike else 2)
