"""Reduces a table's completions to numbers, hashes and a small sample of texts, and judges these texts."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from enum import Enum
from heapq import heappush, heapreplace
from itertools import combinations, groupby
from typing import NamedTuple, TypeAlias

import xxhash

from grpo_watch import lazy_re as re
from grpo_watch.credentials import masked

TAIL = 1_000
"""Last characters of a text that are checked for loops: a looping model ends in them."""
HEAD = 1_000
"""First characters of a text that are compared with other texts."""
FAR = 4_000
"""Last characters of a text that are searched for a recurring passage."""
SUFFIX = 24
PERIODIC = 512
"""Fewest characters that such a passage, repeated, must fill."""
SHORTEST = 16
"""Fewest characters of a judged text."""
COMPRESSIBLE = 256
"""Characters from which compression reveals more than counting n-grams."""
RATIO = 0.15
"""Loops of a sentence or less: zlib compresses them to this share. Prose gives 0.4 to 0.55, code 0.25 to 0.4."""
NGRAM = 4
DISTINCT_NGRAMS = 0.3
"""A short text with at most this share of distinct n-grams is a loop."""
ONE_CHARACTER = 0.5
"""Share of a short text that a single run of one character must make up."""
SCRIPTS_AT_ONCE = 4
"""Writing systems in one text (Japanese, Korean and Chinese count as one): no language or translation mixes so many."""
SCRIPT_SHARE = 0.02
UNDECODABLE = 0.05
"""Share of replacement characters."""

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


class TextQuality(str, Enum):
    """The quality of a text."""

    SHORT = "short"
    SOUND = "sound"
    LOOPING = "looping"
    SCATTERED = "scattered"


def quality(text: str) -> TextQuality:
    """Whether the end of a text is a loop, one character, or scraps of many scripts; linear, bounded cost."""
    whole = text.strip()[-FAR:]
    tail = whole[-TAIL:]
    if len(tail) < SHORTEST:
        return TextQuality.SHORT
    if not tail.isascii() and _is_scattered(tail):
        return TextQuality.SCATTERED
    return TextQuality.LOOPING if _goes_round(whole) or _loops(tail) else TextQuality.SOUND


def _goes_round(text: str) -> bool:
    """Whether a text ends in a passage of any length that is repeated exactly three times or more."""
    end = len(text) - SUFFIX
    ending = text[end:] if end > 0 else ""
    if not ending or text.find(ending, end - FAR // 3) == end:  # the forward search is the fast one
        return False
    period = end - text.rfind(ending, 0, -1)
    span = max(3 * period, PERIODIC)
    return span <= len(text) and text[-span:-period] == text[period - span :]


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


EXCERPT = 80
"""Most characters of a text that a finding may show."""
SHOWN = 240
"""Most characters of a prompt or a completion in the page's completion table, if the settings enable it."""
EXCERPT_HEAD = 400
"""Characters of a text from which its excerpt is made."""

SPECIAL = re.compile(  # \uff5c: the bar of DeepSeek's tokens
    r"<[|\uff5c][^|\uff5c<>\s]{1,40}[|\uff5c]>|</?(?:s|pad|unk|bos|eos|start_of_turn|end_of_turn)>|\[(?:PAD|EOS|SEP|CLS)\]"
)
"""Special tokens as tokenizers print them (ms-swift 3.12 leaves ``<|im_end|>`` in its texts, 4.6 and TRL strip it)."""

TEXT_KEYS = ("reasoning_content", "thinking", "content", "text", "tool_calls", "function", "name", "arguments")
"""Keys of messages and their parts that hold text written by the model, or its reasoning (TRL separates them)."""

_PERSONAL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{1,64}|\d[\d -]{7,30}\d")
"""Mail addresses, card and telephone numbers: omitted from excerpts."""
_COLOUR = re.compile(r"(\x1b\[[\d;?]{0,10}[A-Za-z])")
"""A colour code; its final letter belongs to no word."""


def plain(text: str) -> str:
    """Return the text without special tokens."""
    return SPECIAL.sub("", text) if "<" in text or "[" in text else text


def as_text(value: object) -> str:
    """Return a text, or the contents of a conversation; images and other media only as their type."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return "\n".join(map(as_text, value))
    if isinstance(value, dict):
        parts = [_part(key, value[key]) for key in TEXT_KEYS if value.get(key)]
        kind = value.get("type")
        return "\n".join(parts) or (f"[{kind}]" if isinstance(kind, str) and kind != "text" else "")
    return "" if value is None else str(value)


def _part(key: str, value: object) -> str:
    """Return one part of a message; a call's arguments (a text or a dictionary, by dump) with all their names."""
    return str(value) if key == "arguments" else as_text(value)


def token_ids(value: object) -> array[int] | None:
    """Return the token ids that a dump gives instead of a text (open-instruct does); None for anything else."""
    if not isinstance(value, list) or not value or type(value[0]) is not int:
        return None
    try:
        return array("q", value)
    except (TypeError, OverflowError):
        return None


def excerpt(head: str, limit: int = EXCERPT) -> str:
    """Return one line of at most ``limit`` (below 400) characters: credentials masked, control characters escaped."""
    safe = "".join(map(masked, _COLOUR.split(head[:EXCERPT_HEAD])))
    shown = _PERSONAL.sub("[…]", safe)
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in shown[:limit])[:limit]


def digest(text: str) -> bytes:
    """Return a 128-bit hash of a text; lone surrogates are hashed as they are."""
    return xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass"))


