"""Reads files that are rewritten as a whole: documents of metrics in any notation and layout.

JSON, YAML, tables, chart pages and Python literals are decoded; nothing is evaluated, and memory stays bounded.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

import xxhash

from grpo_watch import lazy_re as re
from grpo_watch.descriptors import Stamp, stamp
from grpo_watch.engine.records import ChannelKind, Cursor, Item, RawRow
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.python_literal import BROKEN, literal
from grpo_watch.sources.base import ChannelSource, Skip
from grpo_watch.sources.files.decompress import SUFFIXES, beginning, unpacked_name
from grpo_watch.sources.rows.layouts import METRIC_NAMES, Rows, is_number, parts_of, shows_reward, single_number
from grpo_watch.sources.rows.tables import cells_of, delimiter_of, grid
from grpo_watch.sources.settings.documents import plain_yaml

LARGEST = 64 << 20
"""Bytes of the largest file read as a whole; pictures make some notebooks tens of megabytes large."""
NESTED = re.compile(rb'":\s*\[\s*\{')
YAML = (".yaml", ".yml")
DOCUMENTS = re.compile(r"^---\s*$", re.MULTILINE)
LARGEST_TEXT = 8 << 20
"""Bytes of the largest text decoded as a whole if it is neither JSON nor read line by line."""
LARGEST_YAML = 4 << 20
"""Bytes of the largest YAML text read: 100,000 numbers, in some seconds."""
CHART = re.compile(r"Plotly\.(?:newPlot|react|plot)\(\s*(?:\"[^\"]{0,200}\"|'[^']{0,200}'|[\w.$]{1,200})\s*,\s*")
"""Start of a chart's traces in plotly's pages."""
BRACKET = re.compile(r"[\[{]")
NAME = re.compile(r"['\"]?([A-Za-z_][\w./@-]{0,80})['\"]?\s{0,8}[:=]\s{0,8}(?:[A-Za-z_][\w.]{0,40}\(\s?)?$")
"""A name before an array or a dictionary."""
LONGEST_NAME = 120
MOST_TRIED = 1_000
"""Most useless brackets tried before a text is given up."""
ONE_BY_ONE = frozenset({*METRIC_NAMES, "epoch"})
LEAST_NUMBERS = 3
LEAST_CELLS = 3


class RewrittenSource(ChannelSource, ABC):
    """Reads a file that is rewritten each time; only items beyond those already given are yielded.

    A file that begins with another first row is another run, read from its beginning. Items after the last row (an end,
    an error) come once, and again if more rows precede them.
    """

    def _begin(self, **_: Any) -> None:
        self._given = self._start.position if self._start is not None else 0
        self._ended = row_numbers.whole(self._known.get("ended"))
        self._first = self._known.get("row")
        self._stamp: Stamp | None = None
        self._said: set[str] = set()

    @abstractmethod
    def items(self, text: str, seen: float | None) -> Sequence[Item] | None:
        """Return all items in the file; None if it can't be read (it may be half-written)."""

    def _new(self, seen: float | None) -> Iterator[Item]:
        text = self._text()
        items = self.items(text, seen) if text is not None else None
        if items is None:
            return
        rows = [number for number, item in enumerate(items) if isinstance(item, RawRow)]
        last, first = (rows[-1] + 1, _digest(items[rows[0]])) if rows else (0, "")
        if self._given > last or self._first not in {None, first}:
            self._given = self._ended = 0
        self._first = first
        for item in items[self._given : last]:
            self._given, self._ended = self._given + 1, 0
            yield item
        for item in items[last + (self._ended or 0) :]:
            self._ended = (self._ended or 0) + 1
            yield item

    def cursor(self) -> Cursor:
        """The number of items given, and their run."""
        return Cursor(self.name, "", self._given, {"row": self._first, "ended": self._ended})

    def _skip(self, detail: str) -> None:
        """Count a skipped part once, however often the file is rewritten."""
        if detail not in self._said:
            self._said.add(detail)
            self.stats.skip(Skip.NOT_A_ROW, detail)

    def _text(self) -> str | None:
        """Return the file's text if it was written since the last look."""
        written = stamp(self._path)
        if written is not None and written == self._stamp:
            return None
        try:
            text = whole_text(self._path, self._roots)
        except (SourceError, OSError) as error:
            self.stats.problem = "" if isinstance(error, FileNotFoundError) else str(error)
            return None
        self._stamp = written
        self.stats.bytes += len(text or "")
        large = f"{self._path}: larger than {LARGEST >> 20} MiB, too large to be read as a whole"
        self.stats.problem = "" if text is not None else large
        return text


