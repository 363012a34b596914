"""Turns the ``trainer_state.json`` files of a run's checkpoints into raw rows of full precision and run settings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grpo_watch.descriptors import Stamp, stamp
from grpo_watch.engine.records import ChannelKind, Cursor, Item, RawRow, RunConfig, Scalar, Setting
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import ChannelSource, Skip
from grpo_watch.sources.rows.document import TOO_LARGE, whole_text

CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})")
NAME, ROWS = "trainer_state.json", "log_history"
SETTINGS: Mapping[str, str] = {
    "max_steps": "max_steps",
    "logging_steps": "logging_steps",
    "save_steps": "save_steps",
    "eval_steps": "eval_steps",
    "num_train_epochs": "num_train_epochs",
    "train_batch_size": "per_device_train_batch_size",
}
"""Keys of transformers' TrainerState (4.51 to 5.23) and the settings they are."""


class TrainerStateSource(ChannelSource):
    """Reads the ``log_history`` of a folder's checkpoints (and of the folder itself), or of one file; each step once.

    transformers rewrites the file in place, so one that does not parse yet is tried again once it was written further.
    After a resume the history goes back: what a later file has of steps that were given already is passed over. So is
    what a turn gave of a history that is longer than a turn, which the next turn reads again.
    """

    def _begin(self, **_: Any) -> None:
        self._train = row_numbers.whole(self._known.get("train")) or 0
        self._eval = row_numbers.whole(self._known.get("eval")) or 0
        self._settings = str(self._known.get("settings") or "")
        self._read: dict[Path, Stamp] = {}

    def _new(self, seen: float | None) -> Iterator[Item]:
        self._budget.begin(0, live=seen is not None)
        for path in self._files():
            written = stamp(path)
            if written is None or self._read.get(path) == written:
                continue
            try:
                text = whole_text(path, self._roots)
            except FileNotFoundError:
                continue
            except (SourceError, OSError) as error:  # it may be readable at the next poll, though it did not change
                why = f"{path}: can't be read: {getattr(error, 'strerror', None) or error}"
                self.stats.problem = str(error) if isinstance(error, SourceError) else why
                continue
            for item in self._items(path, text, seen):
                yield item
                if self._budget.ends(0):
                    return
            self._read[path] = written
            self.stats.bytes += len(text or "")

    def _rest(self) -> Iterator[Item]:
        yield from self._new(None)

    def cursor(self) -> Cursor:
        """The last steps that were given."""
        state: dict[str, Scalar] = {"train": self._train, "eval": self._eval, "settings": self._settings}
        return Cursor(self.name, "", self._train, state)

    def _files(self) -> list[Path]:
        """The files by step, the folder's own last; folders that were deleted meanwhile are normal."""
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

    def _items(self, path: Path, text: str | None, seen: float | None) -> Iterator[Item]:
        """The settings and rows of one file; none of one that is still being written."""
        if text is None:
            self.stats.problem = f"{path}: {TOO_LARGE}"
            return
        try:
            document = json.loads(text)  # accepts NaN and Infinity, which transformers writes
        except (ValueError, RecursionError):
            return
        state = document if isinstance(document, dict) else {}
        rows = document if isinstance(document, list) else state.get(ROWS)
        yield from self._config(state, path)
        if not isinstance(rows, list):
            keys = ", ".join(map(repr, list(state)[:6]))
            what = f"its keys: {keys}" if keys else "no JSON object"
            self.stats.skip(Skip.NOT_A_ROW, f"{path.parent.name}/{path.name}: no list {ROWS} in it ({what})")
            return
        total = row_numbers.whole(state.get("max_steps"))
        for entry in rows:
            if (row := self._row(entry, total, seen)) is not None:
                yield row

    def _config(self, state: Mapping[str, Any], path: Path) -> Iterator[Item]:
        found = {setting: row_numbers.whole(state.get(key)) for key, setting in SETTINGS.items()}
        known = {setting: value for setting, value in found.items() if value}
        given = json.dumps(known, sort_keys=True)
        if known and given != self._settings:
            self._settings = given
            origin = path.relative_to(self._path).as_posix() if path.is_relative_to(self._path) else path.name
            settings = {setting: Setting(value, origin or path.name) for setting, value in known.items()}
            yield RunConfig(None, None, settings, self.name, self.segment, precedence=2)

    def _row(self, entry: object, total: int | None, seen: float | None) -> RawRow | None:
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
        return RawRow(self.name, ChannelKind.TRAINER_STATE, step, values, stream, self.segment, total, seen=seen)
