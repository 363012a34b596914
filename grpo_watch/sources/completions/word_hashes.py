"""Cuts texts into words and hashes their triples, exactly; many texts at once, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from grpo_watch.sources.completions.text_reduction import HEAD

MAX_TOKENS = 128
"""Words that are looked at, of the ``HEAD`` of a text."""
MIN_TOKENS = 20
"""Shorter texts are only compared exactly: one differing word of a short answer is a different answer."""

LETTER, ALONE = 1, 2
"""Kinds of characters; 0 separates words."""
FIRST_ALONE, LAST = 0x3400, 0xFFFF
WIDER = (0x80, 0x800, 0x10000)
"""Code points from which UTF-8 takes another byte."""
BLOCK = 8
"""Bytes of a word that are loaded at once."""
Hashes: TypeAlias = NDArray[np.uint64]
_Places: TypeAlias = NDArray[np.intp]
_FACTORS = tuple(np.uint64(factor) for factor in (0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5))
_SHIFT = np.uint64(29)
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(BLOCK + 1)], np.uint64)
"""What keeps the first bytes of a block, by their number."""


@cache
def _kinds(size: int) -> NDArray[np.uint8]:
    """Per code point below ``size``: separator, part of a word, or a word by itself (Chinese, Japanese, Korean)."""
    kinds = np.array([chr(code).isalnum() or code == ord("_") for code in range(size)], np.uint8)
    for first, last in ((0x3040, 0x30FF), (FIRST_ALONE, 0x9FFF), (0xAC00, 0xD7AF)):
        kinds[first : last + 1] *= ALONE
    return kinds


@cache
def _ascii_kinds() -> bytes:
    """The same as a table for ``bytes.translate``, which takes a third of the time of an index."""
    return _kinds(128).tobytes().ljust(256, b"\0")


class _Words(NamedTuple):
    """UTF-8 of several texts, ``BLOCK`` bytes more, and where each word and each text starts and ends in it."""

    data: bytes
    starts: _Places
    ends: _Places
    texts: _Places


def triples(texts: Sequence[str]) -> list[Hashes]:
    """Per text the hashes of its word triples in order, case and punctuation apart; none for a text of few words.

    Shape of each: (at most 126,). All texts are cut into words together: calls of numpy are dear, elements are not.
    Texts of ASCII alone, which take a third of the time, are cut apart from others.
    """
    folded = [text[:HEAD].casefold() for text in texts]
    if all(map(str.isascii, folded)):
        return _of_words(_ascii_words(folded))
    simple = iter(_of_words(_ascii_words([text for text in folded if text.isascii()])))
    others = iter(_of_words(_other_words([text for text in folded if not text.isascii()])))
    return [next(simple if text.isascii() else others) for text in folded]


def _of_words(words: _Words) -> list[Hashes]:
    """The triples that lie within the words of each text."""
    hashed = _hashed(words)
    three = hashed[:-2] * _FACTORS[0] + hashed[1:-1] * _FACTORS[1] + hashed[2:] * _FACTORS[2]
    three ^= three >> _SHIFT
    bounds = pairwise(np.searchsorted(words.starts, words.texts).tolist())
    return [_of_one(three, at, end) for at, end in bounds]


def _of_one(three: Hashes, at: int, end: int) -> Hashes:
    """The triples that lie within the words of one text."""
    kept = min(end - at, MAX_TOKENS) - 2 if end - at >= MIN_TOKENS else 0
    return three[at : at + kept]


def _ascii_words(texts: Sequence[str]) -> _Words:
    data = "\0".join([*texts, "\0" * (BLOCK - 1)]).encode()
    kinds = np.frombuffer(data.translate(_ascii_kinds()), np.uint8)
    starts, ends = _bounds(kinds)
    return _Words(data, starts, ends, np.cumsum([0, *[len(text) + 1 for text in texts]]))


def _other_words(texts: Sequence[str]) -> _Words:
    """Words are found among code points and read as UTF-8, so that they are the same words in a text of ASCII."""
    joined = "\0".join([*texts, "\0" * (BLOCK - 1)])
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
    place = np.zeros(len(codes) + 1, np.intp)
    np.cumsum(1 + sum((codes >= wider).astype(np.intp) for wider in WIDER), out=place[1:])
    starts, ends = _bounds(_kinds(LAST + 1)[np.where(codes > LAST, FIRST_ALONE, codes)])
    bounds = place[np.cumsum([0, *[len(text) + 1 for text in texts]])]
    return _Words(joined.encode("utf-8", "surrogatepass"), place[starts], place[ends], bounds)


def _bounds(kinds: NDArray[np.uint8]) -> tuple[_Places, _Places]:
    """First character of each word, and the one behind its last; the last kind is a separator."""
    letter = np.zeros(len(kinds) + 1, np.bool_)
    np.equal(kinds, LETTER, out=letter[1:])
    turns = np.flatnonzero(letter[1:] != letter[:-1])
    starts, ends = turns[::2], turns[1::2]
    alone = np.flatnonzero(kinds == ALONE)
    if not len(alone):
        return starts, ends
    return np.sort(np.concatenate((starts, alone))), np.sort(np.concatenate((ends, alone + 1)))


def _hashed(words: _Words) -> Hashes:
    """One hash per word, of its bytes; those beyond the first eight are taken in for the long words only."""
    data, starts, ends, _ = words
    blocks = np.ndarray((len(data) - BLOCK + 1,), f"V{BLOCK}", data, strides=(1,))
    sizes = ends - starts
    hashed: Hashes = blocks[starts].view("<u8") & _MASKS[np.minimum(sizes, BLOCK)]
    hashed *= _FACTORS[2]
    long, at = np.flatnonzero(sizes > BLOCK), BLOCK
    while len(long):
        more = blocks[starts[long] + at].view("<u8") & _MASKS[np.minimum(sizes[long] - at, BLOCK)]
        before = hashed[long]
        hashed[long] = (before ^ (before >> _SHIFT) ^ more) * _FACTORS[0]
        at += BLOCK
        long = long[sizes[long] > at]
    hashed ^= hashed >> _SHIFT
    hashed *= _FACTORS[1]
    return hashed