def _digest(row: Item) -> str:
    step, values = (row.step, row.values) if isinstance(row, RawRow) else (None, {})
    return xxhash.xxh3_64_hexdigest(repr((step, sorted(values.items()))).encode("utf-8", "replace"))


class DocumentSource(RewrittenSource):
    """Reads one document.

    Of several parts with rows it reads the one named ``run``, else the first. Rows without a step are counted from 1.
    """

    def _begin(self, *, run: str = "", **own: Any) -> None:
        self._run = run
        super()._begin(**own)

    def items(self, text: str, seen: float | None) -> Sequence[Item]:
        """Return the rows of the chosen part."""
        parts = parts_in(text, self._path.name)
        chosen = self._run or next(iter(parts), "")
        for name in parts if not self._run else ():
            if name != chosen and shows_reward(parts[name]):
                self._skip(f"{name}: {len(parts[name])} rows are left aside")
        return [item for number, row in enumerate(parts.get(chosen, ()), 1) for item in self._row(row, number, seen)]

    def _row(self, row: Mapping[str, object], number: int, seen: float | None) -> Iterator[Item]:
        values, step = row_numbers.numbers(row), row_numbers.place(row).step
        if not values:
            self._skip(f"row {number}: no number in it")
            return
        step, stream = number if step is None else step, row_numbers.stream_of(row, values)
        yield RawRow(self.name, ChannelKind.TRAINER_STATE, step, values, stream, self.segment, seen=seen)


def whole_text(path: Path, roots: Sequence[Path], largest: int = LARGEST) -> str | None:
    """Return the text of a file; None if it is larger than the limit.

    Raises:
        OSError: it can't be opened.
        SourceError: it is no regular file, or lies outside.
    """
    data = beginning(path, roots, largest + 1)
    return data.decode("utf-8", "replace") if len(data) <= largest else None


def nests_rows(head: bytes) -> bool:
    """Whether a JSON list begins with a mapping that holds a list of mappings: the rows of a run, or completions."""
    return NESTED.search(head) is not None


def parts_in(text: str, name: str) -> dict[str, Rows]:
    """Return the rows of each part of a text from a file of this name."""
    first: dict[str, Rows] = {}
    path = PurePath(name)
    suffix = path.with_suffix("").suffix if path.suffix in SUFFIXES else path.suffix
    for document in _documents(text, suffix):
        found = parts_of(document)
        if any(map(shows_reward, found.values())):
            return found
        first = first or found
    return first


def holds_rows(text: str, name: str) -> bool:
    """Whether the text has rows with a reward."""
    return any(map(shows_reward, parts_in(text, name).values()))


MAY_HOLD_ROWS = re.compile(rb"reward|\breturn|score|entropy", re.IGNORECASE)


def holds_document(path: Path, roots: Sequence[Path], head: bytes) -> bool:
    """Whether rows show only once the whole text is decoded: YAML, a chart, arrays, single numbers."""
    if not MAY_HOLD_ROWS.search(head):
        return False
    text = whole_text(path, roots, LARGEST_TEXT)
    return text is not None and holds_rows(text, unpacked_name(path))


