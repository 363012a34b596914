"""What a careful pandas script does: rows, groups, repeated and empty completions, characters; loops when asked for."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

GROUP = 8
LINES = 16
"""Steps of a JSON-lines file read at once."""


def tables(path: Path) -> Iterator[pd.DataFrame]:
    """Frames with one row per completion."""
    if path.is_dir():
        for file in sorted(path.glob("*.parquet")):
            yield pd.read_parquet(file, columns=["prompt", "completion"])
    else:
        for chunk in pd.read_json(path, lines=True, chunksize=LINES):
            columns = chunk[["step", "prompt", "completion"]]
            yield columns.explode(["step", "prompt", "completion"], ignore_index=True)


def loops(text: str) -> bool:
    """Whether the end of a text compresses to 15 % or less."""
    data = text[-1000:].encode()
    return len(data) >= 256 and len(zlib.compress(data, 1)) <= 0.15 * len(data)


def main() -> None:
    """Print rows, groups, repeated, empty, characters, and the looping ones with ``--loops``."""
    totals = [0] * 6
    for frame in tables(Path(sys.argv[1])):
        group = frame.index // GROUP
        unique = frame["completion"].groupby(group).nunique()
        totals[0] += len(frame)
        totals[1] += len(unique)
        totals[2] += len(frame) - int(unique.sum())
        totals[3] += int((frame["completion"].str.strip() == "").sum())
        totals[4] += int(frame["completion"].str.len().sum())
        if "--loops" in sys.argv:
            totals[5] += int(frame["completion"].map(loops).sum())
    print(*totals)


if __name__ == "__main__":
    main()
