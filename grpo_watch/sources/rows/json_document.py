"""Turns a JSON document of metrics (an array of rows, or an array for each metric) into raw rows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from grpo_watch.engine.records import ChannelKind, Cursor, Item, RawRow
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.guessing import guess
from grpo_watch.sources.base import Skip, Source, SourceStats
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.tables.table_rows import step_key

LARGEST = 32 << 20
"""Bytes of the largest document that is read."""
LEAST_ROWS = 2
STEP_NAME = re.compile(r"^(?:step|iter|iteration|epoch|batch|update)[ _-]?", re.IGNORECASE)
"""What people write before the number of a step where that is a key."""
EVALUATION = re.compile(r"(?:^|[^a-z])(?:eval|val|test|dev|evaluation|validation)(?![a-z])", re.IGNORECASE)
"""Names of parts that hold no training."""
MOST_RUNS = 64
MARK = "#"
"""What stands between the file and the run's name in the name of a channel."""
NESTED = re.compile(rb'":\s*\[\s*\{')
RUN_NAMES = ("name", "run_name", "tag", "run", "run_id", "experiment", "id")
Rows: TypeAlias = "list[Mapping[str, object]]"
DEPTH = 2
"""How deep below the top the rows may lie (``{"history": {"reward": [...]}}``)."""


