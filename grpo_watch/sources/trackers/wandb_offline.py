"""Turns a run's ``.wandb`` file, written offline or during an upload, into rows, settings, completions and end."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct, field

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import CompletionSummary, EventKind, RunEvent
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Skip
from grpo_watch.sources.completions.completion_table import columns_of
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.settings.config_files import logged_config
from grpo_watch.sources.trackers import framing
from grpo_watch.sources.trackers.tracker_source import BlockLog

_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18
_ITEM, _KEY, _NESTED, _VALUE = 1, 1, 2, 16
_UPDATE, _RUN_CONFIG = 1, 4
_EXIT_CODE = 1
_NO_SCALARS = frozenset({"{", "[", ""})
"""First characters of values that are no single number or text."""
LONGEST_VALUE = 4_096
"""Most characters of a logged value that may be a number, or name a table; longer ones are pictures and histograms."""


class WandbHistory(Struct, frozen=True):
    """One call of ``wandb.log``: keys (nested ones joined by a dot) and their values; ``tables`` maps keys to files."""

    row: Mapping[str, object]
    tables: Mapping[str, str]


class WandbConfig(Struct, frozen=True):
    """Changed keys of the run's configuration."""

    update: Mapping[str, Any]


class WandbExit(Struct, frozen=True):
    """The job reported its end to the client."""

    code: int


WandbRecord: TypeAlias = WandbHistory | WandbConfig | WandbExit


class _Item(Struct):
    """One item of a history row or a configuration."""

    path: list[str] = field(default_factory=list)
    value: str = ""


def decode_record(payload: bytes) -> WandbRecord | None:
    """Decode a record; None for kinds without training data (summaries, console, files).

    Raises:
        ValueError: the payload is no such message.
    """
    for number, value in framing.fields(payload):
        if not isinstance(value, bytes):
            continue
        if number == _HISTORY:
            return _history(value)
        if number == _CONFIG:
            return WandbConfig(_config(value))
        if number == _RUN:
            return WandbConfig({key: part for one in _nested(value, _RUN_CONFIG) for key, part in _config(one).items()})
        if number == _EXIT:
            return WandbExit(_exit_code(value))
    return None


def scalar(text: str) -> object:
    """Return the value of a JSON text: a number, a short text or null; None also if it can't be parsed.

    wandb's own writers use bare ``NaN`` and ``Infinity`` or put them in quotes.
    """
    if (found := row_numbers.number(text)) is not None:
        return found
    try:
        return json.loads(text) if len(text) <= LONGEST_VALUE else None
    except (ValueError, RecursionError):
        return None


def _history(message: bytes) -> WandbHistory:
    items = list(map(_item, _nested(message, _ITEM)))
    media = {item.path[0] for item in items if item.path[1:] == ["_type"]}
    row: dict[str, object] = {}
    tables: dict[str, str] = {}
    for item in items:
        if item.path and item.path[0] in media:
            if item.path[1:] == ["path"]:
                tables[item.path[0]] = str(scalar(item.value))
        elif len(item.value) <= LONGEST_VALUE and item.value[:1] not in _NO_SCALARS:
            row[".".join(item.path)] = scalar(item.value)
    return WandbHistory(row, tables)


def _item(message: bytes) -> _Item:
    item = _Item()
    for number, value in framing.fields(message):
        if number in {_KEY, _NESTED}:
            item.path.append(framing.text(value))
        elif number == _VALUE:
            item.value = framing.text(value)
    return item


def _config(message: bytes) -> dict[str, Any]:
    """Return the updates of a configuration, nested keys as nested mappings, without the client's ``_wandb``."""
    found: dict[str, Any] = {}
    for item in map(_item, _nested(message, _UPDATE)):
        if not item.path or item.path[0] == "_wandb":
            continue
        place = found
        for key in item.path[:-1]:
            below = place.setdefault(key, {})
            place = below if isinstance(below, dict) else {}
        try:
            place[item.path[-1]] = json.loads(item.value)
        except (ValueError, RecursionError):
            continue
    return found


def _nested(message: bytes, field: int) -> list[bytes]:
    return [value for number, value in framing.fields(message) if number == field and isinstance(value, bytes)]


