"""What a script in plain Python does to judge a group of texts: loops, near copies, distinct word triples."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from itertools import combinations

STEP, SAMPLED = 512, 64
"""Completions of a step, and how many of them, in whole groups, are judged: as many as grpo-watch judges."""
TAIL, HEAD, WORDS = 1_000, 1_000, 128
COMPRESSED = 0.15
ALIKE = 0.8
"""The thresholds of grpo-watch (``grpo_watch.sources.completions.text_reduction`` and ``alike``)."""

Triple = tuple[str, str, str]


def judge(texts: Sequence[str]) -> tuple[int, int, int]:
    """Of one group: looping texts, pairs of near copies among the different ones, and different word triples."""
    different = list(dict.fromkeys(texts))
    looping = {text for text in different if _loops(text)}
    sets = [_triples(text) for text in different]
    alike = sum(_alike(one, other) for one, other in combinations(sets, 2))
    return sum(text in looping for text in texts), alike, len(set[Triple]().union(*sets))


def _loops(text: str) -> bool:
    """Whether the end of a text compresses to 15 % or less."""
    data = text[-TAIL:].encode()
    return len(data) >= 256 and len(zlib.compress(data, 1)) <= COMPRESSED * len(data)


def _triples(text: str) -> set[Triple]:
    words = re.findall(r"\w+", text[:HEAD].casefold())[:WORDS]
    return set(zip(words, words[1:], words[2:], strict=False))


def _alike(one: set[Triple], other: set[Triple]) -> bool:
    shared = len(one & other)
    return shared > 0 and shared >= ALIKE * (len(one) + len(other) - shared)
