"""A careful pandas script: rows, groups, repeated and empty completions, characters; with ``--same`` all that we do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.rollouts.plain import SAMPLED, STEP, judge

GROUP = 8
LINES = 16
"""Steps of a JSON-lines file read at once."""
OPENING = 64


def tables(path: Path, columns: list[str]) -> Iterator[pd.DataFrame]:
    """Frames with one row per completion, whole steps."""
    if path.is_dir():
        for file in sorted(path.glob("*.parquet")):
            yield pd.read_parquet(file, columns=columns or None)
    else:
        for chunk in pd.read_json(path, lines=True, chunksize=LINES):
            kept = chunk[columns] if columns else chunk
            yield kept.explode(list(kept.columns), ignore_index=True)


def main() -> None:
    """Print rows, groups, repeated, empty, characters, and with ``--same`` looping ones and near copies."""
    same = "--same" in sys.argv
    totals = [0] * 7
    for frame in tables(Path(sys.argv[1]), [] if same else ["completion"]):
        group = frame.index // GROUP
        unique = frame["completion"].groupby(group).nunique()
        totals[0] += len(frame)
        totals[1] += len(unique)
        totals[2] += len(frame) - int(unique.sum())
        totals[3] += int((frame["completion"].str.strip() == "").sum())
        totals[4] += int(frame["completion"].str.len().sum())
        if same:
            looping, alike = the_rest(frame)
            totals[5] += looping
            totals[6] += alike
    print(*totals)


def the_rest(frame: pd.DataFrame) -> tuple[int, int]:
    """What we keep besides: lengths, hashes, openings, prompts, scores of each group; the judgement of a sample."""
    text = frame["completion"]
    kept = {
        "length": text.str.len(),
        "hash": pd.util.hash_array(text.to_numpy(object), categorize=False),
        "opening": pd.util.hash_array(text.str.slice(stop=OPENING).to_numpy(object), categorize=False),
        "prompt": pd.util.hash_array(frame["prompt"].to_numpy(object)),
    }
    for name in frame.columns.difference(["step", "prompt", "completion"]):
        kept[name] = pd.to_numeric(frame[name], errors="coerce")
    groups = {name: np.asarray(column).reshape(-1, GROUP).tolist() for name, column in kept.items()}
    if len({len(column) for column in groups.values()}) != 1:
        raise SystemExit("the columns differ in length")
    sampled = (at for step in range(0, len(frame), STEP) for at in range(step, step + SAMPLED, GROUP))
    judged = [judge(text.iloc[at : at + GROUP].tolist()) for at in sampled]
    return sum(each[0] for each in judged), sum(each[1] for each in judged)


if __name__ == "__main__":
    main()
