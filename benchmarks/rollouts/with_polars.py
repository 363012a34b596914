"""A careful polars script: rows, groups, repeated and empty completions, characters; with ``--same`` all that we do."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

from benchmarks.rollouts.plain import SAMPLED, STEP, judge

GROUP = 8
OPENING = 64
SCORES = {True: ("accuracy_reward", "advantage"), False: ("Accuracy", "advantages")}
"""Columns of scores in Parquet files and in JSON lines."""


def completions(path: Path, columns: list[str]) -> pl.LazyFrame:
    """One row per completion, lazily."""
    if path.is_dir():
        return pl.scan_parquet(path / "*.parquet").select(columns)
    return pl.scan_ndjson(path).select(columns).explode(columns)


def main() -> None:
    """Print rows, groups, repeated, empty, characters, and with ``--same`` looping ones and near copies."""
    path, same = Path(sys.argv[1]), "--same" in sys.argv
    text, scores = pl.col("completion"), SCORES[path.is_dir()]
    groups = (
        completions(path, ["completion", "prompt", *scores] if same else ["completion"])
        .with_row_index("row")
        .group_by(pl.col("row") // GROUP)
        .agg(
            pl.len().alias("rows"),
            text.n_unique().alias("unique"),
            (text.str.strip_chars() == "").sum().alias("empty"),
            text.str.len_chars().sum().alias("characters"),
            *(the_rest(scores) if same else ()),
        )
    )
    if not same:
        columns = [pl.col("rows").sum(), pl.len().alias("groups"), pl.col("unique", "empty", "characters").sum()]
        rows, count, unique, empty, characters = groups.select(columns).collect(engine="streaming").row(0)
        print(rows, count, rows - unique, empty, characters, 0, 0)
        return
    table = groups.collect(engine="streaming")
    judged = [judge(texts) for texts in table["sample"].to_list() if texts]
    rows, unique, empty, characters = (table[name].sum() for name in ("rows", "unique", "empty", "characters"))
    looping, alike = (sum(each[at] for each in judged) for at in (0, 1))
    print(rows, len(table), rows - unique, empty, characters, looping, alike)


def the_rest(scores: tuple[str, ...]) -> list[pl.Expr]:
    """What we keep besides: lengths, patterns, openings, prompts, scores, hashes of all; the texts of a sample."""
    text = pl.col("completion")
    return [
        text.str.len_chars().alias("lengths"),
        text.hash().alias("hashes"),
        pl.col("prompt").hash().n_unique().alias("prompts"),
        text.str.slice(0, OPENING).n_unique().alias("openings"),
        *(pl.col(name).alias(f"scores {name}") for name in scores),
        text.filter(pl.col("row") % STEP < SAMPLED).alias("sample"),
    ]


if __name__ == "__main__":
    main()
