"""Finds and reads the Python dictionaries that trainers print; evaluates nothing, linear in the text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from grpo_watch import lazy_re as re

START = re.compile(rb"\{\s{0,4}['\"][A-Za-z_][^'\"\n{}]{0,200}['\"]: ?")
CANDIDATES = 16
"""Candidates that are no dictionary after which the search in a text ends (completions may be full of braces)."""
TOKEN = re.compile(
    r"\s*(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|([\[\](){}:,])|([A-Za-z_][\w.]{0,40}\()|([^\s\[\](){}:,'\"]{1,60}))"
)
DEEPEST = 8
OPENING = frozenset("[({ ")
CALL = "call"
CUT = ("...", "\u2026", "\xe2\x80\xa6")
"""Marks at the end of a truncated row."""
BROKEN = object()
"""The result for a text that is no literal."""
WORDS: dict[str, object] = {"None": None, "null": None, "True": True, "False": False, "true": True, "false": False}

_decode_numbers = msgspec.json.Decoder(dict[str, float | None], strict=False).decode
"""Accepts ``"4.2e-05"`` as a number: most rows of transformers 5 hold nothing else."""
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class FoundLiteral(NamedTuple):
    """A dictionary in ``data[start:end]``; ``row`` is None if the text ends before the dictionary does."""

    start: int
    end: int
    row: dict[str, Any] | None


def dictionaries(data: bytes) -> Iterator[FoundLiteral]:
    """The dictionaries of a text, in order; lookalikes are skipped."""
    position = failed = 0
    text = ""
    while failed < CANDIDATES:
        begin = START.search(data, position)
        if begin is None:
            return
        found = _as_json(data, begin.start())
        if found is None:
            text = text or data.decode("latin-1")  # one character per byte keeps the offsets
            found = _parse(text, begin.start())
        if found is not None:
            yield found
        failed += found is None
        position = found.end if found is not None else begin.end()


def _as_json(data: bytes, start: int) -> FoundLiteral | None:
    """The dictionary that begins here, read as JSON (fast); None if only the own parser can tell."""
    end = data.find(b"}", start) + 1
    if end == 0:
        return FoundLiteral(start, len(data), None)
    text = data[start:end]
    if b'"' not in text:
        text = text.replace(b"'", b'"').replace(b": None", b": null")
    try:
        return FoundLiteral(start, end, _decode_numbers(text))
    except (msgspec.MsgspecError, ValueError):
        pass
    try:
        return FoundLiteral(start, end, _decode(text))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _parse(text: str, start: int) -> FoundLiteral | None:
    """A dictionary as Python prints it, with strings, nan, inf, None, numpy's scalars and nested values."""
    value, end = literal(text, start)
    if isinstance(value, dict):
        return FoundLiteral(
            start, end, {k.encode("latin-1").decode("utf-8", "replace"): inner for k, inner in value.items()}
        )
    return None if text.find("}", end) >= 0 else FoundLiteral(start, len(text), None)


def literal(text: str, start: int) -> tuple[Any, int]:
    """The value of a literal that begins at a bracket, and its end; ``BROKEN`` if it is none.

    Calls around a number or an array (``np.float64(0.5)``, ``array([…])``) are replaced by their argument.
    """
    stack: list[tuple[str, list[object]]] = []
    position = start
    while (token := TOKEN.match(text, position)) is not None:
        position = token.end()
        mark = token[3] or token[4]
        if mark and mark[-1:] in OPENING:
            if len(stack) >= DEEPEST:
                break
            stack.append((CALL if token[4] else mark, []))
        elif not stack or (mark == ":" and stack[-1][0] != "{"):
            break
        elif mark and mark in ":,":
            stack[-1][1].extend(mark if stack[-1][0] == "{" else ())
        elif mark:
            value = _closed(*stack.pop())
            if value is BROKEN:
                return BROKEN, token.start()  # its end shows that it was not truncated
            if not stack:
                return value, position
            stack[-1][1].append(value)
        else:
            quoted = token[1] if token[1] is not None else token[2]
            stack[-1][1].append(quoted if quoted is not None else atom(token[5]))
    return BROKEN, position


def _closed(kind: str, items: list[object]) -> object:
    if kind == CALL:
        return items[0] if items else BROKEN
    if kind != "{":
        return items
    keys, colons, values, commas = (items[place::4] for place in range(4))
    if len(keys) > len(values) and keys[-1] in CUT:
        keys.pop()
    parted = {*map(str, colons)} <= {":"} and {*map(str, commas)} <= {","}
    if not parted or len(keys) != len(values) or not all(isinstance(key, (str, float)) for key in keys):
        return BROKEN
    return {_key(key): value for key, value in zip(keys, values, strict=True)}


def _key(key: object) -> str:
    return str(int(key)) if isinstance(key, float) and key.is_integer() else str(key)


def atom(word: str) -> object:
    """The value of an unquoted word: None, bool, float, or the word itself."""
    if word in WORDS:
        return WORDS[word]
    try:
        return float(word) if "_" not in word else word
    except ValueError:
        return word
