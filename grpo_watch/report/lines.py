"""Lines of styled text for a terminal: column widths, wrapping, alignment of cells."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
"""Parameters of the control sequence SGR (ECMA-48, 8.3.117)."""
WORDS = re.compile(r"\S*\s*")
NARROWEST = 20
"""Least columns left for a hanging indent."""


class Line:
    """Text ``indent`` columns from the left, in pieces with the line's style and their own.

    Continuation lines are indented by ``hang`` more columns.
    """

    __slots__ = ("hang", "indent", "pieces", "style")

    def __init__(self, text: str = "", style: str = "", indent: int = 0, hang: int = 0) -> None:
        self.style, self.indent, self.hang = style, indent, hang
        self.pieces = [(text, style)]

    def append(self, text: str, style: str = "") -> Line:
        """Add a piece; returns the line."""
        self.pieces.append((text, f"{self.style} {style}"))
        return self

    @property
    def plain(self) -> str:
        """The text without styles."""
        return "".join(text for text, _ in self.pieces)

    def wrapped(self, width: int, *, color: bool) -> Iterator[str]:
        """The lines printed at this width: without blanks at their ends, styled only if ``color``."""
        text, room = self.plain, max(width - self.indent, 1)
        hang = self.hang if room - self.hang >= NARROWEST else 0
        for number, (start, end) in enumerate(pairwise((0, *_breaks(text, room, hang), len(text)))):
            shown = "".join(self._between(start, start + len(text[start:end].rstrip()), color=color))
            yield (" " * (self.indent + (hang if number else 0)) + shown).rstrip()

    def _between(self, start: int, end: int, *, color: bool) -> Iterator[str]:
        at = 0
        for text, style in self.pieces:
            part = text[max(start - at, 0) : max(end - at, 0)]
            at += len(text)
            codes = ";".join(STYLES[word] for word in dict.fromkeys(style.split())) if color else ""
            yield f"\x1b[{codes}m{part}\x1b[0m" if part and codes else part


def laid_out(lines: Iterable[Line], width: int, *, color: bool = False) -> str:
    """The lines as text of at most ``width`` columns."""
    return "".join(f"{row}\n" for line in lines for row in line.wrapped(width, color=color))


def aligned(rows: Sequence[Sequence[Line | str]], gap: int = 2, indent: int = 0) -> Iterator[Line]:
    """One line per row, with its cells in columns; the last cell wraps within its column."""
    table = [[cell if isinstance(cell, Line) else Line(cell) for cell in row] for row in rows]
    widths = [max(columns(row[at].plain) for row in table) for at in range(len(table[0]))] if table else []
    for row in table:
        line = Line(indent=indent, hang=sum(widths[:-1]) + gap * (len(widths) - 1))
        for number, (cell, width) in enumerate(zip(row, widths, strict=True), start=1):
            blanks = width - columns(cell.plain) + gap if number < len(row) else 0
            line.pieces += [*cell.pieces, (" " * blanks, "")]
        yield line


def padded(text: str, width: int) -> str:
    """The text padded with blanks to this many columns."""
    return text + " " * (width - columns(text))


def clipped(text: str, width: int) -> str:
    """The text cut to this many columns."""
    return text[: next((at for at, taken in enumerate(accumulate(map(_columns, text))) if taken > width), len(text))]


def columns(text: str) -> int:
    """The columns of a text in a terminal: two for wide characters, none for combining ones."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"F", "W"} else 1


def _breaks(text: str, room: int, hang: int) -> Iterator[int]:
    """Where continuation lines begin: at words, and inside words longer than a line."""
    at = used = 0
    for word in WORDS.findall(text):
        for part in word if columns(word.rstrip()) > room - hang else (word,):
            if used > hang * bool(at) and used + columns(part.rstrip()) > room:
                yield at
                used = hang
            used += columns(part)
            at += len(part)
