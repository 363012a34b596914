"""Turns one completion's text into what is kept of it: whether it is degenerate, and hashes of its shingles."""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Sequence
from enum import Enum
from itertools import groupby

TAIL = 1_000
"""Characters looked at for loops, from the end: that is where a looping model ends up."""
SHORTEST = 16
"""Characters below which a text is not judged."""
COMPRESSIBLE = 256
"""Characters from which compression tells more than counting n-grams."""
RATIO = 0.15
"""Compressed by zlib to this share or less: loops of a sentence or less. Prose gives 0.4 to 0.55, code 0.25 to 0.4."""
NGRAM = 4
DISTINCT_NGRAMS = 0.3
"""A short text with at most this share of distinct n-grams goes round in circles."""
ONE_CHARACTER = 0.5
"""A single run of one character that makes up this share of a short text."""
SCRIPTS_AT_ONCE = 4
"""Writing systems in one text (Japanese, Korean and Chinese count as one): no language or translation mixes so many."""
SCRIPT_SHARE = 0.02
UNDECODABLE = 0.05
"""Share of replacement characters."""

MAX_TOKENS = 128
MIN_TOKENS = 20
"""Shorter texts are only compared exactly: one differing word of a short answer is a different answer."""
SHINGLE = 3
ALIKE = 0.8
"""Jaccard similarity of two sets of shingles from which two texts are near copies."""
MAX_COMPARED = 64
"""Distinct texts of a group that are compared with each other (2,016 pairs)."""

_TOKEN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+")
_SCRIPTS = tuple(
    re.compile(f"[{letters}]")
    for letters in (
        "A-Za-z\u00c0-\u024f",
        "\u0400-\u052f",
        "\u0590-\u05ff",
        "\u0600-\u06ff\u0750-\u077f",
        "\u0900-\u0dff",
        "\u0e00-\u0eff",
        "\u1200-\u137f\u1780-\u17ff\u10a0-\u10ff\u0530-\u058f",
        "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af",
    )
)


class Quality(str, Enum):
    """What a text looks like."""

    SHORT = "short"
    SOUND = "sound"
    LOOPING = "looping"
    SCATTERED = "scattered"


def quality(text: str) -> Quality:
    """Whether the end of a text is a loop, one character, or scraps of many scripts; linear and bounded in cost."""
    tail = text.strip()[-TAIL:]
    if len(tail) < SHORTEST:
        return Quality.SHORT
    if not tail.isascii() and _is_scattered(tail):
        return Quality.SCATTERED
    return Quality.LOOPING if _loops(tail) else Quality.SOUND


def _loops(text: str) -> bool:
    if len(text) >= COMPRESSIBLE:
        data = text.encode("utf-8", "surrogatepass")
        return len(zlib.compress(data, 1)) <= RATIO * len(data)
    count = len(text) - NGRAM + 1
    if len({text[at : at + NGRAM] for at in range(count)}) <= DISTINCT_NGRAMS * count:
        return True
    return max(sum(1 for _ in run) for _, run in groupby(text)) >= ONE_CHARACTER * len(text)


def _is_scattered(text: str) -> bool:
    if text.count("\ufffd") >= UNDECODABLE * len(text):
        return True
    least = max(3, SCRIPT_SHARE * len(text))
    return sum(len(script.findall(text)) >= least for script in _SCRIPTS) >= SCRIPTS_AT_ONCE


def shingles(text: str) -> bytes:
    """Hashes of the three-token shingles of a text's first 128 tokens, case and punctuation apart; empty when short.

    The hashes are those of this process: compare only what one process made.
    """
    tokens = _TOKEN.findall(text[: 4 * TAIL].casefold())[:MAX_TOKENS]
    if len(tokens) < MIN_TOKENS:
        return b""
    return array("q", {hash(three) for three in zip(tokens, tokens[1:], tokens[2:], strict=False)}).tobytes()


def near_unique(texts: Sequence[bytes]) -> int | None:
    """How many different texts there are when near copies count as one; None for more than 64.

    Args:
        texts: the shingles of each distinct text. Near copies of near copies belong together.
    """
    if len(texts) > MAX_COMPARED:
        return None
    sets = [frozenset(array("q", one)) for one in texts]
    leader = list(range(len(sets)))
    for later, one in enumerate(sets):
        for earlier in range(later):
            if leader[earlier] != leader[later] and _alike(one, sets[earlier]):
                old, new = leader[later], leader[earlier]
                leader = [new if number == old else number for number in leader]
    return len(set(leader))


def _alike(one: frozenset[int], other: frozenset[int]) -> bool:
    fewer, more = sorted((len(one), len(other)))
    if fewer < ALIKE * more or not fewer:
        return False
    shared = len(one & other)
    return shared >= ALIKE * (fewer + more - shared)
