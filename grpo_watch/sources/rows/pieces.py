"""Joins the rows of a folder in which each file holds one step, or one metric, into raw rows by step."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from grpo_watch import lazy_re as re
from grpo_watch.descriptors import Stamp, stamp
from grpo_watch.engine.records import ChannelKind, Cursor, Item, RawRow
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.guessing import guess, names_updates
from grpo_watch.sources.base import ChannelSource
from grpo_watch.sources.rows.document import YAML, whole_text
from grpo_watch.sources.rows.fields import fields_of
from grpo_watch.sources.rows.layouts import Rows, joined, step_key, triples
from grpo_watch.sources.rows.tables import arms_of, grid, named_columns
from grpo_watch.sources.settings.documents import plain_yaml

LARGEST = 4 << 20
"""Bytes of a file with one metric: 100,000 steps."""
LARGEST_STEP = 64 << 10
MOST_FILES = 20_000
STEP_IN_NAME = re.compile(r"(?:^|.*[^\d.])(\d{1,9})")
STEP_NAMED = re.compile(r"(?:.*[_.-])?(?:step|iter|iteration|update|epoch)[_-]?\d{1,9}", re.IGNORECASE)
"""Names of texts with one step; a log with a single row so far may be numbered too."""
TEXTS = (".txt", ".log", ".out")
OF_MLFLOW = re.compile(r"\d{13} (\S{1,30}) (\d{1,9})")
"""A line of MLflow's file of one metric: milliseconds, value, step."""
STEP_AND_VALUE = re.compile(r"(\d{1,9})[ \t]+([-+\w.]{1,30})")
FEWEST = 2
OF_METRICS = "metrics"
TAGGED = re.compile(r"(?P<run>.*?)[-_]?tag[-_](?P<tag>.+)", re.DOTALL)
"""The name of a chart downloaded from TensorBoard."""


def pieces_in(path: PurePath, text: str) -> Mapping[str, Rows]:
    """Return the rows of a file with one step or metric, by run name (empty: unnamed); empty for other files."""
    stem = TAGGED.fullmatch(path.stem)
    run, tag = (stem["run"], stem["tag"]) if stem is not None else ("", path.stem)
    if path.suffix in {".csv", ".tsv"}:
        return _of_table(text, run, tag)
    if path.suffix == ".json" and text.lstrip()[:1] == "[":
        rows = triples(_decoded(text, json.loads), tag)
        return {run: rows} if rows else {}
    if path.parent.name == OF_METRICS and not path.suffix:
        lines = [OF_MLFLOW.fullmatch(line) for line in text.splitlines()]
        rows = [{"step": int(line[2]), path.name: line[1]} for line in lines if line is not None]
        return {"": rows} if rows and None not in lines else {}
    if path.suffix in TEXTS and guess(path.stem) is not None:
        points = [STEP_AND_VALUE.fullmatch(line) for line in text.splitlines()]
        rows = [{"step": int(line[1]), path.stem: line[2]} for line in points if line is not None]
        return {"": rows} if len(rows) == len(points) > FEWEST else {}
    row = _of_step(path, text) if len(text) <= LARGEST_STEP else None
    return {"": [row]} if row is not None else {}


def holds_piece(path: Path, head: bytes) -> bool:
    """Whether ``head`` begins a file with one step or metric of many; tables are found by other checks.

    Metric files beside their run's own file are MLflow's; copied without it, they are pieces.
    """
    alone = path.parent.name == OF_METRICS and not (path.parent.parent / "meta.yaml").exists()
    other = alone or path.suffix in {".json", *YAML, *TEXTS}
    return other and bool(pieces_in(path, head.decode("utf-8", "replace")))


def step_in_name(path: PurePath) -> int | None:
    """Return the step at the end of the file's or the folder's name; None if neither ends with a number."""
    found = STEP_IN_NAME.fullmatch(path.stem) or STEP_IN_NAME.fullmatch(path.parent.name)
    return int(found[1]) if found is not None else None


