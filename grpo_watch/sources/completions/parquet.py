"""Turns Parquet dumps of completions, one file per generation batch, into summaries; pyarrow is imported only here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from grpo_watch.engine.metric_names import MAX_FUNCTIONS
from grpo_watch.engine.records import Item, Stream
from grpo_watch.extras import without_parquet
from grpo_watch.frameworks.dump_formats import parquet_dump
from grpo_watch.sources.base import Skip
from grpo_watch.sources.completions.completion_folder import CompletionFolder, Reading
from grpo_watch.sources.completions.dump_result import BadDumpError, DumpResult, read_unchanged
from grpo_watch.sources.completions.parquet_headers import DICTIONARY, SHARED_PREFIXES, HeaderError, pages
from grpo_watch.sources.completions.reduced_rows import CollectedRows
from grpo_watch.sources.completions.summarise import Grouping, group
from grpo_watch.sources.excerpt_privacy import KeptTexts

AT_ONCE = 32_000_000
"""Bytes of text that are decoded at once."""
MAX_BYTES = 2_000_000_000
"""Of a dump, uncompressed."""
MAX_PAGE = 128_000_000
"""Bytes of a page, which is decompressed as a whole. pyarrow looks at a page's size after each 1,024 values: these are
completions of 32,000 tokens."""


class TooLargeError(Exception):
    """The file would need too much memory; ``str()`` is one line."""


def rows_at_once(file: BinaryIO, metadata: Any, columns: Collection[str], most: int) -> int:
    """How many rows of these columns, ``most`` at most and one at least, hold about ``AT_ONCE`` bytes or less.

    Each value of a chunk may be as long as its dictionary is (writers end one at about 1 MB), or as the mean of what
    is stored one by one. Values of lists are taken to be as many in each row. Sizes are those that the headers of the
    pages state, by which they are decompressed.

    Args:
        file: open for reading; its position is not used.
        metadata: pyarrow's, of the file.
        columns: names of the topmost level.
        most: rows.

    Raises:
        TooLargeError: a page or all of them are too large.
        HeaderError: a page can't be measured.
        OSError: the file can't be read.
    """
    largest, whole = 1, 0
    for rows, chunk in _chunks(metadata, columns):
        longest, size = _measure(file.fileno(), chunk)
        whole += size
        if whole > MAX_BYTES:
            raise TooLargeError(f"more than {MAX_BYTES} bytes uncompressed")
        largest = max(largest, (longest * chunk.num_values + size) // max(1, rows))
    return max(1, min(most, AT_ONCE // largest))


def _chunks(metadata: Any, columns: Collection[str]) -> Iterator[tuple[int, Any]]:
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        for number in range(group.num_columns):
            chunk = group.column(number)
            if chunk.path_in_schema.partition(".")[0] in columns:
                yield group.num_rows, chunk


def _measure(descriptor: int, chunk: Any) -> tuple[int, int]:
    """Bytes that a value takes at most which is stored once and may come often, and of all pages uncompressed."""
    longest = size = 0
    shared = False
    for page in pages(descriptor, chunk):
        if page.size > MAX_PAGE:
            raise TooLargeError(f"a page of {page.size} bytes uncompressed; at most {MAX_PAGE} are decoded")
        size += page.size
        shared = shared or page.encoding == SHARED_PREFIXES
        longest = max(longest, page.size if page.kind == DICTIONARY else 0)
    return size if shared else longest, size


BATCH = 512
"""Rows decoded at once at most: 16 MB of text where each has 8,000 tokens; fewer where values may be long."""
MAX_ROWS = 65_536
"""Completions of one dump. A value that repeats takes no bytes in a file, so that its size alone bounds nothing."""
ADVANTAGES = frozenset({"advantage", "advantages"})
TEXT_COLUMNS = ("prompt", "completion")
MAX_BATCH = 64_000_000
"""Bytes of decoded rows that become texts: twice what is decoded at once, as lengths differ."""


class DumpError(Exception):
    """The file is no complete Parquet dump of completions; ``str()`` is one line."""


class DumpTooLargeError(Exception):
    """The dump would need too much memory; ``str()`` is one line."""


def read_dump(file: BinaryIO, group_size: int | None, *, examples: KeptTexts) -> Grouping:
    """Summarise a TRL dump (0.28 to 1.16: columns ``step``, ``prompt``, ``completion``, one per reward, ``advantage``).

    Every float column is a reward function, or the advantages; others (``log_extra``) are passed over.

    Raises:
        DumpError: it can't be parsed (half-written, or another format), or columns are missing.
        DumpTooLargeError: more than 2 GB uncompressed or 65,536 rows, a page of more than 128 MB or rows of more than
            64 MB in it.
    """
    import pyarrow as pa  # noqa: PLC0415  a fifth of a second, and only where there are dumps
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with pq.ParquetFile(file) as dump:
            return _read(file, dump, pa, group_size, examples=examples)
    except (TooLargeError, MemoryError) as error:
        raise DumpTooLargeError(str(error) or "no memory is left for it") from None
    except (HeaderError, pa.ArrowException, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise DumpError(" ".join(str(error).split())[:160] or type(error).__name__) from None


def _read(file: BinaryIO, dump: Any, pa: Any, group_size: int | None, *, examples: KeptTexts) -> Grouping:
    names = [field.name for field in dump.schema_arrow]
    if not set(TEXT_COLUMNS) <= set(names):
        raise DumpError(f"no columns {' and '.join(TEXT_COLUMNS)}")
    numbers = [field.name for field in dump.schema_arrow if pa.types.is_floating(field.type)]
    read = {*[name for name in numbers if name not in ADVANTAGES][:MAX_FUNCTIONS], *ADVANTAGES}
    rewards: dict[str, list[object]] = {name: [] for name in numbers if name in read}
    rows, columns = CollectedRows(), [*TEXT_COLUMNS, *rewards]
    at_once = rows_at_once(file, dump.metadata, columns, BATCH)
    for batch in dump.iter_batches(batch_size=at_once, columns=columns, use_threads=False):
        if batch.nbytes > MAX_BATCH:
            raise TooLargeError(f"{len(batch)} rows of {batch.nbytes} bytes; at most {MAX_BATCH} are read at once")
        prompts, completions = (batch.column(name).to_pylist() for name in TEXT_COLUMNS)
        rows.extend(prompts, completions)
        if len(rows) > MAX_ROWS:
            raise TooLargeError(f"more than {MAX_ROWS} completions")
        for name, values in rewards.items():
            values.extend(batch.column(name).to_pylist())
    named = {"advantage" if name in ADVANTAGES else name: rewards[name] for name in rewards}
    return group(rows, named, group_size, examples=examples)


def read_dump_file(path: Path, roots: Sequence[Path], group_size: int | None, examples: KeptTexts) -> DumpResult:
    """Read one dump; a top-level function of plain values, so that a worker process can run it. Never raises."""

    def read(file: BinaryIO) -> Grouping:
        try:
            return read_dump(file, group_size, examples=examples)
        except DumpError as error:
            raise BadDumpError(str(error)) from error
        except DumpTooLargeError as error:
            raise BadDumpError(str(error), Skip.TOO_LONG) from error

    return read_unchanged(path, roots, read)


class CompletionsParquetSource(CompletionFolder):
    """Reads TRL's dumps.

    TRL does not clear its buffer: steps that reuse a generation and the dump at the end of training repeat the table
    before. It overwrites a step's file with the completions of an evaluation: seen live, a newest file that comes again
    with other prompts is evaluation. Where only the overwritten file was seen (offline, or between two polls),
    evaluation can't be distinguished from training.

    pyarrow is an extra: without it nothing is read, ``stats.problem`` says so, and the cursor stays.
    """

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield a summary per new file."""
        if self._can_read():
            yield from super().poll(seen)

    def finish(self) -> Iterator[Item]:
        """Yield what is under way and what could not be parsed before, if it can be now; count the rest."""
        if self._can_read():
            yield from super().finish()

    def _can_read(self) -> bool:
        missing = without_parquet()
        if missing:
            self.stats.problem = missing
        return not missing

    def _step_of(self, name: str) -> int | None:
        found = parquet_dump(name)
        return found[1] if found is not None else None

    def _reading(self, path: Path, group_size: int | None) -> Reading:
        return read_dump_file, (path, self._roots, group_size, self._examples)

    def _stream(self, step: int, grouping: Grouping) -> Stream:
        again = step == self._newest and grouping.prompts != self._prompts
        return Stream.EVAL if again else Stream.TRAIN
