"""Looks at both ends of a file for rows that single lines don't give away: few metrics, single numbers, documents."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from grpo_watch.frameworks.guessing import guess
from grpo_watch.frameworks.row_numbers import flat, place, stream
from grpo_watch.sources.files.decompress import SUFFIXES, plain
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.rows.document import LARGEST_TEXT, holds_rows, whole_text
from grpo_watch.sources.rows.layouts import single_number

WINDOW = 256 * 1024
FARTHEST = 64 * WINDOW
"""Bytes behind which no more is looked for where a file begins with lines that are longer than the window."""
FEWEST = 4
"""Lines with rising steps; of single completions several lines have one step."""

MAY_HOLD_ROWS = re.compile(rb"reward|\breturn|score|entropy", re.IGNORECASE)


def ends_of(path: Path, roots: Sequence[Path]) -> tuple[bytes, bytes]:
    """The beginning and the end, without what hides the rows at the beginning.

    That is the hole that a writer leaves which continues after a truncation (where it is longer than the window, the
    end stands for the beginning too), and lines that are longer than the window and have others behind them.
    """
    opened = descriptor = open_regular(path, roots)
    try:
        descriptor = plain(opened, FARTHEST)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            file.seek(0)
            head = file.read(WINDOW)
            size = os.fstat(descriptor).st_size
            tail = os.pread(descriptor, WINDOW, max(WINDOW, size - WINDOW)) if size > WINDOW else b""
            if tail and b"\n" not in head:
                file.seek(0)
                while len(line := file.readline(FARTHEST)) > WINDOW and line.endswith(b"\n") and file.tell() < FARTHEST:
                    pass
                head = line + file.read(WINDOW) if 0 < len(line) <= WINDOW else head
        return head.lstrip(b"\0") or tail.lstrip(b"\0"), tail
    finally:
        for each in {opened, descriptor}:
            os.close(each)


def rewards_by_step(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether enough rows name a step and a reward (by its words), and every step is higher than the one before."""
    rewarded = [row for row in rows if any(guess(key) == "reward_mean" for key in flat(row))]
    steps = [step for row in rewarded if (step := place(row).step) is not None]
    return len(steps) >= FEWEST and all(earlier < later for earlier, later in pairwise(steps))


def in_pieces(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the rows of a step stand on several lines: one number by name on each, or some of its metrics."""
    singles = [single_number(row) for row in rows[:3]]
    if len(singles) > 1 and all(one is not None and any(map(guess, one)) for one in singles):
        return True
    pairs = [(one, two) for one, two in pairwise(map(flat, rows)) if place(one).step == place(two).step]
    metrics = [({key for key in one if guess(key)}, {key for key in two if guess(key)}) for one, two in pairs]
    if len(pairs) < FEWEST - 2 or any(not (one and two) or one & two for one, two in metrics):
        return False
    return all(stream(row) is None and place(row).step is not None for pair in pairs for row in pair)


def holds_document(path: Path, roots: Sequence[Path], head: bytes) -> bool:
    """Whether a text has rows that show only where all of it is decoded: YAML, a chart, arrays, single numbers."""
    if not MAY_HOLD_ROWS.search(head):
        return False
    text = whole_text(path, roots, LARGEST_TEXT)
    return text is not None and holds_rows(text, unpacked_name(path))


def unpacked_name(path: Path) -> str:
    """The name of a log without the ending of its compression, unless it is a rotated part of another log."""
    bare = path.name.removesuffix(path.suffix) if path.suffix in SUFFIXES else path.name
    rotated = bare != path.name and (bare[-1:].isdigit() or path.with_name(bare).exists())
    return path.name if rotated else bare
