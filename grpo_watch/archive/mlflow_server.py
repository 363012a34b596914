"""Shows the runs of an MLflow tracking server as the files that its file store would hold, to be copied and read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from grpo_watch.errors import UsageError
from grpo_watch.extras import install
from grpo_watch.sources.trackers.mlflow import META, METRICS, MOST_RUNS, STATUSES

ADDRESS = re.compile(r"mlflow(?:\+(?P<scheme>https?))?://(?P<host>[^/]*)(?P<path>.*)")
"""``mlflow://HOST:PORT/EXPERIMENT/RUN``: without a host what ``MLFLOW_TRACKING_URI`` says, without a run all of it."""
PARAMS, RUNNING = "params", "1"
FILE = re.compile(rf"-(?P<run>[0-9a-f]{{32}})/(?P<kind>{re.escape(META)}|{METRICS}|{PARAMS})(?:/(?P<key>.+))?$")
UNSAFE = re.compile(r"[^\w.-]+")
"""What the name of a run may hold and that of a folder may not."""
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""Where the user sets no others; MLflow's own 7 repetitions of 120 s each are minutes of silence."""


class MlflowServer:
    """The part of a file system that copying needs, over MLflow's own client.

    Raises:
        UsageError: MLflow is not installed.
    """

    def __init__(self, host: str, scheme: str) -> None:
        try:
            mlflow = import_module("mlflow")
        except ImportError:
            raise UsageError(f"{host}: needs MLflow's client: {install('mlflow')}") from None
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        self._client = mlflow.MlflowClient(f"{scheme}://{host}" if host else None)
        self._runs: dict[str, Any] = {}

    def glob(self, path: str) -> list[str]:
        """Names hold no wildcards here."""
        return [path]

    def find(self, root: str, *, detail: bool) -> dict[str, dict[str, object]]:
        """The files of the newest runs with metrics, of each experiment or of the one that is named, or of one run."""
        del detail
        files: dict[str, dict[str, object]] = {}
        for experiment in self._experiments():
            name = experiment.name.strip("/")  # Databricks' begin with one
            wanted = root.removeprefix(name).strip("/")
            if root and root != name and not root.startswith(f"{name}/"):
                continue
            for run in self._client.search_runs([experiment.experiment_id], max_results=MOST_RUNS):
                if run.data.metrics and wanted in {"", run.info.run_id, run.info.run_name}:
                    files.update({f"{root}/{path}": described for path, described in _files(run)})
        return files

    def _experiments(self) -> Iterator[Any]:
        page = self._client.search_experiments()
        yield from page
        while page.token:
            page = self._client.search_experiments(page_token=page.token)
            yield from page

    def get_file(self, path: str, target: str) -> None:
        """Write one file as the file store has it."""
        found = FILE.search(path)
        if found is None:
            raise FileNotFoundError(path)
        run = self._runs.setdefault(found["run"], None) or self._client.get_run(found["run"])
        self._runs[found["run"]] = run
        if found["kind"] == METRICS:
            points = self._client.get_metric_history(found["run"], found["key"])
            text = "".join(f"{point.timestamp} {point.value} {point.step}\n" for point in points)
        elif found["kind"] == PARAMS:
            text = str(run.data.params[found["key"]])
        else:
            number = next((number for number, name in STATUSES.items() if name == run.info.status), RUNNING)
            text = f"run_name: {run.info.run_id}\nstatus: {number}\n"
        Path(target).write_text(text, encoding="utf-8")


def _files(run: Any) -> Iterator[tuple[str, dict[str, object]]]:
    """The files of a run, with what changes when it goes on."""
    folder = f"{UNSAFE.sub('_', run.info.run_name or 'run')}-{run.info.run_id}"
    described: dict[str, object] = {"type": "file", "size": 0, "ETag": f"{run.info.status} {run.data.metrics}"}
    names = [META, *(f"{METRICS}/{key}" for key in run.data.metrics), *(f"{PARAMS}/{key}" for key in run.data.params)]
    return ((f"{folder}/{name}", described) for name in names)
