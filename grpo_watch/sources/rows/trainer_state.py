"""Turns the ``trainer_state.json`` files of a run's checkpoints into raw rows of full precision and run settings."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Generator, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from grpo_watch import lazy_re as re
from grpo_watch.descriptors import Stamp, stamp
from grpo_watch.engine.records import ChannelKind, Cursor, Item, RawRow, RunConfig, Scalar, Setting
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import ChannelSource, Skip
from grpo_watch.sources.files.reading import open_regular

CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})")
NAME = "trainer_state.json"
HELD_ROWS, HELD_BYTES = 2_000, 4 << 20
"""Rows of a file that wait for the values after them, so that the settings come first. A row takes about 1,200 bytes;
once parsed, some writers' entries take 25 times their size in the file."""
SETTINGS: Mapping[str, str] = {
    "max_steps": "max_steps",
    "logging_steps": "logging_steps",
    "save_steps": "save_steps",
    "eval_steps": "eval_steps",
    "num_train_epochs": "num_train_epochs",
    "train_batch_size": "per_device_train_batch_size",
}
"""Keys of transformers' TrainerState (4.51 to 5.23) and the settings that they hold."""


CHUNK = 1 << 20
LARGEST_VALUE = 8 << 20
"""Most characters of a value beside the list, or of an entry in it; a row takes about 1,200."""


class HistoryStream:
    """Streams the entries of the list under ``key`` of an object, or of a list, without holding all of them.

    ``beside``: the object's other values read so far; None if the document is neither an object nor a list. ``listed``:
    the list was found. ``read``: bytes so far. ``whole``: the document was read to its end; False while it is still
    being written, or if it is no JSON.

    Args:
        file: the document's bytes.
        key: the list's name.
    """

    def __init__(self, file: BinaryIO, key: str) -> None:
        self._file, self._key = file, key
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._values = json.JSONDecoder()  # accepts NaN and Infinity, which transformers writes
        self._text, self._at = "", 0
        self.beside: dict[str, Any] | None = None
        self.listed = self.whole = False
        self.read = 0

    def entries(self) -> Iterator[Any]:
        """Yield the list's entries, up to the end of the document or the first unreadable one."""
        try:
            begin = self._next()
            if begin == "[":
                self.beside, self.listed = {}, True
                yield from self._list()
            elif begin == "{":
                self.beside = {}
                yield from self._object(self.beside)
            else:
                self._value()
            self.whole = True
        except (ValueError, RecursionError):
            return

    def _object(self, beside: dict[str, Any]) -> Iterator[Any]:
        self._at += 1
        while (mark := self._next()) != "}":
            if mark == ",":
                self._at += 1
                continue
            key = self._value()
            if self._next() != ":":
                raise ValueError("no colon")
            self._at += 1
            if key == self._key and self._next() == "[":
                self.listed = True
                yield from self._list()
            else:
                beside[str(key)] = self._value()
        self._at += 1

    def _list(self) -> Iterator[Any]:
        self._at += 1
        while (mark := self._next()) != "]":
            if mark == ",":
                self._at += 1
            else:
                yield self._value()
        self._at += 1

    def _value(self) -> Any:
        """Return the value that begins here; it is complete if text follows it, or the document ends."""
        self._next()
        ended = False
        while True:
            try:
                value, end = self._values.raw_decode(self._text, self._at)
            except ValueError:
                if ended or len(self._text) - self._at > LARGEST_VALUE:
                    raise
            else:
                if ended or end < len(self._text):
                    self._at = end
                    return value
            ended = not self._more()

    def _next(self) -> str:
        """Return the next non-blank character."""
        while True:
            while self._at < len(self._text) and self._text[self._at].isspace():
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise ValueError("the document ends too early")

    def _more(self) -> bool:
        data = self._file.read(CHUNK)
        self._text, self._at = self._text[self._at :] + self._decode(data, final=not data), 0
        self.read += len(data)
        return bool(data)


