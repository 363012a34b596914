"""Takes the completions of one table row by row and keeps numbers, hashes, and the texts of a small sample."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappush, heapreplace
from itertools import groupby
from typing import Any, NamedTuple

import xxhash

from grpo_watch.sources.completions.text_reduction import FAR, HEAD, as_text, digests, plain, token_ids

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
        self._newest: object = None

    def __len__(self) -> int:
        return len(self.texts)

    def add(self, prompt: object, completion: object) -> None:
        """Take one row; prompt and completion are texts, conversations (TRL ≥ 1.15) or lists of token ids.

        Raises:
            RecursionError: a conversation nested beyond sense.
        """
        self.extend((prompt,), (completion,))

    def extend(self, prompts: Sequence[object], completions: Sequence[object]) -> None:
        """Take rows, as many prompts as completions.

        Raises:
            RecursionError: a conversation nested beyond sense.
        """
        self.take(prompts, reduced(completions))

    def take(self, prompts: Iterable[object], new: ReducedRows) -> None:
        """Take rows whose completions are reduced already, as many prompts as completions.

        Raises:
            RecursionError: a conversation nested beyond sense.
        """
        start, runs = len(self.texts), list(self._hashed(prompts))
        for hashed, count in runs:
            self.prompts += [hashed] * count
        self.texts += new.hashes
        self.lengths += new.lengths
        self.empty += new.empty
        self.openings += new.openings
        at = 0
        for hashed, count in runs:
            if (rows := self._chosen.get(hashed)) is not None:
                for place in range(at, min(at + count, at + PER_PROMPT - len(rows))):
                    rows.append(start + place)
                    self.windows[start + place] = new.window(place)
            at += count

    def put(self, at: int, completion: object) -> None:
        """Replace the completion of a row that was taken (a later turn of the same rollout)."""
        new = reduced((completion,))
        (self.texts[at],), (self.lengths[at],), (self.empty[at],) = new.hashes, new.lengths, new.empty
        (self.openings[at],) = new.openings
        if at in self.windows:
            self.windows[at] = new.window(0)

    def put_prompt(self, at: int, prompt: object) -> None:
        """Replace the prompt of a row that was taken (an earlier turn of the same rollout)."""
        text = as_text(prompt)
        (self.prompts[at],) = digests((text,))
        if at in self.windows:
            self.asked[self.prompts[at]] = text[:HEAD]
        self._newest = None

    def _hashed(self, prompts: Iterable[object]) -> Iterator[tuple[bytes, int]]:
        """Hashes of prompts and how often each comes in a row; one that repeats, as in a group, is hashed once."""
        hashed = self.prompts[-1] if self.prompts else b""
        for prompt, run in groupby(prompts):
            if self._newest is None or prompt != self._newest:
                text = as_text(prompt)
                (hashed,) = digests((text,))
                self._newest = prompt
                if hashed not in self._chosen:
                    self._choose(hashed, text[:HEAD])
            yield hashed, len(list(run))

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


class ReducedRows(NamedTuple):
    """Completions reduced column by column; ``window`` gives start and end of a text by its place."""

    hashes: list[bytes]
    lengths: list[int]
    empty: list[bool]
    openings: list[int]
    window: Callable[[int], str]


def reduced(completions: Sequence[object]) -> ReducedRows:
    """Reduce completions of one kind; a call per column is much cheaper than one per completion."""
    strings: Sequence[Any] = completions
    if not {str}.issuperset(map(type, completions)):
        tokens = [ids for one in completions if (ids := token_ids(one)) is not None]
        if len(tokens) == len(completions):
            return _of_tokens(tokens)
        strings = [as_text(one) for one in completions]
    texts = [plain(text) if "<" in text or "[" in text else text for text in strings]
    lengths = list(map(len, texts))
    return ReducedRows(
        digests(texts),
        lengths,
        [blank or not length for blank, length in zip(map(str.isspace, texts), lengths, strict=True)],
        [hash(text[:OPENING]) for text in texts],
        lambda at: _window(texts[at]),
    )


def _of_tokens(tokens: Sequence[array[int]]) -> ReducedRows:
    """Token ids are compared as they are; written as words they are looked through for loops and near copies."""
    data = [ids.tobytes() for ids in tokens]
    return ReducedRows(
        [xxhash.xxh3_128_digest(each) for each in data],
        [len(ids) for ids in tokens],
        [False] * len(tokens),
        [hash(each[: 8 * OPENING_TOKENS]) for each in data],
        lambda at: _window(" ".join(map(str, tokens[at]))),
    )


def _window(text: str) -> str:
    """Start and end of a text: what its quality and its likeness to others are judged by."""
    return text if len(text) <= HEAD + FAR else text[:HEAD] + text[-FAR:]
