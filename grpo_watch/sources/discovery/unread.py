"""Finds, in a log of which no row was understood, the first line that looks like one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from grpo_watch.errors import SourceError
from grpo_watch.frameworks.row_numbers import place
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.rows.jsonl import decode

LOOKED_AT = 4 << 20
"""Bytes of the beginning that are looked at: downloads and loading may fill the first megabyte."""
NAMED = re.compile(
    r"([A-Za-z_][\w./@-]{0,60})['\"]?\s{0,3}[=:]\s{0,3}['\"]?(-?(?:\d[\d.]{0,30}(?:e[-+]?\d{1,3})?|nan|inf)\b)"
)
"""A number by name, as every trainer's own notation has it: ``loss=0.1``, ``"loss": 0.1``, ``kl_div: 1e-3``."""
CELL = re.compile(
    r"[|│┃]\s{0,20}([A-Za-z_][\w./@-]{0,60})[\s:=]{1,20}(-?(?:\d[\d.]{0,30}(?:e[-+]?\d{1,3})?|nan|inf))\s{0,20}(?=[|│┃]|$)"
)
"""A name and its number between the rules of a table: ``| kl 0.0 |``."""
OF_TRAINING = re.compile(
    r"loss|reward|return|score|(?:^|[_/])kl|grad|entropy|learning_rate|(?:^|[_/])lr", re.IGNORECASE
)
SHOWN = 4
HEAD, FEW = 65_536, 3
"""Bytes and lines of the beginning that show what a file of JSON lines holds."""
KEPT = 100
"""Lines with different names that are remembered while one is looked for that comes again."""


def looks_like_a_row(path: Path, roots: Sequence[Path]) -> str:
    """Line number and numbers by name of the first line with two of them, one of training; empty where there is none.

    Only names and numbers are shown: the rest of the line may be a prompt or a completion.
    """
    with suppress(OSError, SourceError):
        descriptor = open_regular(path, roots)
        try:
            text = os.pread(descriptor, LOOKED_AT, 0).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
        return next((_shown(number, found) for number, found in _rows(text)), "")
    return ""


def scores_without_steps(path: Path) -> bool:
    """Whether a JSON-lines file begins with rows that have a reward and no step: one row for each completion."""
    with suppress(OSError, SourceError):
        descriptor = open_regular(path, [path.parent])
        try:
            lines = os.pread(descriptor, HEAD, 0).split(b"\n")[:FEW]
        finally:
            os.close(descriptor)
        rows = [decode(line) for line in lines if line]
        return bool(rows) and all(row is not None and "reward" in row and place(row).step is None for row in rows)
    return False


def repeated_row(text: str) -> str:
    """The same of a text, for the first such line whose names a later one has too: a print of settings comes once."""
    first: dict[tuple[str, ...], str] = {}
    for number, found in _rows(text):
        names = tuple(name for name, _ in found[:SHOWN])
        if names in first:
            return first[names]
        if len(first) < KEPT:
            first[names] = _shown(number, found)
    return ""


def _rows(text: str) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Line number (from 1) and numbers by name of each line that looks like a row."""
    for number, line in enumerate(text.splitlines(), 1):
        for notation in (NAMED, CELL):
            found = notation.findall(line[:4096])
            if len(found) > 1 and any(OF_TRAINING.search(name) for name, _ in found):
                yield number, found
                break


def _shown(number: int, found: Sequence[tuple[str, str]]) -> str:
    return f"line {number}: " + ", ".join(f"{name}={value}" for name, value in found[:SHOWN])
