"""Reads the log of SwanLab's client: ``run-ID.swanlab`` (0.8 and later), ``backup.swanlab`` before."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from grpo_watch.engine.records import EventKind, Item, RunEvent, Scalar
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.base import Skip, recalled, remembered
from grpo_watch.sources.console.markers import find_markers, readable
from grpo_watch.sources.console.older_state import older_state
from grpo_watch.sources.console.parser import TABLE
from grpo_watch.sources.console.tracebacks import Sign, Tracebacks
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.rows.jsonl import decode
from grpo_watch.sources.settings.config_files import logged_config
from grpo_watch.sources.settings.documents import plain_yaml
from grpo_watch.sources.trackers import framing
from grpo_watch.sources.trackers.tfevents import AT_END
from grpo_watch.sources.trackers.tracker_source import BlockLog, iso_seconds

HEADERS = tuple(framing.HEADER.pack(b":SWL", 0xE1D6, version) for version in (1, 2))
OLD = b"{"
"""First byte of a record of version 1, which is JSON; later ones are protobuf."""
OWN = "__swanlab__."
"""Prefix of the client's own measurements of the machine."""
LARGEST_CONFIG = 1 << 20
DASHBOARD = "runs.swanlab"
"""The SQLite database of mode ``local`` for its dashboard; the runs' own logs have the same data."""
RUNNING = 0
ENDS: Mapping[int, EventKind] = {1: EventKind.FINISHED, 2: EventKind.CRASH_SUMMARY, 3: EventKind.KILLED}
"""Ends by ``RunState`` (3: aborted, by Ctrl-C)."""
ITS_END = "SwanLab stored that the run "
SAYS = {2: f"{ITS_END}crashed", 3: f"{ITS_END}was aborted"}
NO_END = f"{ITS_END}finished, but an error was printed behind its last row"
"""The client stores no exit code: a job that prints its traceback and calls ``sys.exit(1)`` is stored as finished."""
_FINISH, _SCALAR, _LOG = 11, 13, 16
_KEY, _STEP, _TIME, _VALUE = 1, 2, 4, 5
_LINE, _PRINTED_AT = 1, 3
LONGEST_LINE = 1_000
"""Characters of a printed line that are read."""


class LoggedNumber(Struct, frozen=True):
    """One number of a logged call; ``step`` is the job's own, or SwanLab's count of calls."""

    key: str
    step: int | None
    value: float | None
    time: float | None


class StoredState(Struct, frozen=True):
    """Whether and how the run ended, with the end of a traceback if there was one."""

    state: int
    error: str


class PrintedLine(Struct, frozen=True):
    """A line of the job's console and its time (Unix seconds)."""

    text: str
    time: float | None


SwanlabRecord: TypeAlias = LoggedNumber | StoredState | PrintedLine


