"""Copies runs of an MLflow tracking server into a database like MLflow's own, to be read as such."""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_watch import lazy_re as re
from grpo_watch.credentials import masked
from grpo_watch.errors import SourceError, UsageError
from grpo_watch.extras import install
from grpo_watch.sources.trackers.mlflow import ENDS, MOST_RUNS

if TYPE_CHECKING:
    import sqlite3

ADDRESS = re.compile(r"mlflow(?:\+(https?))?://([^/]*)(.*)")
"""``mlflow://HOST:PORT/EXPERIMENT/RUN``: the host defaults to ``MLFLOW_TRACKING_URI``, the run to all runs."""
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""Defaults unless the user sets others; MLflow's own 7 retries of 120 s each mean minutes of silence."""
UNREACHABLE = "INTERNAL_ERROR"
"""MLflow's error code without a response; for a deleted run the server sends another one."""
TABLES = """
CREATE TABLE IF NOT EXISTS experiments (experiment_id TEXT PRIMARY KEY, name TEXT);
CREATE TABLE IF NOT EXISTS runs (run_uuid TEXT PRIMARY KEY, experiment_id TEXT, name TEXT, start_time INTEGER,
  status TEXT, lifecycle_stage TEXT);
CREATE TABLE IF NOT EXISTS params (run_uuid TEXT, key TEXT, value TEXT, PRIMARY KEY (run_uuid, key));
CREATE TABLE IF NOT EXISTS latest_metrics (run_uuid TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS metrics (run_uuid TEXT, key TEXT, timestamp INTEGER, step INTEGER, value REAL,
  is_nan INTEGER, PRIMARY KEY (run_uuid, key, timestamp, step, value, is_nan));
"""
"""The parts of MLflow's tables that ``MlflowSource`` reads. A repeated number is not stored again."""

log = logging.getLogger("grpo_watch.mlflow")


def is_server(path: str) -> bool:
    """Whether the user's path is a place on an MLflow server."""
    return ADDRESS.fullmatch(path) is not None


class MlflowServer:
    """An experiment's newest runs with metrics, or those of all experiments, or one run, read with MLflow's client.

    ``path`` is their copy in the folder, the same for the same address: later copies add to it. ``address`` is free of
    passwords.

    Raises:
        UsageError: MLflow is not installed, or refuses the address.
    """

    def __init__(self, address: str, folder: Path) -> None:
        self.address = masked(address)
        try:
            mlflow = import_module("mlflow")
        except ImportError:
            raise UsageError(f"{self.address}: needs MLflow's client: {install('mlflow')}") from None
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        (scheme, host, place), *_ = ADDRESS.findall(address)
        self._place = place.strip("/")
        try:
            self._client = mlflow.MlflowClient(f"{scheme or 'http'}://{host}" if host else None)
        except Exception as error:  # noqa: BLE001  its client has errors of many kinds
            raise UsageError(masked(f"{self.address}: {error}")) from None
        self._copied: dict[str, tuple[object, ...]] = {}
        self.path = folder / f"mlflow-{hashlib.blake2s(address.encode(), digest_size=6).hexdigest()}.db"

    def copy(self) -> bool:
        """Copy data since the last call; returns whether there is a run. Failures of a run are logged once.

        Raises:
            SourceError: the server can't be reached, or the copy can't be written.
        """
        import sqlite3  # noqa: PLC0415  only for who names a server

        there = False
        try:
            self.path.touch(0o600)  # private, as all of the state
            with closing(sqlite3.connect(self.path)) as database:
                database.executescript(TABLES)
                for experiment, run in self._runs():
                    there = True
                    try:
                        self._copy(database, experiment, run)
                    except Exception as error:
                        if isinstance(error, sqlite3.Error) or getattr(error, "error_code", "") == UNREACHABLE:
                            raise
                        self._refuse(run.info.run_id, error)
        except Exception as error:  # noqa: BLE001  the same
            raise SourceError(masked(f"{self.address}: {type(error).__name__}: {error}")) from None
        return there

    def _refuse(self, run: str, error: Exception) -> None:
        """Log why a run can't be copied, unless it failed the last time as well."""
        if self._copied.get(run) != ():
            fields = {"place": self.address, "run": run, "error": masked(f"{type(error).__name__}: {error}")}
            log.error("a run of an MLflow server can't be copied", extra={"fields": fields})
        self._copied[run] = ()

    def _runs(self) -> Iterator[tuple[Any, Any]]:
        for experiment in self._experiments():
            name = experiment.name.strip("/")  # Databricks' begin with one
            wanted = self._place.removeprefix(name).strip("/")
            if self._place and self._place != name and not self._place.startswith(f"{name}/"):
                continue
            for run in self._client.search_runs([experiment.experiment_id], max_results=MOST_RUNS):
                if run.data.metrics and wanted in {"", run.info.run_id, run.info.run_name}:
                    yield experiment, run

    def _experiments(self) -> Iterator[Any]:
        page = self._client.search_experiments()
        yield from page
        while page.token:
            page = self._client.search_experiments(page_token=page.token)
            yield from page

    def _copy(self, database: sqlite3.Connection, experiment: Any, run: Any) -> None:
        """Add a run's data since the last copy, in one transaction.

        Its metrics are requested one by one while it continues. The metric logged last comes first, and newer values of
        the others are left out, so that no step is cut.
        """
        info, logged = run.info, run.data.to_proto().metrics
        key = max(logged, key=lambda metric: metric.timestamp).key
        first = self._client.get_metric_history(info.run_id, key)
        latest = {metric.key: (metric.timestamp, metric.step, str(metric.value)) for metric in logged}
        copied = (info.status, latest, run.data.params, len(first))
        if self._copied.get(info.run_id) == copied:
            return
        newest = math.inf if info.status in ENDS else max(point.timestamp for point in first)
        points = [*first]
        for other in run.data.metrics.keys() - {key}:
            points.extend(self._client.get_metric_history(info.run_id, other))
        points.sort(key=lambda point: (point.timestamp, point.step, point.key))
        stored = [
            (info.run_id, point.key, point.timestamp, point.step, *_stored(point.value))
            for point in points
            if point.timestamp <= newest
        ]
        with database:
            put = "INSERT OR REPLACE INTO"
            database.execute(f"{put} experiments VALUES (?, ?)", (experiment.experiment_id, experiment.name))
            row = (info.run_id, experiment.experiment_id, info.run_name, info.start_time, info.status, "active")
            database.execute(f"{put} runs VALUES (?, ?, ?, ?, ?, ?)", row)
            database.execute(f"{put} latest_metrics VALUES (?)", (info.run_id,))
            params = [(info.run_id, *param) for param in run.data.params.items()]
            database.executemany(f"{put} params VALUES (?, ?, ?)", params)
            database.executemany("INSERT OR IGNORE INTO metrics VALUES (?, ?, ?, ?, ?, ?)", stored)
        self._copied[info.run_id] = copied


def _stored(value: float) -> tuple[float, int]:
    """Return a value as stored by MLflow: NaN in a column of its own."""
    return (0.0, 1) if math.isnan(value) else (value, 0)
