"""Finds the Python dictionaries that trainers print and reads them; evaluates nothing, linear in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

START = re.compile(rb"\{\s{0,4}['\"][A-Za-z_][^'\"\n{}]{0,200}['\"]: ?")
CANDIDATES = 16
"""This many things that are no dictionary end the search in one piece of text (completions may be full of braces)."""
KEY = re.compile(r"\s*(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")\s*:\s*")
STRING = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
CALL = re.compile(r"[A-Za-z_][\w.]{0,40}\(\s*([-+\w.]{1,60})[^(){}]{0,100}\)")
"""``np.float64(0.5)``, ``tensor(0.5, device='cuda:0')``."""
ATOM = re.compile(r"[-+\w.]{1,60}")
BRACKETS = re.compile(r"[\[({]|[\])}]|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
NEXT = re.compile(r"\s*([,}])")
WORDS: dict[str, object] = {"None": None, "null": None, "True": True, "False": False, "true": True, "false": False}

_decode_numbers = msgspec.json.Decoder(dict[str, float | None], strict=False).decode
"""Takes ``"4.2e-05"`` for a number: most rows of transformers 5 hold nothing else."""
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class FoundLiteral(NamedTuple):
    """A dictionary in ``data[start:end]``; ``row`` is None where the text ends before the dictionary does."""

    start: int
    end: int
    row: dict[str, Any] | None


def dictionaries(data: bytes) -> Iterator[FoundLiteral]:
    """The dictionaries of a piece of text, in order; what only looks like one is passed over."""
    position = failed = 0
    text = ""
    while failed < CANDIDATES:
        begin = START.search(data, position)
        if begin is None:
            return
        found = _as_json(data, begin.start())
        if found is None:
            text = text or data.decode("latin-1")  # one character per byte: offsets stay what they are
            found = _parse(text, begin.start())
        if found is not None:
            yield found
        failed += found is None
        position = found.end if found is not None else begin.end()


def _as_json(data: bytes, start: int) -> FoundLiteral | None:
    """What begins here, read as JSON (fast); None where only the own parser can tell."""
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
    """``{'key': value, …}`` with Python's strings, nan, inf, None and numpy's scalars; nested values give nothing."""
    row: dict[str, Any] = {}
    position = start + 1
    while (key := KEY.match(text, position)) is not None:
        position, value = _value(text, key.end())
        row[_utf8(key[1] or key[2] or "")] = value
        after = NEXT.match(text, position)
        if after is None:
            break
        position = after.end()
        if after[1] == "}":
            return FoundLiteral(start, position, row)
    closing = text[position : position + 8].lstrip(" .\xe2\x80\xa6")  # a row cut manually ends with ``, ...}``
    if row and closing.startswith("}"):
        return FoundLiteral(start, text.index("}", position) + 1, row)
    return None if text.find("}", position) >= 0 else FoundLiteral(start, len(text), None)


def _value(text: str, position: int) -> tuple[int, object]:
    """Where the value ends, and the value: float, string, None, bool; an empty tuple for anything nested."""
    if (string := STRING.match(text, position)) is not None:
        return string.end(), string[1] or string[2] or ""
    if (found := CALL.match(text, position) or ATOM.match(text, position)) is not None:
        word = found[1] if found.re is CALL else found[0]
        return found.end(), atom(word)
    depth = 0
    for token in BRACKETS.finditer(text, position):
        depth += token[0] in "[({"
        depth -= token[0] in "])}"
        if depth <= 0:
            return token.end(), ()
    return len(text), ()


def atom(word: str) -> object:
    """The value of an unquoted word: None, bool, float, or the word itself."""
    if word in WORDS:
        return WORDS[word]
    try:
        return float(word) if "_" not in word else word
    except ValueError:
        return word


def _utf8(text: str) -> str:
    return text if text.isascii() else text.encode("latin-1").decode("utf-8", "replace")