class SwanlabSource(BlockLog):
    """Reads one run; rows are joined by the job's own step.

    The client does not flush its writes (up to 0.10): the newest 8 KiB, a few rows, may be missing, and are lost if the
    job is killed. Settings lie in ``files/config.yaml`` next to the log. Of the console's lines, only errors are read
    (with ``tables``): its rows repeat the metrics.
    """

    SUFFIXES, HEADERS = (".swanlab",), HEADERS
    GIVES = "metric rows, settings, printed errors, end; the newest 8 KiB may not be written yet"

    @classmethod
    def holds(cls, path: Path, roots: Sequence[Path]) -> bool:
        """Whether a file is named like such a log and is not the dashboard's."""
        return path.name != DASHBOARD and super().holds(path, roots)

    def _open(self) -> None:
        super()._open()
        self._error, self._refused_config = str(self._known.get("error") or ""), ""
        self._version: tuple[int, ...] = ()
        self._begin_lines(self._known)

    def _begin_lines(self, state: Mapping[str, Scalar]) -> None:
        state = older_state(state)
        self._errors, self._reported = recalled(Tracebacks, state.get("errors")), str(state.get("reported") or "")
        self._over = state.get("over") is True
        self._read_lines_to, self._failed_at = int(state.get("lines to") or 0), float(state.get("failed at") or 0)
        for line in str(state["open"]).split("\n") if "open" in state else ():  # older states hold a traceback's lines
            self._sign_of(line)

    def _rest(self) -> Iterator[Item]:
        yield from super()._rest()
        if (sign := self._errors.flush()) is not None and not (self._over or self._reported):
            yield self._event(sign.kind, sign.text, self._feed.last)

    def _before(self, seen: float | None) -> Iterator[Item]:
        """Yield the settings beside the log, each as ``{desc, sort, value}``, if written since the last poll."""
        del seen
        path = self._file.path.parent / "files" / "config.yaml"
        try:
            with os.fdopen(open_regular(path, self._roots), "rb") as file:
                node = os.fstat(file.fileno())
                before, self._version = self._version, (node.st_ino, node.st_mtime_ns, node.st_size)
                if before == self._version:
                    return
                held = plain_yaml(file.read(LARGEST_CONFIG).decode("utf-8", "replace"))
        except FileNotFoundError:
            return
        except (SourceError, OSError, ValueError) as error:
            if str(error) != self._refused_config:
                self._refused_config = str(error)
                self.stats.skip(Skip.UNREADABLE, str(error))
            return
        entries = held.items() if isinstance(held, dict) else ()
        raw = {str(key): entry["value"] for key, entry in entries if isinstance(entry, dict) and "value" in entry}
        if (config := self._new_config(logged_config(raw, "swanlab config", self.name, self.segment))) is not None:
            yield config

    def _state(self) -> dict[str, Scalar]:
        said: dict[str, Scalar] = {"error": self._error, "config": self._config, "reported": self._reported}
        lines = {"lines to": self._read_lines_to, "failed at": self._failed_at, "over": self._over}
        return {**said, "errors": remembered(self._errors), **lines}

    def _start_over(self) -> None:
        self._error = self._config = ""
        self._version = ()
        self._begin_lines({})

    @staticmethod
    def decode(payload: bytes) -> SwanlabRecord | None:
        """Decode a record: a JSON text (up to 0.7) or a protobuf ``Record``.

        Raises:
            ValueError: it can't be decoded.
        """
        return _old(payload) if payload.startswith(OLD) else _new(payload)

    @staticmethod
    def time_of(record: SwanlabRecord | None) -> float | None:
        """Return when a number of the job's was logged."""
        return record.time if isinstance(record, LoggedNumber) and not record.key.startswith(OWN) else None

    def read_record(self, start: int, following: int, record: SwanlabRecord | None, seen: float | None) -> None:
        """Read a number, a printed line, an error, or the end."""
        if isinstance(record, LoggedNumber) and not record.key.startswith(OWN):
            self._went_on(record)
            if record.key not in AT_END:
                self._feed.add(start, record.step, {record.key: record.value}, record.time, seen)
        elif isinstance(record, PrintedLine):
            self._print(start, following, record, seen)
        elif isinstance(record, StoredState) and record.state not in ENDS:
            self._error = record.error or self._error
        elif isinstance(record, StoredState):
            self._feed.flush(start, seen)
            self._feed.say(start, self._end(record, seen), following)

    def _end(self, record: StoredState, seen: float | None) -> RunEvent:
        self._errors.clear()
        kind, says = ENDS[record.state], SAYS.get(record.state, "")
        if kind is EventKind.FINISHED and self._reported and not self._over:
            kind, says = EventKind.CRASH_SUMMARY, NO_END
        text = ": ".join(filter(None, (says, record.error or self._error or self._reported))) if says else ""
        return self._event(kind, text, self._feed.last, seen)

    def _print(self, start: int, following: int, line: PrintedLine, seen: float | None) -> None:
        """Report the error that a line names, once until the next row."""
        if start <= self._read_lines_to or not self._read_tables:
            return
        self._read_lines_to, sign = start, self._sign_of(line.text[:LONGEST_LINE])
        if line.time is not None and (sign is not None or self._errors.open):
            self._failed_at = line.time
        if sign is not None and not self._over and sign.text != self._reported:
            self._reported = sign.text
            self._feed.say(start, self._event(sign.kind, sign.text, self._feed.last, seen), following)

    def _went_on(self, number: LoggedNumber) -> None:
        """Note that a number after an error shows that the job continued; the client may write lines first."""
        self._over = self._over or number.key in AT_END
        if number.time is not None and number.time > self._failed_at:
            self._errors.clear()
            self._reported = ""

    def _sign_of(self, line: str) -> Sign | None:
        """Return the error that a line names, as in a console."""
        data, errors = line.encode(), self._errors
        if (taken := errors.open) and (sign := errors.sign_of(data)) is not None:
            return sign
        found = find_markers(data) if data[: len(TABLE)] != TABLE else None
        if found is None:
            errors.passed()
        elif found.traceback:
            errors.begin(data)
        elif found.trouble:
            return None if taken else errors.sign_of(data)
        elif found.event is EventKind.KILLED:
            return Sign(found.event, found.text)
        return None


