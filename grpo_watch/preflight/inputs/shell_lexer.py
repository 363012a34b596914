"""Splits a shell script into words and operators with their lines; expands and runs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from grpo_watch import lazy_re as re

PLAIN = re.compile(r"[^\s;|&()<>'\"$`\\]+")
NAME = re.compile(r"\$(?:[A-Za-z_]\w*|[@*#?0-9$!])")
HEREDOC = re.compile(r"<<(?P<strip>-?)\s*(?P<quote>['\"]?)(?P<end>[\w.-]+)(?P=quote)")
OPERATOR = re.compile(r"&&|\|\||;;|;|\||&(?!>)|\(|\)|\n")
REDIRECT = re.compile(r"\d*(?:&>>?|>>|>\||>&|<&|<<<|>|<)(?P<to>&?[\d-]+(?=[\s;|&)]|$))?")
BLANKS = re.compile(r"(?:[ \t\r]|\\\n|(?<![^\s;|&()])#[^\n]*)*")
STOPS = " \t\r\n;|&()<>"
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<append>\+?)=")


class Word(NamedTuple):
    """One word as written; ``items`` are the words of an array ``NAME=(…)``."""

    source: str
    line: int
    items: tuple[Word, ...] | None = None


def piece_end(text: str, at: int) -> int:
    """The end of the piece of a word at ``at``: a quotation, an expansion, an escape, or plain characters."""
    char = text[at]
    if char == "\\":
        end = at + 2
    elif char in "'`" or text.startswith("$'", at):
        quote = "`" if char == "`" else "'"
        end = text.find(quote, at + 1 + (char == "$")) + 1 or len(text)
    elif char == '"':
        end = at + 1
        while end < len(text) and text[end] != '"':
            end = piece_end(text, end) if text[end] in "\\$`" else end + 1
        end += 1
    elif text.startswith(("$(", "${"), at):
        opening, depth, end = text[at + 1], 0, at + 1
        closing = ")" if opening == "(" else "}"
        for end in range(at + 1, len(text)):
            depth += (text[end] == opening) - (text[end] == closing)
            if depth == 0:
                break
        end += 1
    else:
        found = NAME.match(text, at) if char == "$" else PLAIN.match(text, at)
        end = found.end() if found else at + 1
    return min(end, len(text))


class Lexer:
    """Splits a text into words and operators; unclosed quotes and brackets are closed at its end."""

    def __init__(self, text: str, line: int = 1) -> None:
        self._text, self._at, self._line = text.replace("\r\n", "\n"), 0, line
        self._heredocs: list[tuple[str, bool]] = []

    def tokens(self) -> Iterator[Word | str]:
        """All words and operators."""
        while self._skip_blanks():
            if (operator := OPERATOR.match(self._text, self._at)) is not None:
                self._go(operator.end())
                yield operator[0]
                if operator[0] == "\n":
                    self._skip_heredocs()
            elif not self._redirection():
                yield self._word()

    def _go(self, end: int) -> str:
        """Advance to ``end``; returns the text up to there."""
        passed, self._at = self._text[self._at : end], end
        self._line += passed.count("\n")
        return passed

    def _skip_blanks(self) -> bool:
        """Skip blanks, continued lines and comments; returns False at the end."""
        found = BLANKS.match(self._text, self._at)
        self._go(found.end() if found else self._at)
        return self._at < len(self._text)

    def _redirection(self) -> bool:
        text = self._text
        if (heredoc := HEREDOC.match(text, self._at)) and not text.startswith("<<<", self._at):
            self._heredocs.append((heredoc["end"], bool(heredoc["strip"])))
            self._go(heredoc.end())
            return True
        found = REDIRECT.match(text, self._at)
        if found is None:
            return False
        self._go(found.end())
        if found["to"] is None and self._skip_blanks() and text[self._at] not in STOPS:
            self._word()
        return True

    def _skip_heredocs(self) -> None:
        for end, strip in self._heredocs:
            line = ""
            while self._at < len(self._text) and (line.lstrip("\t") if strip else line) != end:
                line = self._go(self._text.find("\n", self._at) + 1 or len(self._text)).removesuffix("\n")
        self._heredocs.clear()

    def _word(self) -> Word:
        start, line = self._at, self._line
        while self._at < len(self._text) and self._text[self._at] not in STOPS:
            self._go(piece_end(self._text, self._at))
        source = self._text[start : self._at]
        if self._text.startswith("(", self._at) and ASSIGNMENT.fullmatch(source):
            return Word(source, line, self._items())
        return Word(source or self._go(start + 1), line)  # a lone character that starts no word

    def _items(self) -> tuple[Word, ...]:
        self._go(self._at + 1)
        items: list[Word] = []
        while self._skip_blanks():
            if self._text[self._at] in "\n)":
                if self._go(self._at + 1) == ")":
                    break
            else:
                items.append(self._word())
        return tuple(items)
