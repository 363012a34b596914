"""Splits the lines of a table into cells and spells their numbers as Python does."""

from __future__ import annotations

import csv
import re

DELIMITERS = (",", "\t", ";", "|")
FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
"""Full-width letters, digits and punctuation, as Chinese and Japanese keyboards write them."""
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")


def delimiter_of(header: str) -> str:
    """What parts the header's cells: the one of comma, tab, semicolon and bar that is in it most."""
    return max(DELIMITERS, key=header.translate(FULL_WIDTH).count)


def cells_of(text: str, delimiter: str) -> list[str]:
    """The cells of one line; none for a line that is no CSV. ``1,234.5`` in a cell becomes ``1234.5``."""
    plain = text.translate(FULL_WIDTH) if not text.isascii() else text
    try:
        cells = next(csv.reader([plain.strip(" |") if delimiter == "|" else plain], delimiter=delimiter), [])
    except csv.Error:
        return []
    return [cell.replace(",", "") if THOUSANDS.fullmatch(cell.strip()) else cell for cell in cells]
