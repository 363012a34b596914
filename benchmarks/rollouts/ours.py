"""Reads one dump with our sources, as ``check`` does, and prints what the other scripts print."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from grpo_watch.engine.records import CompletionSummary, Item
from grpo_watch.sources.completions.jsonl_source import CompletionsJsonlSource
from grpo_watch.sources.completions.parquet import CompletionsParquetSource

GROUP = 8


def items(path: Path) -> Iterator[Item]:
    """Everything that the source of this kind of dump gives."""
    kind = CompletionsParquetSource if path.is_dir() else CompletionsJsonlSource
    source = kind("dump", path, [path.parent], lambda: GROUP)
    yield from source.poll(None)
    yield from source.finish()
    source.close()


def main() -> None:
    """Print rows, groups, repeated, empty, characters, and of the judged sample the looping ones and its size."""
    path = Path(sys.argv[1])
    print(*totals(items(path)))


def totals(given: Iterator[Item]) -> list[int]:
    """The same, of these items."""
    totals = [0] * 7
    for item in given:
        for group in item.groups if isinstance(item, CompletionSummary) else ():
            totals[0] += group.size
            totals[1] += 1
            totals[2] += group.size - group.unique
            totals[3] += group.empty
            totals[4] += sum(group.lengths)
            totals[5] += group.looping
            totals[6] += group.judged or 0
    return totals


if __name__ == "__main__":
    main()
