"""Finds, in a log of which no row was understood, the first line that looks like one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from grpo_watch.engine.records import RawRow
from grpo_watch.errors import SourceError
from grpo_watch.frameworks.guessing import guess
from grpo_watch.frameworks.row_numbers import flat, number, numbers, place
from grpo_watch.sources.base import Source
from grpo_watch.sources.console.collector_prefixes import Envelope
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.rows.fields import fields_of
from grpo_watch.sources.rows.jsonl import JsonlSource, decode
from grpo_watch.sources.rows.own_lines import LONGEST
from grpo_watch.sources.rows.tables import TABLES, TableSource, cells_of, delimiter_of

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
MOST_ROWS, MOST_SHOWN = 20, 12
HOW_ELSE = "log them under names that docs/frameworks/your-own.md lists"
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


def unnamed_columns(path: Path) -> str:
    """Which columns, keys or pairs of a file hold numbers, and the settings that read them; empty: there are none."""
    names = list(_columns(path))[:MOST_SHOWN]
    shown = f"{path.name} has numbers under {', '.join(names)}, none of them known as a metric: "
    return shown + (proposed(path) or HOW_ELSE) if names else ""


def proposed(path: Path) -> str:
    """The settings with which the rows of a file are read, which was tried; empty where there are none.

    The step is the first column of whole numbers that rise, the reward the first other one that is not constant and not
    known as another metric.
    """
    columns = _columns(path)
    step = next((key for key, values in columns.items() if _rises(values)), None)
    others = (key for key, values in columns.items() if key != step and len(set(values)) > 1 and guess(key) is None)
    reward = next(others, None)
    if reward is None:
        return ""
    named = {"reward_mean": reward} if step is None else {"step": step, "reward_mean": reward}
    if not _reads(path, named):
        return ""
    mapping = json.dumps({"path": str(path), "columns": named})
    return f"if {reward} is the reward, check the file with `runs: [{mapping}]` in grpo-watch.yaml"


def _reads(path: Path, columns: Mapping[str, str]) -> bool:
    """Whether rows are read with these columns."""
    source: Source
    if path.suffix == ".jsonl":
        source = JsonlSource(path.name, path, [path.parent], columns=columns)
    elif path.suffix in TABLES:
        source = TableSource(path.name, path, [path.parent], columns=columns)
    else:
        source = ConsoleSource(path.name, path, [path.parent], columns=columns)
    try:
        return any(isinstance(item, RawRow) for item in source.poll(0.0))
    finally:
        source.close()


def _columns(path: Path) -> Mapping[str, Sequence[float]]:
    """The numbers of a file by name, of names that all of its first rows have; none where these are few."""
    with suppress(OSError, SourceError):
        descriptor = open_regular(path, [path.parent])
        try:
            lines = [line for line in os.pread(descriptor, HEAD, 0).split(b"\n")[:-1] if line.strip()]
        finally:
            os.close(descriptor)
        rows = list(islice(_named_numbers(path, lines), MOST_ROWS))
        whole = [key for key in rows[0] if all(key in row for row in rows)] if len(rows) >= FEW else []
        return {key: [row[key] for row in rows] for key in whole} if len(whole) >= FEW else {}
    return {}


def _named_numbers(path: Path, lines: Sequence[bytes]) -> Iterator[Mapping[str, float]]:
    """The numbers by name of each line: of a table below its header, of JSON, of pairs."""
    header = lines[0].decode("utf-8-sig", "replace") if lines else ""
    names = [cell.strip() for cell in cells_of(header, delimiter_of(header))] if path.suffix in TABLES else []
    envelope = Envelope()
    for line in lines[1:] if names else lines:
        text = line.decode("utf-8", "replace")
        found: Mapping[str, float | None] = {}
        if names:
            found = {key: number(cell) for key, cell in zip(names, cells_of(text, delimiter_of(header)), strict=False)}
        elif (row := decode(line)) is not None:
            found = numbers(flat(row))
        elif len(line) <= LONGEST:
            pieces = (piece.decode("utf-8", "replace") for piece in envelope.take(line))
            found = {one.name: one.value for piece in pieces for one in fields_of(piece)}
        if len(found) >= FEW:
            yield {key: value for key, value in found.items() if value is not None}


def _rises(values: Sequence[float]) -> bool:
    return all(value % 1 == 0 for value in values) and list(values) == sorted(set(values))


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
    for at, found in _rows(text):
        names = tuple(name for name, _ in found[:SHOWN])
        if names in first:
            return first[names]
        if len(first) < KEPT:
            first[names] = _shown(at, found)
    return ""


def _rows(text: str) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Line number (from 1) and numbers by name of each line that looks like a row."""
    for at, line in enumerate(text.splitlines(), 1):
        for notation in (NAMED, CELL):
            found = notation.findall(line[:4096])
            if len(found) > 1 and any(OF_TRAINING.search(name) for name, _ in found):
                yield at, found
                break


def _shown(number: int, found: Sequence[tuple[str, str]]) -> str:
    return f"line {number}: " + ", ".join(f"{name}={value}" for name, value in found[:SHOWN])
