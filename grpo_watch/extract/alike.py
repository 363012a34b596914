"""Tells how alike the texts of a group are, exactly, by sets of word triples; many texts at once, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpo_watch.extract.quality import HEAD

MAX_TOKENS = 128
"""Words that are looked at, of the ``HEAD`` of a text."""
MIN_TOKENS = 20
"""Shorter texts are only compared exactly: one differing word of a short answer is a different answer."""
ALIKE = 0.8
"""Jaccard similarity of two sets of word triples from which two texts are near copies: the practice of deduplicating
corpora (Lee et al. 2022, Penedo et al. 2023)."""
MAX_COMPARED = 64
"""Distinct texts of a group that are compared with each other (2,016 pairs)."""

LETTER, ALONE, END = 1, 2, 3
"""Kinds of characters; 0 separates words."""
FIRST_ALONE, LAST = 0x3400, 0xFFFF
_Hashes = NDArray[np.uint64]
_BASE = 0x9E3779B97F4A7C15
_FACTORS = tuple(np.uint64(factor) for factor in (0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5))
_SHIFT = np.uint64(29)


@cache
def _kinds(size: int) -> NDArray[np.uint8]:
    """Per code point below ``size``: separator, part of a word, or a word by itself (Chinese, Japanese, Korean)."""
    kinds = np.array([chr(code).isalnum() or code == ord("_") for code in range(size)], np.uint8)
    for first, last in ((0x3040, 0x30FF), (FIRST_ALONE, 0x9FFF), (0xAC00, 0xD7AF)):
        kinds[first : last + 1] *= ALONE
    kinds[0] = END
    return kinds


@cache
def _ascii_kinds() -> bytes:
    """The same as a table for ``bytes.translate``, which takes a third of the time of an index."""
    return _kinds(128).tobytes().ljust(256, b"\0")


@lru_cache(maxsize=2)
def _powers(size: int) -> tuple[_Hashes, _Hashes]:
    """The powers of an odd base modulo 2^64, and their inverses."""
    bases = (_BASE, pow(_BASE, -1, 1 << 64))
    up, down = (np.cumprod(np.full(size, base, np.uint64), dtype=np.uint64) for base in bases)
    return up, down


def triples(texts: Sequence[str]) -> list[_Hashes]:
    """Per text the hashes of its word triples in order, case and punctuation apart; none for a text of few words.

    Shape of each: (at most 126,). All texts are cut into words together: calls of numpy are dear, elements are not.
    """
    joined = "\0".join([text[:HEAD].casefold().replace("\0", " ") for text in texts]) + "\0"
    if joined.isascii():
        data = joined.encode()
        codes: NDArray[Any] = np.frombuffer(data, np.uint8)
        kinds = np.frombuffer(data.translate(_ascii_kinds()), np.uint8)
    else:
        codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
        kinds = _kinds(LAST + 1)[np.where(codes > LAST, FIRST_ALONE, codes)]
    starts, ends = _bounds(kinds)
    words = _hashed(codes, starts, ends)
    three = words[:-2] * _FACTORS[0] + words[1:-1] * _FACTORS[1] + words[2:] * _FACTORS[2]
    three ^= three >> _SHIFT
    upto = np.searchsorted(starts, np.flatnonzero(kinds == END)).tolist()
    return [_of_one(three, at, end) for at, end in pairwise((0, *upto))]


def _bounds(kinds: NDArray[np.uint8]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First and last character of each word; the last kind is ``END``."""
    letter = np.zeros(len(kinds) + 1, np.bool_)
    np.equal(kinds, LETTER, out=letter[1:])
    turns = np.flatnonzero(letter[1:] != letter[:-1])
    starts, ends = turns[::2], turns[1::2] - 1
    alone = np.flatnonzero(kinds == ALONE)
    if not len(alone):
        return starts, ends
    return np.sort(np.concatenate((starts, alone))), np.sort(np.concatenate((ends, alone)))


def _of_one(three: _Hashes, at: int, end: int) -> _Hashes:
    """The triples that lie within the words of one text."""
    kept = min(end - at, MAX_TOKENS) - 2 if end - at >= MIN_TOKENS else 0
    return three[at : at + kept]


def _hashed(codes: NDArray[Any], starts: NDArray[np.intp], ends: NDArray[np.intp]) -> _Hashes:
    """One hash per word: a polynomial in its characters modulo 2^64, from one running sum over all texts."""
    up, down = _powers(1 << (len(codes) - 1).bit_length())
    sums = np.zeros(len(codes) + 1, np.uint64)
    np.cumsum((codes + np.uint64(_FACTORS[2])) * up[: len(codes)], out=sums[1:])
    words = (sums[ends + 1] - sums[starts]) * down[starts]
    words ^= words >> _SHIFT
    words *= _FACTORS[1]
    hashed: _Hashes = words
    return hashed


class Likeness(NamedTuple):
    """How many different texts there are when near copies count as one (None: too many to compare), and distinct-3.

    distinct-3 (Li et al. 2016) is the share of different word triples among all; None where no text has any.
    """

    near_unique: int | None
    distinct: float | None


def likeness(sets: Sequence[_Hashes]) -> Likeness:
    """Compare the distinct texts of one group by their triples.

    Near copies of near copies belong together; a text without triples is like no other.
    """
    told = [one for one in sets if len(one)]
    if not told:
        return Likeness(len(sets) if len(sets) <= MAX_COMPARED else None, None)
    ordered = np.sort(np.concatenate(told))
    repeats = int(np.count_nonzero(ordered[1:] == ordered[:-1]))
    distinct = 1 - repeats / len(ordered)
    if len(sets) > MAX_COMPARED:
        return Likeness(None, distinct)
    if repeats < ALIKE * min(map(len, told)):  # a pair that is alike shares, or repeats within, at least as many
        return Likeness(len(sets), distinct)
    return Likeness(len(sets) - len(told) + _components(_alike(told)), distinct)


def _alike(sets: Sequence[_Hashes]) -> NDArray[np.bool_]:
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
