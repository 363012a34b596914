"""Turns SkyRL's ``Step 7:`` and the dictionary that follows it over many lines into a row."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_watch import lazy_re as re
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.line_reader import LineReader, MetricLine
from grpo_watch.frameworks.python_literal import dictionaries

HEAD = re.compile(rb"\bStep (\d{1,9}): ?$")
FIRST = re.compile(rb"\{'[a-z_]{1,40}/")
LONGEST = 256 << 10
"""Most bytes of a dictionary; some hundred keys take 20 KB."""


class SkyRlLines(LineReader):
    """Holds the dictionary's lines until its closing brace; numbers are printed as texts."""

    framework = "skyrl"
    marks: Sequence[bytes] = (b"Step ",)

    def __init__(self) -> None:
        self._step: int | None = None
        self._text = b""

    @property
    def held(self) -> bool:
        """Whether a dictionary is open."""
        return self._step is not None

    def read_line(self, line: bytes) -> Sequence[MetricLine]:
        """The row that this line completes."""
        if (head := HEAD.search(line)) is not None:
            self._step, self._text = int(head[1]), b""
            return ()
        if self._step is None:
            return ()
        if not self._text and FIRST.match(line) is None:
            self.flush()  # another title
            return ()
        self._text += line + b"\n"
        if len(self._text) > LONGEST:
            self.flush()
        return self._closed() if line.rstrip().endswith(b"}") else ()

    def _closed(self) -> Sequence[MetricLine]:
        found = next(dictionaries(self._text), None)
        if found is None or found.row is None or self._step is None:
            return ()
        step = self._step
        self.flush()
        values = row_numbers.numbers(found.row)
        return (MetricLine(step, values),) if values else ()

    def flush(self) -> Sequence[MetricLine]:
        """Drop an open dictionary."""
        self._step, self._text = None, b""
        return ()


READER = SkyRlLines
