"""Chooses the rows of long columns that a chart needs, so that no spike is lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def thinned_rows(columns: Sequence[Floats], most: int) -> Integers:
    """Indices, ascending, of at most about ``most`` rows that keep every spike of the columns.

    The rows are cut into equal stretches, and of each the lowest and the highest value of every column stay, also the
    first and the last row of all. NaN means no value. All columns have one length.
    """
    length = len(columns[0]) if columns else 0
    if length <= most:
        return np.arange(length)
    stretches = max(1, (most - 2) // (2 * len(columns)))
    width = -(-length // stretches)
    kept = {0, length - 1}
    for column in columns:
        padded = np.pad(column, (0, -length % width), constant_values=np.nan).reshape(-1, width)
        filled = ~np.isnan(padded).all(axis=1)
        begin = np.flatnonzero(filled) * width
        kept.update((begin + np.nanargmin(padded[filled], axis=1)).tolist())
        kept.update((begin + np.nanargmax(padded[filled], axis=1)).tolist())
    return np.array(sorted(kept), dtype=np.int64)
