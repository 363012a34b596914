"""Splits the lines of a table into cells and spells their numbers as Python does."""

from __future__ import annotations

import csv
import re

from grpo_watch.frameworks.row_numbers import number

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
