"""Turns the ``trainer_state.json`` files of a run's checkpoints into raw rows of full precision and run settings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_watch.engine.records import ChannelKind, Cursor, Item, RawRow, RunConfig, Scalar, Setting
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Skip, Source, SourceStats
from grpo_watch.sources.files.reading import open_regular

CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})")
NAME = "trainer_state.json"
LARGEST = 64 << 20
"""Bytes of the largest file that is read (a row takes about 1.2 KB in it)."""
SETTINGS: Mapping[str, str] = {
    "max_steps": "max_steps",
    "logging_steps": "logging_steps",
    "save_steps": "save_steps",
    "eval_steps": "eval_steps",
    "num_train_epochs": "num_train_epochs",
    "train_batch_size": "per_device_train_batch_size",
}
"""Keys of transformers' TrainerState (4.51 to 5.23) and the settings they are."""


class TrainerStateSource(Source):
    """Reads the ``log_history`` of a folder's checkpoints (and of the folder itself), or of one file; each step once.

    transformers rewrites the file in place, so one that does not parse yet is tried again at the next poll. After a
    resume the history goes back: what a later file has of steps that were given already is passed over.
    """

    def __init__(
        self, name: str, path: Path, roots: Sequence[Path], segment: int = 0, cursor: Cursor | None = None
    ) -> None:
        self.name, self.segment, self.stats = name, segment, SourceStats()
        self._path, self._roots = path, tuple(roots)
        state = cursor.state if cursor is not None else {}
        self._train = row_numbers.whole(state.get("train")) or 0
        self._eval = row_numbers.whole(state.get("eval")) or 0
        self._settings = str(state.get("settings") or "")
        self._read: dict[str, tuple[int, int, int]] = {}

    def poll(self, seen: float | None) -> Iterator[Item]:
        """Yield the rows of files that are new or were rewritten."""
        for path in self._files():
            stamp = _stamp(path)
            if stamp is None or self._read.get(path.as_posix()) == stamp:
                continue
            state = self._load(path)
            if state is None:
                continue
            yield from self._config(state, path)
            yield from self._rows(state, seen)
            self._read[path.as_posix()] = stamp

    def finish(self) -> Iterator[Item]:
        """Nothing is held back."""
        yield from ()

    def cursor(self) -> Cursor:
        """The last steps that were given."""
        state: dict[str, Scalar] = {"train": self._train, "eval": self._eval, "settings": self._settings}
        return Cursor(self.name, "", self._train, state)

    def close(self) -> None:
        """Nothing stays open."""

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

    def _load(self, path: Path) -> dict[str, Any] | None:
        try:
            descriptor = open_regular(path, self._roots)
        except (SourceError, OSError) as error:
            self._refuse(path, error)
            return None
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            self.stats.skip(Skip.TOO_LONG, f"{path}: more than {LARGEST >> 20} MiB")
            self._read[path.as_posix()] = _stamp(path) or (0, 0, 0)
            return None
        try:
            state = json.loads(data)  # accepts NaN and Infinity, which transformers writes
        except (ValueError, RecursionError):
            return None
        self.stats.bytes += len(data)
        state = {"log_history": state} if isinstance(state, list) else state
        if isinstance(state, dict) and isinstance(state.get("log_history"), list):
            return state
        self._read[path.as_posix()] = _stamp(path) or (0, 0, 0)
        if state:
            held = f"its keys: {', '.join(map(repr, list(state)[:6]))}" if isinstance(state, dict) else "no JSON object"
            self.stats.skip(Skip.NOT_A_ROW, f"{path.parent.name}/{path.name}: no list log_history in it ({held})")
        return None

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
            self.stats.records += 1
            yield RunConfig(None, None, settings, self.name, self.segment, precedence=2)

    def _rows(self, state: Mapping[str, Any], seen: float | None) -> Iterator[Item]:
        total = row_numbers.whole(state.get("max_steps"))
        for entry in state["log_history"]:
            if not isinstance(entry, dict) or "train_runtime" in entry:
                continue
            values, step = row_numbers.numbers(entry), row_numbers.place(entry).step
            if step is None or not values:
                self.stats.skip(Skip.NO_STEP if values else Skip.NOT_A_ROW, f"an entry of {NAME}")
                continue
            stream = row_numbers.stream(values)
            if step <= (self._train if stream is None else self._eval):
                continue
            if stream is None:
                self._train = step
            else:
                self._eval = step
            self.stats.records += 1
            yield RawRow(
                channel=self.name,
                kind=ChannelKind.TRAINER_STATE,
                step=step,
                values=values,
                stream=stream,
                segment=self.segment,
                max_steps=total,
                seen=seen,
            )


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_ino, info.st_size, info.st_mtime_ns
