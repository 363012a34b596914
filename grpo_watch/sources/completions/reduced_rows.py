"""Takes the completions of one table row by row and keeps numbers, hashes, and the texts of a small sample."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from heapq import heappush, heapreplace
from typing import NamedTuple

import xxhash

from grpo_watch.sources.completions.text_reduction import FAR, HEAD, as_text, digest, plain, token_ids

OPENING = 64
"""Characters at the start of a text that count as its opening …"""
OPENING_TOKENS = 16
"""… and tokens, where a dump holds token ids."""
PROMPTS = 32
"""Prompts whose texts are kept until the table is grouped: those of the lowest hashes, so that the choice depends on
neither the order nor the number of rows, and spreads over ranks and engines …"""
PER_PROMPT = 64
"""… and completions of each."""


class CollectedRows:
    """The rows so far, column by column.

    ``prompts`` and ``texts`` are 128-bit hashes, ``lengths`` characters (tokens where the dump holds ids), ``openings``
    hashes of this process of how texts begin. ``windows`` holds start and end of the sampled texts by row, ``asked``
    the start of each sampled prompt by its hash.
    """

    def __init__(self) -> None:
        self.prompts: list[bytes] = []
        self.texts: list[bytes] = []
        self.lengths: list[int] = []
        self.empty: list[bool] = []
        self.openings: list[int] = []
        self.windows: dict[int, str] = {}
        self.asked: dict[bytes, str] = {}
        self._chosen: dict[bytes, list[int]] = {}
        self._largest: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self.texts)

    def extend(self, prompts: Sequence[object], completions: Sequence[object]) -> None:
        """Take rows, as many prompts as completions.

        Raises:
            RecursionError: a conversation nested beyond sense.
        """
        for prompt, completion in zip(prompts, completions, strict=True):
            self.add(prompt, completion)

    def add(self, prompt: object, completion: object) -> None:
        """Take one row; prompt and completion are texts, conversations (TRL ≥ 1.15) or lists of token ids.

        Raises:
            RecursionError: a conversation nested beyond sense.
        """
        asked, new, at = as_text(prompt), _reduced(completion), len(self.texts)
        hashed = digest(asked)
        self.prompts.append(hashed)
        self.texts.append(new.digest)
        self.lengths.append(new.length)
        self.empty.append(new.empty)
        self.openings.append(new.opening)
        if hashed not in self._chosen:
            self._choose(hashed, asked[:HEAD])
        rows = self._chosen.get(hashed)
        if rows is not None and len(rows) < PER_PROMPT:
            rows.append(at)
            self.windows[at] = _window(new.kept)

    def put(self, at: int, completion: object) -> None:
        """Replace the completion of a row that was taken (a later turn of the same rollout)."""
        new = _reduced(completion)
        self.texts[at], self.lengths[at], self.empty[at], self.openings[at] = new[:4]
        if at in self.windows:
            self.windows[at] = _window(new.kept)

    def put_prompt(self, at: int, prompt: object) -> None:
        """Replace the prompt of a row that was taken (an earlier turn of the same rollout)."""
        text = as_text(prompt)
        self.prompts[at] = digest(text)
        if at in self.windows:
            self.asked[self.prompts[at]] = text[:HEAD]

    def _choose(self, hashed: bytes, head: str) -> None:
        """Keep the texts of a new prompt if its hash is among the lowest."""
        key = (-int.from_bytes(hashed[:8], "big"), hashed)
        if len(self._chosen) < PROMPTS:
            heappush(self._largest, key)
        elif key > self._largest[0]:
            _, dropped = heapreplace(self._largest, key)
            self.asked.pop(dropped, None)
            for at in self._chosen.pop(dropped):
                del self.windows[at]
        else:
            return
        self._chosen[hashed], self.asked[hashed] = [], head


class _Reduced(NamedTuple):
    """A completion by columns; ``kept`` is its text or its token ids."""

    digest: bytes
    length: int
    empty: bool
    opening: int
    kept: str | array[int]


def _reduced(completion: object) -> _Reduced:
    """Token ids are compared as they are; written as words they are looked through for loops and near copies."""
    if (tokens := token_ids(completion)) is not None:
        data = tokens.tobytes()
        opening = hash(data[: tokens.itemsize * OPENING_TOKENS])
        return _Reduced(xxhash.xxh3_128_digest(data), len(tokens), False, opening, tokens)
    text = plain(as_text(completion))
    return _Reduced(digest(text), len(text), not text or text.isspace(), hash(text[:OPENING]), text)


def _window(kept: str | array[int]) -> str:
    """Start and end of a text: what its quality and its likeness to others are judged by."""
    text = kept if isinstance(kept, str) else " ".join(map(str, kept))
    return text if len(text) <= HEAD + FAR else text[:HEAD] + text[-FAR:]
