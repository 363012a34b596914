"""OpenRLHF's line ``✨ Global step 7: {…}``, printed every step with full precision, and its command line.

There is no configuration file, so nothing but the command line shows how a job was set up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.line_reader import ConsoleMark, MarkKind, MetricLine
from grpo_watch.frameworks.python_literal import dictionaries

LINE = re.compile(rb"Global step (\d{1,9}): (?=\{')")
"""Copies into issues lose the emoji, so it is not asked for."""


class OpenRlhfLines:
    """The dictionary holds numbers only, in random order."""

    framework = "openrlhf"
    marks: Sequence[bytes] = (b"Global step ",)
    held = False

    def feed(self, line: bytes) -> Sequence[MetricLine]:
        """The row of one line."""
        if (begin := LINE.search(line)) is None:
            return ()
        found = next(dictionaries(line[begin.end() :]), None)
        if found is None or found.start or not found.row:
            return ()
        values = row_numbers.numbers(found.row)
        return (MetricLine(int(begin[1]), values),) if values else ()

    def flush(self) -> Sequence[MetricLine]:
        """Nothing is held."""
        return ()


READER = OpenRlhfLines


MARKS = (
    ConsoleMark(
        "openrlhf",
        MarkKind.COMMAND,
        re.compile(rb"\bopenrlhf\.cli\.train_ppo(?:_ray)?(?=\s)"),
        sign=rb"openrlhf\.cli\.train_ppo",
    ),
)