def _of_step(path: PurePath, text: str) -> Mapping[str, object] | None:
    """Return the row of a single-row file whose name gives the step."""
    step = step_in_name(path)
    if step is None:
        return None
    if path.suffix in TEXTS:
        if not (STEP_NAMED.fullmatch(path.stem) or STEP_NAMED.fullmatch(path.parent.name)):
            return None
        fields = [one for line in text.splitlines() for one in fields_of(line)]
        row: Mapping[str, object] = {one.name: one.value for one in fields}
        row = row if len(row) == len(fields) else {}
    else:
        document = _decoded(text, json.loads if path.suffix == ".json" else plain_yaml)
        row = row_numbers.flat(document) if isinstance(document, dict) else {}
    values = row_numbers.numbers(row)
    if not names_updates(values):
        return None
    return {**values, "step": row.get(key) if (key := step_key(row)) is not None else step}


def _of_table(text: str, run: str, tag: str) -> Mapping[str, Rows]:
    """Return the rows of a table with a step and one metric, or one metric per run."""
    bare, rows = grid(text)
    header = named_columns(bare, tag)
    exported = header != bare
    columns: Mapping[str, Mapping[int, str]] = {run: dict(enumerate(header))} if exported else arms_of(text).keys
    if not columns and len(header) == 2:  # noqa: PLR2004 (a step and a metric)
        columns = {run: dict(enumerate(header))}
    found: dict[str, Rows] = {}
    for name, places in columns.items():
        step = step_key(places.values())
        metrics = [(place, key) for place, key in places.items() if key != step and guess(key) is not None]
        if step is None or len(metrics) != 1:
            return {}
        at = next(place for place, key in places.items() if key == step)
        found[name] = [{"step": cells[at], metrics[0][1]: cells[metrics[0][0]]} for cells in rows]
    return found


def _decoded(text: str, decode: Callable[[str], object]) -> object:
    try:
        return decode(text)
    except (ValueError, RecursionError):
        return None


class PiecesSource(ChannelSource):
    """Reads a folder whose files hold one step or one metric each; only files that changed are read again.

    The newest step is held back until a later one comes, as files of it may still be missing. ``run`` selects one of
    several runs in the files.
    """

    def _begin(self, *, run: str = "", **_: Any) -> None:
        self._run = run
        self._given = self._start.position if self._start is not None else -1
        self._read: dict[Path, tuple[Stamp, Rows]] = {}

    def _new(self, seen: float | None) -> Iterator[Item]:
        self._look()
        yield from self._rows(seen, whole=False)

    def _rest(self) -> Iterator[Item]:
        yield from self._rows(None, whole=True)

    def cursor(self) -> Cursor:
        """The step up to which rows were given."""
        return Cursor(self.name, "", self._given, {})

    def _look(self) -> None:
        try:
            for path in self._files():
                written = stamp(path)
                if written is not None and (path not in self._read or self._read[path][0] != written):
                    text = whole_text(path, self._roots, LARGEST)
                    found = pieces_in(path, text) if text is not None else {}
                    rows = found.get(self._run) if self._run else next(iter(found.values()), None)
                    self._read[path] = written, rows or []
                    self.stats.bytes += len(text or "")
        except (SourceError, OSError) as error:  # a file that is gone or unreadable: the others at the next look
            self.stats.problem = str(error)

    def _files(self) -> Iterator[Path]:
        """Yield the files of the folder, and those of its numbered folders."""
        try:
            names = sorted(entry.name for entry in os.scandir(self._path))[:MOST_FILES]
        except OSError as error:
            self.stats.problem = f"{self._path}: can't be listed: {error.strerror or error}"
            return
        for path in (self._path / name for name in names):
            if path.is_file():
                yield path
            elif STEP_IN_NAME.fullmatch(path.name) and path.is_dir():
                yield from sorted(inner for inner in path.iterdir() if inner.is_file())

    def _rows(self, seen: float | None, *, whole: bool) -> Iterator[Item]:
        rows = joined([row for _, found in self._read.values() for row in found])
        for row in rows if whole else rows[:-1]:
            step, values = row_numbers.place(row).step, row_numbers.numbers(row)
            if step is not None and step > self._given and values:
                self._given = step
                stream = row_numbers.stream(values)
                yield RawRow(self.name, ChannelKind.TRAINER_STATE, step, values, stream, self.segment, seen=seen)
