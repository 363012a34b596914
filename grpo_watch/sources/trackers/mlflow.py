"""Reads MLflow's SQLite database (``mlflow.db``, verl's ``/tmp/mlruns.db``) and its file store, read-only."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import EventKind, Item, RunConfig
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.python_literal import atom
from grpo_watch.sources.base import Skip
from grpo_watch.sources.files.reading import BUDGET, open_regular
from grpo_watch.sources.settings.config_files import logged_config
from grpo_watch.sources.trackers.database import DatabaseSource, query
from grpo_watch.sources.trackers.tfevents import AT_END
from grpo_watch.sources.trackers.tracker_source import LoggedRun

LARGEST = 1.7976931348623157e308
"""Stored for an infinity (``sanitize_metric_value`` in MLflow's ``sqlalchemy_store``); NaN has a column."""
MOST_RUNS = 50
"""Most runs of a database that are read, newest first: a server's may hold thousands."""
SHORT = 8
"""Characters of a run's id that distinguish runs of the same name."""
RUNS = (
    "SELECT substr(r.run_uuid, 1, 32), substr(e.name, 1, 256), substr(r.name, 1, 250) FROM runs r"
    " LEFT JOIN experiments e ON e.experiment_id = r.experiment_id"
    " WHERE r.lifecycle_stage = 'active' AND EXISTS (SELECT 1 FROM latest_metrics m WHERE m.run_uuid = r.run_uuid)"
    " ORDER BY r.start_time DESC, r.run_uuid LIMIT ?"
)
"""Query for the runs; texts are cut at the length of MLflow's own columns, as SQLite stores any length."""
PARAMS = "SELECT substr(key, 1, 250), substr(value, 1, 8000) FROM params WHERE run_uuid = ? ORDER BY key"
STATUS = "SELECT substr(status, 1, 20) FROM runs WHERE run_uuid = ?"
ENDS: Mapping[str, EventKind] = {
    "FINISHED": EventKind.FINISHED,
    "FAILED": EventKind.CRASH_SUMMARY,
    "KILLED": EventKind.KILLED,
}


class MlflowSource(DatabaseSource):
    """Reads one run: each number is stored as a row, and those of one step make a raw row.

    Rows are read in stored order; the step is the job's own.
    """

    OWN_TABLES = frozenset({"metrics", "params", "runs", "experiments", "latest_metrics"})
    ROWS = (
        "SELECT rowid, substr(key, 1, 250), value, timestamp, step, is_nan FROM metrics"
        " WHERE run_uuid = ? AND rowid >= ? AND typeof(value) IN ('real', 'integer')"
        " AND (typeof(timestamp), typeof(step), typeof(is_nan)) = ('integer', 'integer', 'integer')"
        " ORDER BY rowid LIMIT ?"
    )

    @classmethod
    def runs(cls, path: Path, roots: Sequence[Path]) -> list[LoggedRun]:
        """Return the newest runs with metrics, named ``experiment/run``; empty if the database can't be read."""
        try:
            found = query(path, roots, cls.OWN_TABLES, RUNS, MOST_RUNS)
        except (SourceError, OSError):
            return []
        shown = {str(key): f"{experiment}/{name or key}" for key, experiment, name in found}
        times = Counter(shown.values())
        runs = [LoggedRun(key, name if times[name] == 1 else f"{name}-{key[:SHORT]}") for key, name in shown.items()]
        return sorted(runs, key=lambda run: run.shown)

    def read_record(self, start: int, following: int, record: Sequence[object], seen: float | None) -> None:
        """Read a number: its key, value, time (milliseconds), step, and whether it is NaN."""
        del following
        key, value, milliseconds, step, nan = record
        if not (isinstance(value, (int, float)) and isinstance(milliseconds, int) and isinstance(step, int)):
            return
        number = math.nan if nan else float(value)
        number = math.copysign(math.inf, number) if abs(number) == LARGEST else number
        if key not in AT_END:
            self._feed.add(start, step, {str(key): number}, milliseconds / 1000, seen)

    def _settings(self) -> RunConfig | None:
        raw: dict[str, object] = {}
        for key, value in self._params():
            place = raw
            *folders, last = str(key).split("/")  # verl joins the names of nested settings like this
            for folder in folders:
                inner = place.setdefault(folder, {})
                place = inner if isinstance(inner, dict) else {}
            whole = row_numbers.whole(str(value))
            place[last] = atom(str(value)) if whole is None else whole
        return logged_config(raw, "mlflow params", self.name, self.segment)

    def _over(self) -> tuple[EventKind, str] | None:
        status = self._status()
        kind = ENDS.get(status)
        text = "" if kind is EventKind.FINISHED else f"MLflow stored the status {status}"
        return (kind, text) if kind is not None else None

    def _params(self) -> Iterable[Sequence[Any]]:
        return self._query(PARAMS, self._run)

    def _status(self) -> str:
        stored = self._query(STATUS, self._run)
        return str(stored[0][0]) if stored else ""


META, METRICS = "meta.yaml", "metrics"
LINE = re.compile(rb"(\d{13}) (\S{1,30}) (\d{1,9})")
"""Milliseconds, value, step."""
Line: TypeAlias = tuple[int, int, str, float]
"""Milliseconds, step, key, value; lines of all files are read in this order."""
STATE = re.compile(r"^status: (\d)$", re.MULTILINE)
STATUSES = {"3": "FINISHED", "4": "FAILED", "5": "KILLED"}
MOST_FILES, LARGEST_FILE = 4_096, 64 << 10
"""Most metrics or parameters of a run, and most bytes of a parameter or of the run's own file."""


class MlflowFilesSource(MlflowSource):
    """Reads one run of the file store (``mlruns/EXPERIMENT/RUN``), which is MLflow 2's default: a file for each metric.

    New lines of all files are read in the order of their times; a line's place is its number in this order.
    """

    SUFFIXES = (META,)

    @classmethod
    def holds(cls, path: Path, roots: Sequence[Path]) -> bool:  # noqa: ARG003
        """Whether a file is a run's own file, beside its metrics."""
        return path.name == META and (path.parent / METRICS).is_dir()

    @classmethod
    def runs(cls, path: Path, roots: Sequence[Path]) -> list[LoggedRun]:  # noqa: ARG003
        """Return an empty list: each run has its own folder."""
        return []

    def _open(self) -> None:
        super()._open()
        self._read_of: dict[Path, int] = {}
        self._refused = set[Path]()
        self._lines, self._given, self._changed = 0, list[tuple[str, str]](), 0

    def _read(self, seen: float | None) -> Iterator[Item]:
        more = True
        while more:
            lines, more = self._new_lines()
            for milliseconds, step, key, value in sorted(lines):
                place, self._lines = self._lines, self._lines + 1
                if place >= self._feed.read_to:
                    self._feed.read_to = place + 1
                    self.read_record(place, place + 1, (key, value, milliseconds, step, math.isnan(value)), seen)
                    yield from self._give()
            if more and seen is not None:
                self._budget.spent = True
                return

    def _new_lines(self) -> tuple[list[Line], bool]:
        """Return the new lines, an equal part of a turn's bytes per file, and whether there is more.

        If files have more, the round ends at the earliest of their last lines, so that all files stay at the same step.

        Raises:
            OSError: a file can't be read for the first time; no line was taken, and the next poll reads all again.
        """
        files = self._files(METRICS)
        most = BUDGET // max(1, len(files))
        parts, ends, more = dict[Path, list[tuple[int, Line | None]]](), list[tuple[int, int]](), False
        failed: OSError | None = None
        for path in files:
            try:
                data = self._bytes(path, self._read_of.get(path, 0), most)
            except (SourceError, OSError) as error:
                failed = error if self._refuse(path, error) and isinstance(error, OSError) else failed
                continue
            self._refused.discard(path)
            key, cut = path.relative_to(self._path.parent / METRICS).as_posix(), len(data) == most
            whole = data[: data.rfind(b"\n") + 1] or (data if cut else b"")
            parts[path] = [(len(line), _line(key, line)) for line in whole.splitlines(keepends=True)]
            more = more or cut
            if cut:
                ends.extend([line[:2] for _, line in parts[path] if line is not None][-1:])
        if failed is not None:
            raise failed
        return list(self._taken(parts, min(ends, default=None))), more

    def _taken(
        self, parts: Mapping[Path, Sequence[tuple[int, Line | None]]], last: tuple[int, int] | None
    ) -> Iterator[Line]:
        """Yield the lines up to a time and step (None: all), and mark them as read."""
        for path, lines in parts.items():
            within = (n for n, (_, line) in enumerate(lines, 1) if line is not None and last and line[:2] <= last)
            for size, line in lines[: len(lines) if last is None else max(within, default=0)]:
                self._read_of[path] = self._read_of.get(path, 0) + size
                self.stats.bytes += size
                if line is None:
                    self.stats.skip(Skip.NOT_A_ROW, f"{path.name}: no line of a metric")
                else:
                    yield line

    def _refuse(self, path: Path, error: Exception) -> bool:
        """Count an unreadable file; returns whether it was readable before."""
        new = path not in self._refused
        if new:
            self._refused.add(path)
            self.stats.skip(Skip.UNREADABLE, str(error))
        return new

    def _files(self, kind: str) -> list[Path]:
        """Return the files of a kind; a key with slashes lies in folders."""
        walked = os.walk(self._path.parent / kind)
        places = (Path(folder, name) for folder, _, names in walked for name in names)
        return sorted(islice(places, MOST_FILES))

    def _bytes(self, path: Path, start: int, most: int) -> bytes:
        with os.fdopen(open_regular(path, self._roots), "rb") as file:
            return os.pread(file.fileno(), most, start)

    def _params(self) -> Iterable[Sequence[Any]]:
        folder = self._path.parent / "params"
        changed = folder.stat().st_mtime_ns if folder.is_dir() else 0
        if changed != self._changed:
            self._changed, self._given = changed, []
            for path in self._files("params"):
                try:
                    text = self._bytes(path, 0, LARGEST_FILE).decode("utf-8", "replace")
                except (SourceError, OSError) as error:
                    self._refuse(path, error)
                    self._changed = 0  # the next poll tries again
                    continue
                self._given.append((path.relative_to(folder).as_posix(), text))
        return self._given

    def _status(self) -> str:
        found = STATE.search(self._bytes(self._path, 0, LARGEST_FILE).decode("utf-8", "replace"))
        return STATUSES.get(found[1], "") if found is not None else ""


def _line(key: str, line: bytes) -> Line | None:
    match = LINE.fullmatch(line.rstrip(b"\r\n"))
    value = row_numbers.number(match[2].decode("ascii", "replace")) if match is not None else None
    return (int(match[1]), int(match[3]), key, value) if match is not None and value is not None else None
