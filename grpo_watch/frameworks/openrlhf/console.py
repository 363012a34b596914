"""Turns OpenRLHF's line ``✨ Global step 7: {…}``, printed every step with full precision, into a row."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.line_reader import LineReader, MetricLine
from grpo_watch.frameworks.python_literal import dictionaries

LINE = re.compile(rb"Global step (\d{1,9}): (?=\{')")
"""Copies into issues lose the emoji, so it is not asked for."""


class OpenRlhfLines(LineReader):
    """The dictionary holds numbers only, in random order."""

    framework = "openrlhf"
    marks: Sequence[bytes] = (b"Global step ",)

    def feed(self, line: bytes) -> Sequence[MetricLine]:
        """The row of one line."""
        if (begin := LINE.search(line)) is None:
            return ()
        found = next(dictionaries(line[begin.end() :]), None)
        if found is None or found.start or not found.row:
            return ()
        values = row_numbers.numbers(found.row)
        return (MetricLine(int(begin[1]), values),) if values else ()


READER = OpenRlhfLines
