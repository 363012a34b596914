"""Reads MLflow's SQLite database (``mlflow.db``, verl's ``/tmp/mlruns.db``) and its file store, read-only."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from grpo_watch.engine.records import Cursor, EventKind, Item, RunConfig
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.python_literal import atom
from grpo_watch.sources.base import Skip
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.files.throttle import BUDGET
from grpo_watch.sources.settings.config_files import logged_config
from grpo_watch.sources.trackers.database import DatabaseSource, query
from grpo_watch.sources.trackers.tfevents import AT_END
from grpo_watch.sources.trackers.tracker_source import LoggedRun

LARGEST = 1.7976931348623157e308
"""What stands for an infinity (``sanitize_metric_value`` in MLflow's ``sqlalchemy_store``); NaN has a column."""
MOST_RUNS = 50
"""Newest runs of a database that are read: a server's may hold thousands."""
SHORT = 8
"""Characters of a run's id that distinguish runs of one name."""
RUNS = (
    "SELECT substr(r.run_uuid, 1, 32), substr(e.name, 1, 256), substr(r.name, 1, 250) FROM runs r"
    " LEFT JOIN experiments e ON e.experiment_id = r.experiment_id"
    " WHERE r.lifecycle_stage = 'active' AND EXISTS (SELECT 1 FROM latest_metrics m WHERE m.run_uuid = r.run_uuid)"
    " ORDER BY r.start_time DESC, r.run_uuid LIMIT ?"
)
"""Texts are cut where MLflow's own columns end; SQLite stores any length."""
PARAMS = "SELECT substr(key, 1, 250), substr(value, 1, 8000) FROM params WHERE run_uuid = ? ORDER BY key"
STATUS = "SELECT substr(status, 1, 20) FROM runs WHERE run_uuid = ?"
ENDS: Mapping[str, EventKind] = {
    "FINISHED": EventKind.FINISHED,
    "FAILED": EventKind.CRASH_SUMMARY,
    "KILLED": EventKind.KILLED,
}


class MlflowSource(DatabaseSource):
    """Reads one run: each number is a row of its own, and those of one step make a row.

    Rows are read in the order in which they were stored. The step is the one that the job logs under.
    """

    WHAT = "mlflow"
    OWN_TABLES = frozenset({"metrics", "params", "runs", "experiments", "latest_metrics"})
    ROWS = (
        "SELECT rowid, substr(key, 1, 250), value, timestamp, step, is_nan FROM metrics"
        " WHERE run_uuid = ? AND rowid >= ? AND typeof(value) IN ('real', 'integer')"
        " AND (typeof(timestamp), typeof(step), typeof(is_nan)) = ('integer', 'integer', 'integer')"
        " ORDER BY rowid LIMIT ?"
    )

    @classmethod
    def runs(cls, path: Path, roots: Sequence[Path]) -> list[LoggedRun]:
        """The newest runs with metrics, named ``experiment/run``; none where the database can't be read."""
        try:
            found = query(path, roots, cls.OWN_TABLES, RUNS, MOST_RUNS)
        except (SourceError, OSError):
            return []
        shown = {str(key): f"{experiment}/{name or key}" for key, experiment, name in found}
        times = Counter(shown.values())
        runs = [LoggedRun(key, name if times[name] == 1 else f"{name}-{key[:SHORT]}") for key, name in shown.items()]
        return sorted(runs, key=lambda run: run.shown)

    def take(self, start: int, following: int, record: Sequence[object], seen: float | None) -> None:
        """A number: its key, value, when (milliseconds), step, and whether it is NaN."""
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
            *folders, last = str(key).split("/")  # verl joins the names of nested settings so
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
STATE = re.compile(r"^status: (\d)$", re.MULTILINE)
STATES = {"3": "FINISHED", "4": "FAILED", "5": "KILLED"}
MOST_FILES, LARGEST_FILE = 4_096, 64 << 10
"""Metrics or parameters of a run, and bytes of a parameter or of the run's own file."""


class MlflowFilesSource(MlflowSource):
    """Reads one run of the file store (``mlruns/EXPERIMENT/RUN``), which is MLflow 2's default: a file for each metric.

    New lines of all files are taken in the order of their times; the number of a line in it is its place.
    """

    WHAT, SUFFIXES = "mlflow run", (META,)

    @classmethod
    def holds(cls, path: Path, roots: Sequence[Path]) -> bool:  # noqa: ARG003
        """Whether a file is that of a run, beside its metrics."""
        return path.name == META and (path.parent / METRICS).is_dir()

    @classmethod
    def runs(cls, path: Path, roots: Sequence[Path]) -> list[LoggedRun]:  # noqa: ARG003
        """None: each run has its own folder."""
        return []

    def _begin(self, cursor: Cursor | None) -> None:
        super()._begin(cursor)
        self._read_of: dict[Path, int] = {}
        self._lines, self._given, self._changed = 0, list[tuple[str, str]](), 0

    def _read(self, seen: float | None) -> Iterator[Item]:
        more = True
        while more:
            lines, more = self._new_lines()
            for milliseconds, step, key, value in sorted(lines):
                place, self._lines = self._lines, self._lines + 1
                if place >= self._feed.read_to:
                    self._feed.read_to = place + 1
                    self.take(place, place + 1, (key, value, milliseconds, step, math.isnan(value)), seen)
                    yield from self._give()
            if more and seen is not None:
                self._budget.spent = True
                return

    def _new_lines(self) -> tuple[list[tuple[int, int, str, float]], bool]:
        """The lines that came since, of each file the same part of a turn's bytes, and whether there is more."""
        files = self._files(METRICS)
        most, found, more = BUDGET // max(1, len(files)), list[tuple[int, int, str, float]](), False
        for path in files:
            start = self._read_of.get(path, 0)
            data = self._bytes(path, start, most)
            whole = data[: data.rfind(b"\n") + 1]
            self._read_of[path] = start + len(whole)
            more = more or (len(data) == most and bool(whole))
            self.stats.bytes += len(whole)
            key = path.relative_to(self._path.parent / METRICS).as_posix()
            for line in whole.splitlines():
                match = LINE.fullmatch(line)
                value = row_numbers.number(match[2].decode("ascii", "replace")) if match is not None else None
                if match is None or value is None:
                    self.stats.skip(Skip.NOT_A_ROW, f"{key}: no line of a metric")
                else:
                    found.append((int(match[1]), int(match[3]), key, value))
        return found, more

    def _files(self, kind: str) -> list[Path]:
        """The files of a kind; a key with slashes lies in folders."""
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
            self._changed = changed
            self._given = [
                (path.relative_to(folder).as_posix(), self._bytes(path, 0, LARGEST_FILE).decode("utf-8", "replace"))
                for path in self._files("params")
            ]
        return self._given

    def _status(self) -> str:
        found = STATE.search(self._bytes(self._path, 0, LARGEST_FILE).decode("utf-8", "replace"))
        return STATES.get(found[1], "") if found is not None else ""