class JsonDocumentSource(Source):
    """Reads one document; it is rewritten each time, and only rows beyond those given come.

    Of several parts with rows it reads the one that the channel is named after, else the first. Rows without a step of
    their own are counted from 1.
    """

    def __init__(
        self, name: str, path: Path, roots: Sequence[Path], segment: int = 0, cursor: Cursor | None = None
    ) -> None:
        self.name, self.segment, self.stats = name, segment, SourceStats()
        self._path, self._roots = path, tuple(roots)
        self._run, self._aside = name.partition(MARK)[2], set[str]()
        self._given = cursor.position if cursor is not None else 0
        self._stamp: tuple[int, int, int] | None = None

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield the rows that the document has more than before."""
        try:
            info = self._path.stat()
            stamp = (info.st_ino, info.st_size, info.st_mtime_ns)
            text = None if stamp == self._stamp else whole_text(self._path, self._roots)
        except FileNotFoundError:
            return
        except (SourceError, OSError) as error:
            self.stats.problem = str(error)
            return
        if text is None:
            return
        self._stamp, self.stats.bytes = stamp, self.stats.bytes + len(text)
        rows = self._chosen(parts_of(text))
        self._given = self._given if self._given <= len(rows) else 0
        for number, row in enumerate(rows[self._given :], self._given + 1):
            self._given = number
            yield from self._row(row, number, seen)

    def _chosen(self, parts: Mapping[str, Rows]) -> Rows:
        """The rows to read; those of other parts with a reward are reported, once each."""
        if self._run:
            return parts.get(self._run, [])
        chosen = next(iter(parts), "")
        for name in parts.keys() - {chosen} - self._aside:
            if _shows_reward(parts[name]):
                self._aside.add(name)
                self.stats.skip(Skip.NOT_A_ROW, f"{name}: {len(parts[name])} rows are left aside")
        return parts.get(chosen, [])

    def _row(self, row: Mapping[str, object], number: int, seen: float | None) -> Iterator[Item]:
        values, step = row_numbers.numbers(row), row_numbers.place(row).step
        if not values:
            self.stats.skip(Skip.NOT_A_ROW, f"row {number}: no number in it")
            return
        self.stats.records += 1
        yield RawRow(
            channel=self.name,
            kind=ChannelKind.TRAINER_STATE,
            step=number if step is None else step,
            values=values,
            stream=row_numbers.stream(values),
            segment=self.segment,
            seen=seen,
        )

    def finish(self) -> Iterator[Item]:
        """Nothing is held back."""
        return iter(())

    def cursor(self) -> Cursor:
        """How many rows were given."""
        return Cursor(self.name, "", self._given, {})

    def close(self) -> None:
        """No handle stays open."""


def whole_text(path: Path, roots: Sequence[Path], largest: int = 2 * LARGEST) -> str | None:
    """The text of a file; None where it is larger than the limit.

    Raises:
        OSError: it can't be opened.
        SourceError: it is no regular file, or lies outside.
    """
    with os.fdopen(open_regular(path, roots), "rb") as file:
        data = file.read(largest + 1)
    return data.decode("utf-8", "replace") if len(data) <= largest else None


def holds_rows(text: str) -> bool:
    """Whether the document has rows with a reward."""
    return any(map(_shows_reward, parts_of(text).values()))


def nests_rows(head: bytes) -> bool:
    """Whether a JSON list begins with a mapping that holds a list of mappings: the rows of a run, or completions."""
    return NESTED.search(head) is not None


def runs_of(text: str) -> tuple[str, ...]:
    """The names of the runs in a document that has the same metrics for each; none where it holds one run alone."""
    parts = {name: rows for name, rows in parts_of(text).items() if _shows_reward(rows) and not EVALUATION.search(name)}
    same = len({frozenset(rows[0]) for rows in parts.values()}) == 1
    return tuple(parts) if same and 1 < len(parts) <= MOST_RUNS else ()


def parts_of(text: str) -> dict[str, Rows]:
    """The rows of each part of a document that has some, by its key; where two keys are the same, by the whole path."""
    try:
        found = list(_parts(json.loads(text), (), DEPTH))
    except (ValueError, RecursionError):
        return {}
    keys = [path[-1:] for path, _ in found]
    distinct = len(set(keys)) == len(keys)
    return {"/".join(key if distinct else path): rows for key, (path, rows) in zip(keys, found, strict=True)}


def _shows_reward(rows: Rows) -> bool:
    keys = {key for row in rows[: LEAST_ROWS + 1] for key, value in row.items() if isinstance(value, (int, float))}
    return len(rows) > LEAST_ROWS and any(guess(key) == "reward_mean" for key in keys)


def _parts(part: Any, path: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], Rows]]:
    if isinstance(part, list) and depth:
        runs = list(_listed(part, path))
        if runs:
            yield from runs
            return
    rows = _rows(part)
    if rows:
        yield path, rows
    elif isinstance(part, dict) and depth:
        for key, value in part.items():
            yield from _parts(value, (*path, key), depth - 1)


def _listed(part: Sequence[Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Rows]]:
    """The runs of a list each item of which has a list of rows with a step and a reward."""
    for number, item in enumerate(part, 1):
        inner = item.values() if isinstance(item, dict) else ()
        rows = next((rows for value in inner if isinstance(value, list) and _of_steps(rows := _rows(value))), None)
        if rows is not None:
            name = next((str(item[key]) for key in RUN_NAMES if item.get(key)), str(number))
            yield (*path, name), rows


def _of_steps(rows: Rows) -> bool:
    steps = [row.get("step") for row in rows]
    return _shows_reward(rows) and None not in steps and len(set(steps)) == len(steps)


def _rows(part: Any) -> Rows:
    if isinstance(part, list):
        rows = [row_numbers.flat(row) for row in part if isinstance(row, dict)]
        rows = [row for row in rows if any(_is_number(value) for value in row.values())]
        return list(map(_stepped, rows if 2 * len(rows) > len(part) else []))
    if not isinstance(part, dict):
        return []
    columns = {key: value for key, value in part.items() if isinstance(value, list) and _all_numbers(value)}
    lengths = [len(value) for value in columns.values()]
    if lengths and (longest := max(set(lengths), key=lengths.count)) > LEAST_ROWS:
        whole = {key: value for key, value in columns.items() if len(value) == longest}
        return [_stepped({key: value[at] for key, value in whole.items()}) for at in range(longest)]
    return _numbered(part) or []


def _numbered(part: Mapping[str, Any]) -> list[Mapping[str, object]] | None:
    """The rows of ``{"10": {"reward": 0.5}, "20": {…}}`` in the order of their steps; None for another mapping."""
    steps = {row_numbers.whole(STEP_NAME.sub("", key)): value for key, value in part.items() if isinstance(value, dict)}
    if len(steps) <= LEAST_ROWS or len(steps) < len(part) or None in steps:
        return None
    rows = {step: row_numbers.flat(value) for step, value in steps.items() if step is not None}
    return [{**rows[step], "step": step} for step in sorted(rows)]


def _stepped(row: Mapping[str, object]) -> Mapping[str, object]:
    """The row with its step under the name that rows have it under."""
    key = step_key(row)
    return row if key is None else {**{name: value for name, value in row.items() if name != key}, "step": row[key]}


def _all_numbers(values: Sequence[object]) -> bool:
    return all(value is None or _is_number(value) for value in values)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
