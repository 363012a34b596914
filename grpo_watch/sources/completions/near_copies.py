"""Measures how alike the texts of a group are, exactly, by sets of word triples; many groups at once, in numpy."""

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


ALIKE = 0.8
"""Jaccard similarity of two sets of word triples from which two texts are near copies: the practice of deduplicating
corpora (Lee et al. 2022, Penedo et al. 2023)."""
MAX_COMPARED = 64
"""Distinct texts of a group that are compared with each other (2,016 pairs)."""
AT_ONCE = 256
"""Groups whose triples are sorted together: the group is the highest byte of eight, and 56 bits of hash are left, which
meet by chance once in a hundred billion groups of 1,000 triples."""
_EIGHT, _TOP = np.uint64(8), np.uint64(56)


class NearCopies(NamedTuple):
    """How many different texts there are when near copies count as one (None: too many to compare), and distinct-3.

    distinct-3 (Li et al. 2016) is the share of different word triples among all; None where no text has any.
    """

    near_unique: int | None
    distinct: float | None


def likenesses(groups: Sequence[Sequence[Hashes]]) -> list[NearCopies]:
    """Compare the distinct texts of each group by their triples.

    Near copies of near copies belong together; a text without triples is like no other.
    """
    found: list[NearCopies] = []
    for start in range(0, len(groups), AT_ONCE):
        part = groups[start : start + AT_ONCE]
        found += [_likeness(sets, again) for sets, again in zip(part, _repeats(part), strict=True)]
    return found


def _repeats(groups: Sequence[Sequence[Hashes]]) -> list[int]:
    """How many triples of each group came before in it."""
    totals = [sum(map(len, sets)) for sets in groups]
    if not any(totals):
        return [0] * len(groups)
    every = np.concatenate([one for sets in groups for one in sets]) >> _EIGHT
    every |= np.repeat(np.arange(len(groups), dtype=np.uint64) << _TOP, totals)
    every.sort()
    again = every[1:][every[1:] == every[:-1]] >> _TOP
    counted: list[int] = np.bincount(again.astype(np.intp), minlength=len(groups)).tolist()
    return counted


def _likeness(sets: Sequence[Hashes], repeats: int) -> NearCopies:
    filled = [one for one in sets if len(one)]
    sizes = list(map(len, filled))
    distinct = 1 - repeats / sum(sizes) if filled else None
    if len(sets) > MAX_COMPARED:
        return NearCopies(None, distinct)
    if not filled or repeats < ALIKE * min(sizes):  # a pair that is alike shares, or repeats within, at least as many
        return NearCopies(len(sets), distinct)
    return NearCopies(len(sets) - len(filled) + _components(_alike(filled)), distinct)


def _alike(sets: Sequence[Hashes]) -> NDArray[np.bool_]:
    """Which pairs are near copies, from the exact sizes of all intersections: one matrix product."""
    sizes = np.array([len(one) for one in sets])
    _, columns = np.unique(np.concatenate(sets), return_inverse=True)
    member = np.zeros((len(sets), int(columns.max()) + 1), np.float32)
    member[np.repeat(np.arange(len(sets)), sizes), columns] = 1.0
    shared = member @ member.T
    each = member.sum(axis=1)
    alike: NDArray[np.bool_] = shared >= ALIKE * (each[:, None] + each[None, :] - shared) - 1e-4
    return alike


def _components(alike: NDArray[np.bool_]) -> int:
    leader = list(range(len(alike)))
    for later, earlier in np.argwhere(np.tril(alike, -1)).tolist():
        if leader[later] != leader[earlier]:
            old, new = leader[later], leader[earlier]
            leader = [new if number == old else number for number in leader]
    return len(set(leader))
