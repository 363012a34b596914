"""Runs of an MLflow tracking server, through a client that answers as MLflow's own does (see ``live_training``)."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from grpo_watch.cli import tracker_servers
from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.cli.main import run_cli
from grpo_watch.cli.tracker_servers import MlflowCopies, Poller, local_copies, watched_paths
from grpo_watch.config.schema import Settings
from grpo_watch.engine.records import Tick
from grpo_watch.errors import SourceError, UsageError
from grpo_watch.report.check_document import document
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.trackers import mlflow_server
from grpo_watch.sources.trackers.mlflow_server import MlflowServer
from tests.support.tracker_files import mlflow

RUN = "9298a58d8f9f43f9b484c904afc45e3a"
ROWS = [
    (
        step,
        {
            "train/reward": 0.3 + step % 3 / 10,
            "train/reward_std": 0.4,
            "train/kl": math.nan if step == 20 else 0.0,
            "train/learning_rate": 1e-6,
        },
    )
    for step in range(1, 41)
]
ADDRESS = "mlflow://h/Users/me/grpo"


class Page(list[Any]):
    """A list that says where the next one begins."""

    token: str | None = None


class Client:
    """One run of the experiment ``/Users/me/grpo``, which is on the second page, and one that never logged."""

    asked: ClassVar[list[str | None]] = []
    rows: ClassVar[list[tuple[int, dict[str, float]]]] = []
    status = "FINISHED"
    grows = 0
    """Rows that come with each question."""
    gone: Exception | None = None
    """What is raised for the numbers of the run ``e…``, which then has logged as well."""

    def __init__(self, uri: str | None) -> None:
        self.asked.append(uri)
        if uri == "https://user:hunter2@bad":
            raise ValueError(f"{uri} has no port")

    def search_experiments(self, page_token: str | None = None) -> Page:
        number, name = {None: ("0", "Default"), "next": ("7", "/Users/me/grpo")}[page_token]
        page = Page([SimpleNamespace(experiment_id=number, name=name)])
        page.token = "next" if page_token is None else None
        return page

    def search_runs(self, experiments: list[str], *, max_results: int) -> list[Any]:
        assert max_results == 50
        return [self._run("e" * 32), self._run(RUN)] if experiments == ["7"] else []

    def _run(self, run: str) -> Any:
        info = SimpleNamespace(run_id=run, run_name="lr 1e-6/β", status=self.status, start_time=1_795_695_075_000)
        newest = [point for key in ROWS[0][1] for point in self._history(key)[-1:]]
        newest = newest if run == RUN or self.gone else []
        params = {"beta": "0.04", "actor/lr": "1e-06"}
        metrics = {point.key: point.value for point in newest}
        data = SimpleNamespace(metrics=metrics, params=params, to_proto=lambda: SimpleNamespace(metrics=newest))
        return SimpleNamespace(info=info, data=data)

    def _history(self, key: str) -> list[Any]:
        begin = 1_795_695_075_000 + [*ROWS[0][1]].index(key)
        return [
            SimpleNamespace(key=key, timestamp=begin + 1_000 * step, value=values[key], step=step)
            for step, values in self.rows
            if key in values
        ]

    def get_metric_history(self, run: str, key: str) -> list[Any]:
        if run != RUN:
            assert self.gone
            raise self.gone
        history = self._history(key)
        self.rows.extend(ROWS[len(self.rows) :][: self.grows])
        return history


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    monkeypatch.setattr(Client, "asked", [])
    monkeypatch.setattr(Client, "rows", [*ROWS])
    monkeypatch.setattr(mlflow_server, "import_module", {"mlflow": SimpleNamespace(MlflowClient=Client)}.__getitem__)
    for name in mlflow_server.PATIENCE:
        monkeypatch.setenv(name, "1")  # so that the defaults that are set are taken back
    return Client


def checked(*paths: str) -> dict[str, Any]:
    with local_copies(paths) as places:
        reports = check_runs(find_runs(places)[0], load_rules([]), {}, Tick(2e9, live=False))
    (run,) = document(reports)["runs"]
    return run


def stored(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT key, step, value, is_nan FROM metrics ORDER BY rowid").fetchall()


@pytest.mark.parametrize(
    ("address", "uri"),
    [
        ("mlflow://127.0.0.1:5000/Users/me/grpo", "http://127.0.0.1:5000"),
        ("mlflow+https://host", "https://host"),
        (f"mlflow:///Users/me/grpo/{RUN}", None),
    ],
)
def test_a_run_on_a_server_gets_the_findings_of_a_database(
    client: type[Client], address: str, uri: str | None, tmp_path: Path
) -> None:
    there = checked(address)
    assert client.asked == [uri]
    mlflow(tmp_path / "mlflow.db", ROWS)
    here = checked(str(tmp_path / "mlflow.db"))
    assert there["run"] == "Users/me/grpo/lr 1e-6/β"
    assert (there["verdict"], there["steps"], there["findings"]) == (here["verdict"], here["steps"], here["findings"])
    assert here["findings"]


def test_what_is_not_finite_is_stored_as_mlflow_stores_it(client: type[Client], tmp_path: Path) -> None:
    client.rows[:] = [(1, {**ROWS[0][1], "train/kl": math.nan, "train/reward": -math.inf})]
    server = MlflowServer(ADDRESS, tmp_path)
    server.copy()
    assert sorted(row for row in stored(server.path) if row[0] in {"train/kl", "train/reward"}) == [
        ("train/kl", 1, 0.0, 1),
        ("train/reward", 1, -math.inf, 0),
    ]


def test_a_copy_adds_whole_steps_of_a_run_that_goes_on(
    client: type[Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four metrics are asked one after the other, and the job logs a step after each answer."""
    monkeypatch.setattr(client, "status", "RUNNING")
    monkeypatch.setattr(client, "grows", 1)
    del client.rows[5:]
    server = MlflowServer(ADDRESS, tmp_path)
    steps = []
    for _ in range(3):
        server.copy()
        steps.append([step for _, step, *_ in stored(server.path)])
    assert steps[0] == [step for step in range(1, 6) for _ in range(4)]
    assert steps[1] == [step for step in range(1, 10) for _ in range(4)]  # four answers later
    assert steps[2] == [step for step in range(1, 14) for _ in range(4)]
    monkeypatch.setattr(client, "grows", 0)
    monkeypatch.setattr(client, "status", "FINISHED")
    MlflowServer(ADDRESS, tmp_path).copy()  # another daemon goes on with the copy
    assert [step for _, step, *_ in stored(server.path)] == [step for step in range(1, 18) for _ in range(4)]


