"""Turns the lines of a metrics table (CSV, or a notebook's) into cells, keys and the values of a row."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.framework_tables import bases_last
from grpo_watch.frameworks.guessing import guess
from grpo_watch.frameworks.row_numbers import number

NAMES: Mapping[str, str] = {"Step": "step", "Training Loss": "loss", "Validation Loss": "eval_loss", "Epoch": "epoch"}
"""Headers of transformers' notebook table and the keys that its logs call them."""
STEP_NAMES = (
    "step",
    "global_step",
    "training_step",
    "training_iteration",
    "train_step",
    "optimizer_step",
    "steps",
    "iteration",
    "iter",
    "update",
)
STEP_ENDINGS = ("/global_step", "/step", "/iteration", "_step/value")
"""wandb's ``_step`` counts calls of its logger, and comes after them."""
COARSE_STEPS = ("epoch_step", "episode", "rollout", "round", "batch", "batch_idx", "idx", "index", "i")
"""What counts rows where nothing counts steps."""
UNIT = re.compile(r"\s{0,3}[(\[](?:tokens?|tok|s|secs?|seconds|ms|min|h|nats|bits|GB|GiB|MB|MiB)[)\]]$", re.IGNORECASE)
NOTHING = frozenset({"", "No log", "-"})
MAX_COLUMNS = 4_096
DECIMALS = re.compile(r"-?\d{1,20}\.(\d{1,12})")
LEAST_ROUNDED = 3
"""This many numbers with the same count of decimals, and none with an exponent, make a rounded row."""
MOST_ROUNDED = 8
"""More decimals than these are a float printed in full."""


class TableRow(NamedTuple):
    """The numbers of a row by key, its step, and the smallest non-zero number it can show (None: exact)."""

    step: int | None
    values: dict[str, float | None]
    resolution: float | None


def keys_of(header: Sequence[str], columns: Mapping[str, str]) -> tuple[str, ...]:
    """The key of each column: the user's name for it, transformers' for its headers, else the header's own.

    ``columns`` maps what a user calls a column's meaning to the column (``{"reward_mean": "avg_r"}``). A notebook
    writes ``rewards / check / mean`` where logs say ``rewards/check/mean``; a unit in brackets is no part of a key.
    """
    own = {column: name for name, column in columns.items()}
    bare = (cell.strip() for cell in header[:MAX_COLUMNS])
    keys = [own.get(cell) or NAMES.get(cell) or UNIT.sub("", cell).replace(" / ", "/") for cell in bare]
    step = step_key(dict.fromkeys(keys))
    return tuple("step" if key == step else key for key in keys)


def step_key(keys: Iterable[str]) -> str | None:
    """The key that holds a row's step: a usual name, else the most similar one; None where there is none."""
    names = list(keys)
    plain = next((name for name in row_numbers.STEPS if name in names), None)
    if plain is not None:
        return plain
    spelled = {name.strip().lower().replace(" ", "_"): name for name in reversed(names)}
    exact = next((spelled[name] for name in STEP_NAMES if name in spelled), None)
    ending = (name for ending in STEP_ENDINGS for name in names if name.lower().endswith(ending))
    last = (spelled[name] for name in COARSE_STEPS if name in spelled)
    return exact or next(ending, None) or spelled.get("_step") or next(last, None)


VALUE = "value"
EXPORTED = ("wall time", "step", "value")
"""The header of TensorBoard's CSV export, which holds one metric."""
TAG = re.compile(r"(?:.*tag[-_])?(?P<tag>.+)", re.DOTALL)


def named_columns(header: Sequence[str], stem: str) -> list[str]:
    """The header with the one metric of an export named: its file's name ends with the tag.

    A first column without a name is pandas' index.
    """
    cells = [cell.strip() for cell in header]
    spelled = [cell.lower() for cell in cells]
    alone = VALUE in spelled and len(cells) <= len(EXPORTED) and step_key(spelled) is not None
    if alone and (tag := TAG.fullmatch(stem)) is not None and (guess(tag["tag"]) or tuple(spelled) == EXPORTED):
        return [tag["tag"] if cell == VALUE else name for cell, name in zip(spelled, cells, strict=True)]
    return ["index", *cells[1:]] if cells[:1] == [""] and len(cells) > 1 else cells


