"""Summarises Parquet dumps of completions, one file per generation batch; pyarrow is imported only here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from grpo_watch.engine.metric_names import MAX_FUNCTIONS
from grpo_watch.engine.records import Item, Stream
from grpo_watch.extras import without_parquet
from grpo_watch.frameworks.dump_formats import parquet_dump
from grpo_watch.sources.base import KeptTexts, Skip
from grpo_watch.sources.completions.completion_folder import (
    BadDumpError,
    CompletionFolder,
    DumpReader,
)
from grpo_watch.sources.completions.summarise import Grouping, group
from grpo_watch.sources.completions.text_reduction import CollectedRows

MAX_BYTES = 2_000_000_000
"""Most bytes of a dump, uncompressed."""
BATCH, DECODED = 64, 32_000_000
"""Rows decoded at once, and most bytes that they may take. A repeated value is stored once, but each row may be as
large as its row group, which bounds the rows."""
MAX_ROWS = 65_536
"""Most completions of one dump. A repeated value takes no bytes in a file, so its size alone bounds nothing."""
ADVANTAGES = frozenset({"advantage", "advantages"})
TEXT_COLUMNS = ("prompt", "completion")
MAX_BATCH = 64_000_000
"""Most bytes of decoded rows that become texts: only a single row, or one with long lists, can exceed it."""
PACKED = 100
"""A column above ``MAX_BATCH`` is decoded only if it is packed at most this many times, as for other packed files: a
single value of 500 MB fits into 17 KB and takes nine times its size before it is known."""


def read_dump(file: BinaryIO, group_size: int | None, examples: KeptTexts) -> Grouping:
    """Summarise a TRL dump (0.28 to 1.16: columns ``step``, ``prompt``, ``completion``, one per reward, ``advantage``).

    Every float column is a reward function, or the advantages; others (``log_extra``) are skipped.

    Raises:
        BadDumpError: it can't be parsed (half-written, or another format), columns are missing, or it is too large:
            more than 2 GB uncompressed, 65,536 rows, 64 MB in one, or 64 MB and 100 times its packed size in a column.
    """
    import pyarrow as pa  # noqa: PLC0415  a fifth of a second, and only where there are dumps
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with pq.ParquetFile(file) as dump:
            return _read(dump, pa, group_size, examples=examples)
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadDumpError(" ".join(str(error).split())[:160] or type(error).__name__) from None


def _read(dump: Any, pa: Any, group_size: int | None, *, examples: KeptTexts) -> Grouping:
    names = [field.name for field in dump.schema_arrow]
    if not set(TEXT_COLUMNS) <= set(names):
        raise BadDumpError(f"no columns {' and '.join(TEXT_COLUMNS)}")
    numbers = [field.name for field in dump.schema_arrow if pa.types.is_floating(field.type)]
    read = {*[name for name in numbers if name not in ADVANTAGES][:MAX_FUNCTIONS], *ADVANTAGES}
    rewards: dict[str, list[object]] = {name: [] for name in numbers if name in read}
    groups = [dump.metadata.row_group(at) for at in range(dump.metadata.num_row_groups)]
    sizes = [each.total_byte_size for each in groups]
    if sum(sizes) > MAX_BYTES:
        raise BadDumpError(f"more than {MAX_BYTES} bytes uncompressed", Skip.TOO_LONG)
    for chunk in (each.column(at) for each in groups for at in range(each.num_columns)):
        if chunk.total_uncompressed_size > max(MAX_BATCH, PACKED * chunk.total_compressed_size):
            raise BadDumpError(
                f"{chunk.total_compressed_size} bytes that become {chunk.total_uncompressed_size}", Skip.TOO_LONG
            )
    rows, columns = CollectedRows(), [*TEXT_COLUMNS, *rewards]
    at_once = max(1, min(BATCH, DECODED // max(1, *sizes)))
    for batch in dump.iter_batches(batch_size=at_once, columns=columns, use_threads=False):
        if batch.nbytes > MAX_BATCH:
            raise BadDumpError(f"a row of {batch.nbytes} bytes; at most {MAX_BATCH} are read", Skip.TOO_LONG)
        prompts, completions = (batch.column(name).to_pylist() for name in TEXT_COLUMNS)
        rows.extend(prompts, completions)
        if len(rows) > MAX_ROWS:
            raise BadDumpError(f"more than {MAX_ROWS} completions", Skip.TOO_LONG)
        for name, values in rewards.items():
            values.extend(batch.column(name).to_pylist())
    named = {"advantage" if name in ADVANTAGES else name: rewards[name] for name in rewards}
    return group(rows, named, group_size, examples=examples)


class CompletionsParquetSource(CompletionFolder):
    """Reads TRL's dumps.

    TRL does not clear its buffer: steps that reuse a generation and the dump at the end of training repeat the previous
    table. It overwrites a step's file with an evaluation's completions: read live, a newest file that recurs with other
    prompts is evaluation. If only the overwritten file was seen (offline, or between two polls), evaluation can't be
    distinguished from training.

    pyarrow is an extra: without it nothing is read, ``stats.problem`` says so, and the cursor stays.
    """

    def _new(self, seen: float | None) -> Iterator[Item]:
        if self._can_read():
            yield from super()._new(seen)

    def _rest(self) -> Iterator[Item]:
        if self._can_read():
            yield from super()._rest()

    def _can_read(self) -> bool:
        missing = without_parquet()
        if missing:
            self.stats.problem = missing
        return not missing

    def _step_of(self, name: str) -> int | None:
        found = parquet_dump(name)
        return found[1] if found is not None else None

    def _reader(self, path: Path) -> DumpReader:
        del path
        return read_dump

    def _stream(self, step: int, grouping: Grouping) -> Stream:
        again = step == self._newest and grouping.prompts != self._prompts
        return Stream.EVAL if again else Stream.TRAIN