class TrainerStateSource(ChannelSource):
    """Reads the ``log_history`` of a folder's checkpoints (and of the folder itself), or of one file; each step once.

    transformers rewrites the file in place, so a file that does not parse yet is retried at the next poll. After a
    resume the history goes back: steps that were already given are skipped.
    """

    def _begin(self, **_: Any) -> None:
        self._train = row_numbers.whole(self._known.get("train")) or 0
        self._eval = row_numbers.whole(self._known.get("eval")) or 0
        self._settings = str(self._known.get("settings") or "")
        self._read: dict[str, Stamp] = {}
        self._refused = set[str]()
        self._going: Generator[Item | None, None, None] | None = None
        self._taken = 0
        self._seen: float | None = None

    def _new(self, seen: float | None) -> Iterator[Item]:
        self._seen = seen
        if self._going is None:
            for name in self._refused:
                self._read.pop(name, None)
            self._refused.clear()
        self._budget.begin(self._taken, live=seen is not None)
        while True:
            if self._going is None and (unread := self._next_file()) is not None:
                self._going = self._items(*unread)
            if self._going is None:
                return
            for item in self._going:
                if item is not None:
                    yield item
                if self._budget.ends(self._taken):
                    return
            self._going = None

    def _rest(self) -> Iterator[Item]:
        yield from self._new(None) if self._going is not None else ()

    def cursor(self) -> Cursor:
        """The last steps given."""
        state: dict[str, Scalar] = {"train": self._train, "eval": self._eval, "settings": self._settings}
        return Cursor(self.name, "", self._train, state)

    def close(self) -> None:
        """Close the file being read."""
        if self._going is not None:
            self._going.close()
            self._going = None

    def _files(self) -> list[Path]:
        """Return the files by step, the folder's own last; folders deleted meanwhile are normal."""
        if self._path.suffix == ".json":
            return [self._path]
        try:
            with os.scandir(self._path) as entries:
                found = [(int(m[1]), e.name) for e in entries if (m := CHECKPOINT.fullmatch(e.name)) is not None]
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self.stats.problem = f"{self._path}: can't be listed: {error.strerror or error}"
            return []
        return [*(self._path / name / NAME for _, name in sorted(found)), self._path / NAME]

    def _next_file(self) -> tuple[Path, Stamp] | None:
        for path in self._files():
            written = stamp(path)
            if written is not None and self._read.get(path.as_posix()) != written:
                return path, written
        return None

    def _items(self, path: Path, written: Stamp) -> Generator[Item | None, None, None]:
        """Yield the settings and rows of one file; None after reading without an item, so that the turn may end."""
        self._read[path.as_posix()] = written
        try:
            descriptor = open_regular(path, self._roots)
        except (SourceError, OSError) as error:
            self._refuse(path, error)
            self._refused.add(path.as_posix())  # it may become readable without a change
            return
        with os.fdopen(descriptor, "rb") as file:
            stream, before = HistoryStream(file, "log_history"), 0
            entries = ((stream.read, entry) for entry in stream.entries())
            held, full = list[tuple[int, object]](), False
            for at, entry in entries:
                held.append((at, entry))
                if at > before:
                    self._taken, before = self._taken + at - before, at
                    yield None
                full = len(held) == HELD_ROWS or at >= HELD_BYTES
                if full:
                    break
            if stream.whole:
                yield from self._config(stream.beside or {}, path)
            elif not full:
                return  # it is being written
            total = row_numbers.whole((stream.beside or {}).get("max_steps"))
            before = 0  # held rows count again: reading them was one half of the work
            for at, entry in chain(held, entries):
                self._taken, before = self._taken + at - before, at
                yield self._row(entry, total)
            if full:
                yield from self._config(stream.beside or {}, path)
            self.stats.bytes += stream.read
        if stream.whole and not stream.listed and stream.beside != {}:
            keys = list(stream.beside or ())[:6]
            what = f"its keys: {', '.join(map(repr, keys))}" if keys else "no JSON object"
            self.stats.skip(Skip.NOT_A_ROW, f"{path.parent.name}/{path.name}: no list log_history in it ({what})")

    def _refuse(self, path: Path, error: Exception) -> None:
        if isinstance(error, SourceError):
            self.stats.problem = str(error)
        elif not isinstance(error, FileNotFoundError):
            self.stats.problem = f"{path}: can't be read: {getattr(error, 'strerror', None) or error}"

    def _config(self, state: Mapping[str, Any], path: Path) -> Iterator[Item]:
        found = {setting: row_numbers.whole(state.get(key)) for key, setting in SETTINGS.items()}
        known = {setting: value for setting, value in found.items() if value}
        given = json.dumps(known, sort_keys=True)
        if known and given != self._settings:
            self._settings = given
            origin = path.relative_to(self._path).as_posix() if path.is_relative_to(self._path) else path.name
            settings = {setting: Setting(value, origin or path.name) for setting, value in known.items()}
            yield RunConfig(None, None, settings, self.name, self.segment, precedence=2)

    def _row(self, entry: object, total: int | None) -> RawRow | None:
        if not isinstance(entry, dict) or "train_runtime" in entry:
            return None
        values, step = row_numbers.numbers(entry), row_numbers.place(entry).step
        if step is None or not values:
            self.stats.skip(Skip.NO_STEP if values else Skip.NOT_A_ROW, f"an entry of {NAME}")
            return None
        stream = row_numbers.stream(values)
        if step <= (self._train if stream is None else self._eval):
            return None
        if stream is None:
            self._train = step
        else:
            self._eval = step
        kind = ChannelKind.TRAINER_STATE
        return RawRow(self.name, kind, step, values, stream, self.segment, total, seen=self._seen)