def _new(payload: bytes) -> SwanlabRecord | None:
    """Decode a protobuf record; None if it has no training data."""
    for number, value in framing.fields(payload):
        if not isinstance(value, bytes):
            continue
        if number == _SCALAR:
            return _scalar(value)
        if number == _LOG:
            line = dict(framing.fields(value))
            return PrintedLine(framing.text(line.get(_LINE, b"")), _seconds(line.get(_PRINTED_AT)))
        if number == _FINISH:
            inner = dict(framing.fields(value))
            state = inner.get(1, 0)
            return StoredState(state if isinstance(state, int) else 0, _last_line(framing.text(inner.get(2, b""))))
    return None


def _scalar(message: bytes) -> LoggedNumber:
    """Decode a number; protobuf omits zeros: a step, and the number inside its ``value``."""
    inner = dict(framing.fields(message))
    step, stored, time = inner.get(_STEP, 0), inner.get(_VALUE), inner.get(_TIME)
    value = None
    if isinstance(stored, bytes):
        value = framing.double(dict(framing.fields(stored)).get(1, bytes(8)))
    return LoggedNumber(framing.text(inner.get(_KEY, b"")), row_numbers.whole(step), value, _seconds(time))


def _seconds(stamp: int | bytes | None) -> float | None:
    """Return Unix seconds of a protobuf ``Timestamp``."""
    if not isinstance(stamp, bytes):
        return None
    parts = {number: part for number, part in framing.fields(stamp) if isinstance(part, int)}
    return parts.get(1, 0) + parts.get(2, 0) / 1e9


def _old(payload: bytes) -> SwanlabRecord | None:
    """Decode a record of version 1: ``{"model_type": …, "data": {…}}``.

    Raises:
        ValueError: it is no JSON object.
    """
    row = decode(payload)
    if row is None:
        raise ValueError("no JSON object")
    kind, data = row.get("model_type"), row.get("data")
    if not isinstance(data, dict):
        return None
    if kind == "Scalar" and isinstance(metric := data.get("metric"), dict):
        values = row_numbers.numbers({"value": metric.get("data")})
        time = iso_seconds(metric.get("create_time"))
        return LoggedNumber(str(data.get("key")), row_numbers.whole(data.get("step")), values.get("value"), time)
    if kind == "Log":
        text = str(data.get("message"))
        if "\n" in text and '  File "' in text:  # the error that ended the run, in one record; others hold a line each
            return StoredState(RUNNING, _last_line(text))
        return PrintedLine(text, iso_seconds(data.get("create_time")))
    return StoredState(1 if data.get("success") is True else 2, "") if kind == "Footer" else None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return readable(lines[-1].encode()) if lines else ""