def _documents(text: str, suffix: str) -> Iterator[object]:
    begin = text.lstrip("\ufeff \t\r\n")[:1]
    if begin and begin in "[{":
        yield from _json(text.strip("\ufeff \t\r\n"))
    if suffix in YAML:
        yield from _yaml(text)
    elif suffix in {".html", ".htm"}:
        yield from _charts(text)
    elif suffix in {".csv", ".tsv"}:
        yield from _table(text)
    elif suffix not in {".json", ".jsonl"}:
        yield from _literals(text)
        yield from _transposed(text)


def _json(text: str) -> Iterator[object]:
    """Yield the JSON document, or each of several concatenated ones."""
    decoder, position, found = json.JSONDecoder(), 0, []
    try:
        while position < len(text):
            value, position = decoder.raw_decode(text, position)
            found.append(value)
            position += len(text[position : position + 64]) - len(text[position : position + 64].lstrip(", \t\r\n"))
    except (ValueError, RecursionError):
        if not found:
            return
    yield found[0] if len(found) == 1 else found


def _yaml(text: str) -> Iterator[object]:
    """Yield the YAML document, or those separated by lines of dashes."""
    if len(text) > LARGEST_YAML:
        return
    try:
        found = [value for part in DOCUMENTS.split(text) if (value := plain_yaml(part)) is not None]
    except ValueError:
        return
    yield found[0] if len(found) == 1 else found


def _charts(text: str) -> Iterator[object]:
    for begin in CHART.finditer(text):
        with suppress(ValueError, RecursionError):
            yield json.JSONDecoder().raw_decode(text, begin.end())[0]


def _table(text: str) -> Iterator[object]:
    """Yield a table with one number per line, or one line per epoch, and a table whose lines are metrics."""
    header, lines = grid(text)
    if len(lines) >= LEAST_NUMBERS and not ONE_BY_ONE.isdisjoint(map(str.lower, header)):
        names = [cell.lower() if cell.lower() in METRIC_NAMES else cell for cell in header]
        yield [dict(zip(names, cells, strict=True)) for cells in lines]
    yield from _transposed(text)


def _transposed(text: str) -> Iterator[object]:
    """Yield a table whose header names the steps and whose lines are metrics."""
    steps: list[object] = []
    found: dict[str, Sequence[object]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in cells_of(line, delimiter_of(line))] if len(line) < 1 << 20 else []
        cells = cells if len(cells) > LEAST_CELLS else line.split()
        if len(cells) <= LEAST_CELLS or not all(map(is_number, cells[1:])) or is_number(cells[0]):
            continue
        whole = [row_numbers.whole(cell) for cell in cells[1:]]
        if not steps and None not in whole and whole == sorted(set(filter(None, whole))):
            steps = list(whole)
        elif len(cells) == len(steps) + 1:
            found[cells[0]] = cells[1:]
    if steps and found:
        yield {"step": steps, **found}


def _literals(text: str) -> Iterator[object]:
    """Yield each printed array or dictionary with rows, then single numbers and named arrays together."""
    named: dict[str, object] = {}
    singles: list[object] = []
    position = spent = tried = 0
    while spent <= len(text) and tried < MOST_TRIED and (begin := BRACKET.search(text, position)) is not None:
        value, end = literal(text, begin.start())
        spent += end - begin.start()
        position = begin.end() if value is BROKEN else end
        name = NAME.search(text, max(0, begin.start() - LONGEST_NAME), begin.start())
        if name is not None and isinstance(value, list) and len(value) >= LEAST_NUMBERS and all(map(is_number, value)):
            if name[1] in named:  # repeated names: an array for each step, not one for each metric
                return
            named[name[1]] = value
            continue
        if isinstance(value, dict) and single_number(value) is not None:
            singles.append(value)
            continue
        tried += 1
        if isinstance(value, (list, dict)) and len(value) >= LEAST_NUMBERS:
            yield value
    if singles:
        yield singles
    if named:
        yield named