MAX_TOKENS = 128
"""Words of the first ``HEAD`` characters that are compared."""
MIN_TOKENS = 20
"""Texts with fewer words are only compared exactly: one differing word makes a short answer different."""
ALIKE = 0.8
"""Jaccard similarity of two sets of word triples from which two texts are near copies, as in deduplication of corpora
(Lee et al. 2022, Penedo et al. 2023)."""
MAX_COMPARED = 64
"""Most distinct texts of a group that are compared with each other (2,016 pairs)."""
_ALONE, _BEYOND = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af", "\U00010000-\U0010ffff"
WORD = re.compile(rf"[{_BEYOND}]|(?=\w)[{_ALONE}]|[^\W{_ALONE}{_BEYOND}]+")
"""A word; Chinese, Japanese and Korean characters, and those beyond the basic plane (emoji), are one word each."""
_SPACED = bytes(code if chr(code).isalnum() or code == ord("_") else ord(" ") for code in range(128)).ljust(256)
"""Maps separators of ASCII words to blanks, which splits such texts in a tenth of the time."""
Triple: TypeAlias = tuple[str, str, str]


class NearCopies(NamedTuple):
    """The number of texts, near copies counted as one (None: too many to compare), and distinct-3.

    distinct-3 (Li et al. 2016) is the share of different word triples among all; None where no text has any.
    """

    near_unique: int | None
    distinct: float | None


def triples(text: str) -> list[Triple]:
    """Return the word triples of a text in order, at most 126, without case and punctuation; empty for few words."""
    folded = text[:HEAD].casefold()
    words = folded.encode().translate(_SPACED).decode().split() if folded.isascii() else WORD.findall(folded)
    words = words[:MAX_TOKENS]
    return list(zip(words, words[1:], words[2:], strict=False)) if len(words) >= MIN_TOKENS else []


def near_copies(texts: Sequence[Sequence[Triple]]) -> NearCopies:
    """Compare the distinct texts of a group, each given by its triples.

    Near copies of near copies belong together; a text without triples resembles no other.
    """
    filled = [set(each) for each in texts if each]
    if not filled:
        return NearCopies(len(texts) if len(texts) <= MAX_COMPARED else None, None)
    total, fewest = sum(map(len, texts)), min(len(each) for each in texts if each)
    repeats = total - len(set[Triple]().union(*filled))
    distinct = 1 - repeats / total
    if len(texts) > MAX_COMPARED:
        return NearCopies(None, distinct)
    if repeats < ALIKE * fewest:  # a similar pair shares, or repeats within, at least as many
        return NearCopies(len(texts), distinct)
    return NearCopies(len(texts) - len(filled) + _components(filled), distinct)


def _components(sets: Sequence[set[Triple]]) -> int:
    """Return the number of texts, near copies counted as one."""
    leader = list(range(len(sets)))
    for one, other in combinations(range(len(sets)), 2):
        if leader[one] != leader[other] and _alike(sets[one], sets[other]):
            old, new = leader[other], leader[one]
            leader = [new if number == old else number for number in leader]
    return len(set(leader))


def _alike(one: set[Triple], other: set[Triple]) -> bool:
    shared = len(one & other)
    return shared >= ALIKE * (len(one) + len(other) - shared)


OPENING = 64
"""Characters at the start of a text that count as its opening …"""
OPENING_TOKENS = 16
"""… and tokens, where a dump holds token ids."""
PROMPTS = 32
"""Prompts whose texts are kept until the table is grouped: those of the lowest hashes, so that the choice is
independent of the order and number of rows, and spread over ranks and engines …"""
PER_PROMPT = 64
"""… and completions of each."""


class CollectedRows:
    """The rows so far, by column.

    ``prompts`` and ``texts`` are 128-bit hashes, ``lengths`` characters (tokens where the dump holds ids), ``openings``
    process-local hashes of the texts' beginnings. ``windows`` holds start and end of the sampled texts by row,
    ``asked`` the start of each sampled prompt by its hash.
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
            RecursionError: a conversation is nested too deeply.
        """
        for prompt, completion in zip(prompts, completions, strict=True):
            self.add(prompt, completion)

    def add(self, prompt: object, completion: object) -> None:
        """Take one row; prompt and completion are texts, conversations (TRL ≥ 1.15) or lists of token ids.

        Raises:
            RecursionError: a conversation is nested too deeply.
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
        """Replace the completion of an earlier row (a later turn of the same rollout)."""
        new = _reduced(completion)
        self.texts[at], self.lengths[at], self.empty[at], self.openings[at] = new[:4]
        if at in self.windows:
            self.windows[at] = _window(new.kept)

    def put_prompt(self, at: int, prompt: object) -> None:
        """Replace the prompt of an earlier row (an earlier turn of the same rollout)."""
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
    """A reduced completion; ``kept`` is its text or its token ids."""

    digest: bytes
    length: int
    empty: bool
    opening: int
    kept: str | array[int]


def _reduced(completion: object) -> _Reduced:
    """Token ids are compared directly; written as words, they are checked for loops and near copies."""
    if (tokens := token_ids(completion)) is not None:
        data = tokens.tobytes()
        opening = hash(data[: tokens.itemsize * OPENING_TOKENS])
        return _Reduced(xxhash.xxh3_128_digest(data), len(tokens), False, opening, tokens)
    text = plain(as_text(completion))
    return _Reduced(digest(text), len(text), not text or text.isspace(), hash(text[:OPENING]), text)


def _window(kept: str | array[int]) -> str:
    """Return start and end of a text, for judging its quality and similarity to others."""
    text = kept if isinstance(kept, str) else " ".join(map(str, kept))
    return text if len(text) <= HEAD + FAR else text[:HEAD] + text[-FAR:]