def test_the_newest_number_is_copied_where_another_metric_was_the_newest(
    client: type[Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of a step come one by one."""
    monkeypatch.setattr(client, "status", "RUNNING")
    whole = dict(ROWS[9][1])
    client.rows[9:] = [(10, {key: value for key, value in whole.items() if key != "train/learning_rate"})]
    server = MlflowServer(ADDRESS, tmp_path)
    server.copy()
    client.rows[9:] = [(10, whole)]
    server.copy()
    assert [step for key, step, *_ in stored(server.path) if key == "train/learning_rate"] == [*range(1, 11)]


class NoSuchRunError(Exception):
    error_code = "RESOURCE_DOES_NOT_EXIST"


@pytest.mark.parametrize("error", [NoSuchRunError("no run"), OverflowError("Python int too large")])
def test_one_run_that_cannot_be_copied_is_named_once_and_keeps_back_no_other(
    client: type[Client],
    tmp_path: Path,
    error: Exception,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "gone", error)
    server = MlflowServer(ADDRESS, tmp_path)
    with caplog.at_level(logging.WARNING, "grpo_watch.mlflow"):
        assert [server.copy(), server.copy()] == [True, True]
    assert len(stored(server.path)) == 160
    (record,) = caplog.records
    assert record.fields["run"] == "e" * 32  # type: ignore[attr-defined]
    assert str(error) in record.fields["error"]  # type: ignore[attr-defined]


def test_a_server_that_is_lost_between_two_runs_is_not_asked_for_the_next(
    client: type[Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = OSError("refused")
    lost.error_code = "INTERNAL_ERROR"  # type: ignore[attr-defined]
    monkeypatch.setattr(client, "gone", lost)
    with pytest.raises(SourceError, match="OSError: refused"):
        MlflowServer(ADDRESS, tmp_path).copy()


def test_only_the_owner_reads_a_copy(client: type[Client], tmp_path: Path) -> None:
    del client
    server = MlflowServer(ADDRESS, tmp_path)
    server.copy()
    assert server.path.stat().st_mode & 0o777 == 0o600


def test_no_message_holds_the_password_of_an_address(
    client: type[Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = "://user:hunter2@h/"
    html = tmp_path / "report.html"
    assert run_cli(["check", f"mlflow+https{place}Users/me/grpo", "--format", "html", "--output", str(html)]) == 1
    assert "grpo-watch check &#x27;mlflow+https://***@h/Users/me/grpo" in html.read_text()
    assert "hunter2" not in html.read_text()
    assert run_cli(["check", f"mlflow+https{place}nothing"]) == 2
    assert run_cli(["check", "mlflow+https://user:hunter2@bad/grpo"]) == 2
    assert run_cli(["wait", f"mlflow{place}grpo"]) == 2
    monkeypatch.setattr(client, "gone", OSError("no answer from https://user:hunter2@h"))
    monkeypatch.setattr(client.gone, "error_code", "INTERNAL_ERROR", raising=False)
    assert run_cli(["check", f"mlflow+https{place}"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "grpo-watch: mlflow+https://***@h/nothing: no such file or folder",
        "grpo-watch: mlflow+https://***@bad/grpo: https://***@bad has no port",
        "grpo-watch: mlflow://***@h/grpo: unsupported; use a folder, glob or file; `run` watches servers",
        "grpo-watch: mlflow+https://***@h/: OSError: no answer from https://***@h",
    ]


def test_an_experiment_that_is_not_there(client: type[Client]) -> None:
    del client
    with pytest.raises(UsageError, match="no such file or folder"):
        checked("mlflow://h/other")


def test_a_server_that_does_not_answer_is_given_up_soon(
    client: type[Client], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    del client
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_TIMEOUT", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "5")  # the user's own
    MlflowServer(ADDRESS, tmp_path)
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "10"
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "5"


def test_mlflow_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(mlflow_server, "import_module", missing)
    with pytest.raises(UsageError, match=r"needs MLflow's client: (uv )?pip install .*\[mlflow\]"):
        Poller([ADDRESS], Settings(), folder=tmp_path)


def test_the_daemon_watches_a_copy_that_grows(
    client: type[Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run is the server's address where the settings file names it."""
    del client
    assert watched_paths([ADDRESS], Settings()) == [ADDRESS]
    rounds = threading.Event()
    monkeypatch.setattr(tracker_servers.MlflowServer, "copy", noted(MlflowServer.copy, rounds))
    poller = Poller([ADDRESS, str(tmp_path)], Settings(), folder=tmp_path)
    (thread,) = poller.threads
    poller.start()
    assert rounds.wait(60)
    poller.close()
    thread.join(60)
    assert poller.paths[0] == tmp_path
    (run,) = poller.discoverer.discover(poller.paths[1])
    assert run.name == "Users/me/grpo/lr 1e-6/β"
    assert poller.addressed(run).remote == ADDRESS


def noted(copy: Any, done: threading.Event) -> Any:
    def copied(server: MlflowServer) -> bool:
        there = copy(server)
        done.set()
        return there

    return copied


def test_a_server_that_fails_is_logged_once(
    client: type[Client], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: MlflowServer) -> bool:
        raise SourceError("refused")

    copies = MlflowCopies([ADDRESS], tmp_path)
    (server,) = copies.of
    problems = ["", *[""] * 3]
    with caplog.at_level(logging.WARNING, "grpo_watch.mlflow"):
        with monkeypatch.context() as patch:
            patch.setattr(MlflowServer, "copy", fails)
            problems[1] = copies.copied(server, problems[0])
            problems[2] = copies.copied(server, problems[1])
        problems[3] = copies.copied(server, problems[2])
    assert problems == ["", "refused", "refused", ""]
    assert [record.getMessage() for record in caplog.records] == [
        "an MLflow server can't be read",
        "the MLflow server answers again",
    ]
    assert client.asked