def _exit_code(message: bytes) -> int:
    code = dict(framing.fields(message)).get(_EXIT_CODE, 0)
    return framing.signed(code) if isinstance(code, int) else 0


TABLE = re.compile(r"media/table/[\w.-]{1,200}\.table\.json")
LARGEST_TABLE = 32 << 20
INTERRUPTED = 255
"""The client's exit code after Ctrl-C."""
TIME, COUNTER, OWN = "_timestamp", "_step", ("_step", "_runtime", "_timestamp", "_wandb")


class WandbOfflineSource(BlockLog):
    """Reads the log of wandb's client, written beside its upload (or instead of it).

    wandb's own ``_step`` counts calls of ``log``; rows are joined by the step that the framework logs, or by ``_step``
    in a run that never logs one. The client writes whole blocks, so the newest 32 KiB may be missing.
    """

    SUFFIXES, HEADERS = (".wandb",), (framing.WANDB,)
    GIVES = "metric rows, settings, completions by group"

    def _open(self) -> None:
        super()._open()
        self._raw: dict[str, Any] = {}

    def _start_over(self) -> None:
        self._raw, self._config = {}, ""

    decode = staticmethod(decode_record)

    @staticmethod
    def time_of(record: WandbRecord | None) -> float | None:
        """Return when a call was logged."""
        time = record.row.get(TIME) if isinstance(record, WandbHistory) else None
        return time if isinstance(time, float) else None

    def read_record(self, start: int, following: int, record: WandbRecord | None, seen: float | None) -> None:
        """Read a logged call, changed settings, or the end."""
        if isinstance(record, WandbHistory):
            self._history(record, start, following, seen)
        elif isinstance(record, WandbConfig):
            self._configure(record.update, start, following)
        elif isinstance(record, WandbExit):
            self._feed.flush(start, seen)
            self._feed.say(start, self._end(record.code, seen), following)

    def _history(self, record: WandbHistory, start: int, following: int, seen: float | None) -> None:
        row = {key: record.row[key] for key in sorted(record.row) if key not in OWN}  # the client shuffles each row's
        values = self._values(row, f"byte {start}", table=bool(record.tables))
        step, time = self._step(row, values, record.row.get(COUNTER)), record.row.get(TIME)
        self._feed.add(start, step, values, time if isinstance(time, float) else None, seen)
        for path in record.tables.values():
            if self._read_tables and TABLE.fullmatch(path) and not self._feed.given_to(start):
                self._feed.say(start, self._table(path, seen), following)

    def _configure(self, update: Mapping[str, Any], start: int, following: int) -> None:
        self._raw.update(update)
        config = self._new_config(logged_config(self._raw, "wandb config", self.name, self.segment))
        if config is not None:
            self._feed.say(start, config, following)

    def _end(self, code: int, seen: float | None) -> RunEvent:
        kind, text = EventKind.CRASH_SUMMARY, f"wandb stored the exit code {code}"
        if code == 0:
            kind, text = EventKind.FINISHED, ""
        elif code == INTERRUPTED:
            kind, text = EventKind.KILLED, "interrupted, by wandb's exit code"
        return self._event(kind, text, step=self._feed.last, seen=seen)

    def _table(self, path: str, seen: float | None) -> CompletionSummary | None:
        """Return the summary of a table, which the client copies beside its log before logging the call."""
        try:
            return self._tables.summary(columns_of(self._bytes(path)), self.stats, seen)
        except SourceError as error:
            self.stats.skip(Skip.OUTSIDE, str(error))
        except (OSError, ValueError) as error:
            self.stats.skip(Skip.UNREADABLE, f"{path}: no such table, or not whole: {error}")
        return None

    def _bytes(self, path: str) -> bytes:
        """Return the content of a table's file.

        Raises:
            SourceError: it lies outside the run's folder, or is no regular file.
            OSError: it can't be read.
            ValueError: it is too large.
        """
        with os.fdopen(open_regular(self._file.path.parent / "files" / path, self._roots), "rb") as file:
            data = file.read(LARGEST_TABLE + 1)
        if len(data) > LARGEST_TABLE:
            raise ValueError("too large")
        return data
