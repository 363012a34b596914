"""Measures how alike the texts of a group are, exactly, by sets of word triples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple, TypeAlias

from grpo_watch.sources.completions.text_reduction import HEAD

MAX_TOKENS = 128
"""Words that are looked at, of the ``HEAD`` of a text."""
MIN_TOKENS = 20
"""Shorter texts are only compared exactly: one differing word of a short answer is a different answer."""
ALIKE = 0.8
"""Jaccard similarity of two sets of word triples from which two texts are near copies: the practice of deduplicating
corpora (Lee et al. 2022, Penedo et al. 2023)."""
MAX_COMPARED = 64
"""Distinct texts of a group that are compared with each other (2,016 pairs)."""
_ALONE, _BEYOND = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af", "\U00010000-\U0010ffff"
WORD = re.compile(rf"[{_BEYOND}]|(?=\w)[{_ALONE}]|[^\W{_ALONE}{_BEYOND}]+")
"""A word; Chinese, Japanese and Korean characters, and those beyond the basic plane (emoji), are one each."""
_SPACED = bytes(code if chr(code).isalnum() or code == ord("_") else ord(" ") for code in range(128)).ljust(256)
"""What separates words in ASCII is a blank: such a text is cut into words in a tenth of the time."""
Triple: TypeAlias = tuple[str, str, str]


class NearCopies(NamedTuple):
    """How many different texts there are when near copies count as one (None: too many to compare), and distinct-3.

    distinct-3 (Li et al. 2016) is the share of different word triples among all; None where no text has any.
    """

    near_unique: int | None
    distinct: float | None


def triples(text: str) -> list[Triple]:
    """The word triples of a text in order, at most 126, case and punctuation apart; none for a text of few words."""
    folded = text[:HEAD].casefold()
    words = folded.encode().translate(_SPACED).decode().split() if folded.isascii() else WORD.findall(folded)
    words = words[:MAX_TOKENS]
    return list(zip(words, words[1:], words[2:], strict=False)) if len(words) >= MIN_TOKENS else []


def near_copies(texts: Sequence[Sequence[Triple]]) -> NearCopies:
    """Compare the distinct texts of a group, each given by its triples.

    Near copies of near copies belong together; a text without triples is like no other.
    """
    filled = [set(each) for each in texts if each]
    if not filled:
        return NearCopies(len(texts) if len(texts) <= MAX_COMPARED else None, None)
    total, fewest = sum(map(len, texts)), min(len(each) for each in texts if each)
    repeats = total - len(set[Triple]().union(*filled))
    distinct = 1 - repeats / total
    if len(texts) > MAX_COMPARED:
        return NearCopies(None, distinct)
    if repeats < ALIKE * fewest:  # a pair that is alike shares, or repeats within, at least as many
        return NearCopies(len(texts), distinct)
    return NearCopies(len(texts) - len(filled) + _components(filled), distinct)


def _components(sets: Sequence[set[Triple]]) -> int:
    """How many texts remain where near copies are one."""
    leader = list(range(len(sets)))
    for one, other in combinations(range(len(sets)), 2):
        if leader[one] != leader[other] and _alike(sets[one], sets[other]):
            old, new = leader[other], leader[one]
            leader = [new if number == old else number for number in leader]
    return len(set(leader))


def _alike(one: set[Triple], other: set[Triple]) -> bool:
    shared = len(one & other)
    return shared >= ALIKE * (len(one) + len(other) - shared)
