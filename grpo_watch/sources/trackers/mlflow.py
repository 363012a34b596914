"""Reads MLflow's SQLite database (``mlflow.db``, verl's ``/tmp/mlruns.db``), read-only."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo_watch.engine.records import EventKind, RunConfig
from grpo_watch.errors import SourceError
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.python_literal import atom
from grpo_watch.sources.settings.logged_config import logged_config
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
        for key, value in self._query(PARAMS, self._run):
            place = raw
            *folders, last = str(key).split("/")  # verl joins the names of nested settings so
            for folder in folders:
                inner = place.setdefault(folder, {})
                place = inner if isinstance(inner, dict) else {}
            whole = row_numbers.whole(str(value))
            place[last] = atom(str(value)) if whole is None else whole
        return logged_config(raw, "mlflow params", self.name, self.segment)

    def _over(self) -> tuple[EventKind, str] | None:
        stored = self._query(STATUS, self._run)
        status = str(stored[0][0]) if stored else ""
        kind = ENDS.get(status)
        text = "" if kind is EventKind.FINISHED else f"MLflow stored the status {status}"
        return (kind, text) if kind is not None else None