def table_owner(header: Sequence[str]) -> str | None:
    """The framework whose notebooks alone have such a table."""
    names = {cell.strip() for cell in header}
    if "Training Loss" not in names:
        return None
    return next((table.name for table in bases_last() if names & table.traces.notebook), None)


def row_of(keys: Sequence[str], cells: Sequence[str]) -> TableRow:
    """The row of these cells; an empty cell is a metric that was not logged, text is left out."""
    shown = {key: cell.strip() for key, cell in zip(keys, cells, strict=False) if cell.strip() not in NOTHING}
    return TableRow(
        row_numbers.place(_whole(shown)).step, row_numbers.numbers(dict(shown)), _resolution(shown.values())
    )


def _whole(shown: Mapping[str, str]) -> dict[str, str]:
    """Steps that pandas wrote as ``12.0`` are whole numbers."""
    return {key: cell[:-2] if key in row_numbers.STEPS and cell.endswith(".0") else cell for key, cell in shown.items()}


def _resolution(cells: Iterable[str]) -> float | None:
    """One unit of the last decimal where all numbers have the same few decimals, as tables print them."""
    decimals: list[int] = []
    for cell in cells:
        if (found := DECIMALS.fullmatch(cell)) is not None:
            decimals.append(len(found[1]))
        elif "e" in cell.lower() and row_numbers.number(cell) is not None:
            return None
    if len(decimals) < LEAST_ROUNDED or len(set(decimals)) > 1 or decimals[0] > MOST_ROUNDED:
        return None
    return float(f"1e-{decimals[0]}")


REMARK = "#"
DELIMITERS = (",", "\t", ";", "|")
FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x2212: ord("-")}
"""Full-width letters, digits and punctuation, as Chinese and Japanese keyboards write them, and the sign of minus."""
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d{1,3})?")
POINT = re.compile(r"\d\.\d")


def table_lines(text: str) -> list[str]:
    """The lines of a table from its header on: remarks before it are left out, unless the last is the header."""
    lines = [line for line in text.removeprefix("\ufeff").splitlines() if line.strip()]
    begin = next((place for place, line in enumerate(lines) if not line.startswith(REMARK)), len(lines))
    if begin and begin < len(lines) and is_header(lines[begin - 1], lines[begin]):
        return [lines[begin - 1].lstrip("# "), *lines[begin:]]
    return lines[begin:]


def is_header(remark: str, line: str) -> bool:
    """Whether a remark names the columns of the line behind it, which holds nothing but numbers."""
    cells = cells_of(line, delimiter_of(line))
    named = len(cells_of(remark, delimiter_of(line))) == len(cells)
    return named and all(number(cell) is not None for cell in cells)


def delimiter_of(header: str) -> str:
    """What parts the header's cells: the one of comma, tab, semicolon and bar that is in it most."""
    return max(DELIMITERS, key=header.translate(FULL_WIDTH).count)


def cells_of(text: str, delimiter: str) -> list[str]:
    """The cells of one line; none for a line that is no CSV. ``1,234.5`` in a cell becomes ``1234.5``.

    Where commas part no cells and no number of the line has a point, they are those of decimals.
    """
    plain = text.translate(FULL_WIDTH) if not text.isascii() else text
    try:
        cells = next(csv.reader([plain.strip(" |") if delimiter == "|" else plain], delimiter=delimiter), [])
    except csv.Error:
        return []
    decimals = delimiter != "," and "," in plain and not POINT.search(plain)
    if decimals and (delimiter == ";" or any(_is_decimal(cell.strip()) for cell in cells)):
        return [cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell.strip()) else cell for cell in cells]
    return [cell.replace(",", "") if THOUSANDS.fullmatch(cell.strip()) else cell for cell in cells]


def _is_decimal(cell: str) -> bool:
    """Whether the comma in a cell can only be that of decimals."""
    return DECIMAL_COMMA.fullmatch(cell) is not None and THOUSANDS.fullmatch(cell) is None
