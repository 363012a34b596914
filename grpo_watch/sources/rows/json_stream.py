"""Reads a JSON document piece by piece: the entries of one list in it, and what stands beside that list."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

CHUNK = 1 << 20
LARGEST_VALUE = 8 << 20
"""Characters of one value beside the list, or one entry of it; a row takes about 1,200."""


class HistoryStream:
    """The entries of the list under ``key`` of an object, or those of a list, in order, without holding all of them.

    ``beside``: the object's other values, as far as they were read; None where the document is neither an object nor a
    list. ``listed``: the list was found. ``read``: bytes so far. ``whole``: the document was read to its end; False
    while it is still being written, or where it is no JSON.

    Args:
        file: the document's bytes.
        key: the list's name.
    """

    def __init__(self, file: BinaryIO, key: str) -> None:
        self._file, self._key = file, key
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._values = json.JSONDecoder()  # accepts NaN and Infinity, which transformers writes
        self._text, self._at = "", 0
        self.beside: dict[str, Any] | None = None
        self.listed = self.whole = False
        self.read = 0

    def entries(self) -> Iterator[Any]:
        """The list's entries; ends where the document does, or where it can't be read further."""
        try:
            begin = self._next()
            if begin == "[":
                self.beside, self.listed = {}, True
                yield from self._list()
            elif begin == "{":
                self.beside = {}
                yield from self._object(self.beside)
            else:
                self._value()
            self.whole = True
        except (ValueError, RecursionError):
            return

    def _object(self, beside: dict[str, Any]) -> Iterator[Any]:
        self._at += 1
        while (mark := self._next()) != "}":
            if mark == ",":
                self._at += 1
                continue
            key = self._value()
            if self._next() != ":":
                raise ValueError("no colon")
            self._at += 1
            if key == self._key and self._next() == "[":
                self.listed = True
                yield from self._list()
            else:
                beside[str(key)] = self._value()
        self._at += 1

    def _list(self) -> Iterator[Any]:
        self._at += 1
        while (mark := self._next()) != "]":
            if mark == ",":
                self._at += 1
            else:
                yield self._value()
        self._at += 1

    def _value(self) -> Any:
        """The value that begins here; it is complete where something follows it, or the document ends."""
        self._next()
        ended = False
        while True:
            try:
                value, end = self._values.raw_decode(self._text, self._at)
            except ValueError:
                if ended or len(self._text) - self._at > LARGEST_VALUE:
                    raise
            else:
                if ended or end < len(self._text):
                    self._at = end
                    return value
            ended = not self._more()

    def _next(self) -> str:
        """The next character that is no blank."""
        while True:
            while self._at < len(self._text) and self._text[self._at].isspace():
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise ValueError("the document ends too early")

    def _more(self) -> bool:
        data = self._file.read(CHUNK)
        self._text, self._at = self._text[self._at :] + self._decode(data, final=not data), 0
        self.read += len(data)
        return bool(data)
