"""Runs of an MLflow tracking server, through a client that answers as MLflow's own does (see ``live_training``)."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_watch.archive import mlflow_server
from grpo_watch.archive.checks import Execution, check_all
from grpo_watch.archive.remote_folder import copy, remote_folders
from grpo_watch.errors import UsageError
from grpo_watch.report.check_document import document
from grpo_watch.sources.discovery.discover import discover
from tests.archive.test_checks import SETUP
from tests.support.tracker_files import mlflow_files

RUN = "9298a58d8f9f43f9b484c904afc45e3a"
ROWS = [
    (step, {"train/loss": 0.1, "train/reward": 0.3 + step % 3 / 10, "train/kl": 0.0, "train/grad_norm": 0.5})
    for step in range(1, 41)
]


class Page(list[Any]):
    """A list that says where the next one begins."""

    token: str | None = None


class Client:
    """One run of the experiment ``/Users/me/grpo``, which is on the second page, and one that never logged."""

    asked: list[str | None] = []  # noqa: RUF012  a test's record

    def __init__(self, uri: str | None) -> None:
        self.asked.append(uri)

    def search_experiments(self, page_token: str | None = None) -> Page:
        number, name = {None: ("0", "Default"), "next": ("7", "/Users/me/grpo")}[page_token]
        page = Page([SimpleNamespace(experiment_id=number, name=name)])
        page.token = "next" if page_token is None else None
        return page

    def search_runs(self, experiments: list[str], *, max_results: int) -> list[Any]:
        assert max_results == 50
        return [self.get_run(RUN), self.get_run("e" * 32)] if experiments == ["7"] else []

    def get_run(self, run: str) -> Any:
        info = SimpleNamespace(run_id=run, run_name="lr 1e-6/β", status="FINISHED")
        params = {"beta": "0.04", "actor/lr": "1e-06"}
        data = SimpleNamespace(metrics=ROWS[-1][1] if run == RUN else {}, params=params)
        return SimpleNamespace(info=info, data=data)

    def get_metric_history(self, run: str, key: str) -> list[Any]:
        assert run == RUN
        return [
            SimpleNamespace(timestamp=1_795_695_075_000 + 1_000 * step, value=values[key], step=step)
            for step, values in ROWS
        ]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    Client.asked = []
    module = SimpleNamespace(MlflowClient=Client)
    monkeypatch.setattr(mlflow_server, "import_module", {"mlflow": module}.__getitem__)
    for name in mlflow_server.PATIENCE:
        monkeypatch.setenv(name, "1")  # so that the defaults that are set are taken back
    return Client


@pytest.mark.parametrize(
    ("address", "uri"),
    [
        ("mlflow://127.0.0.1:5000/Users/me/grpo", "http://127.0.0.1:5000"),
        ("mlflow+https://host", "https://host"),
        (f"mlflow:///Users/me/grpo/{RUN}", None),
    ],
)
def test_a_run_on_a_server_gets_the_findings_of_its_files(
    client: type[Client], address: str, uri: str | None, tmp_path: Path
) -> None:
    (there,) = document(check_all(SETUP, remote_folders(address), Execution()))["runs"]
    assert client.asked == [uri, uri]
    mlflow_files(tmp_path / "mlruns", ROWS)
    (here,) = document(check_all(SETUP, discover(tmp_path), Execution()))["runs"]
    assert there["run"].endswith(f"lr_1e-6_β-{RUN}")
    assert (there["verdict"], there["steps"], there["findings"]) == (here["verdict"], here["steps"], here["findings"])


def test_what_is_copied(client: type[Client], tmp_path: Path) -> None:
    del client
    (folder,) = remote_folders("mlflow://h/Users/me/grpo")
    run = next(copy(folder, tmp_path).glob(f"*-{RUN}"))
    assert (run / "params/actor/lr").read_text() == "1e-06"
    assert (run / "metrics/train/kl").read_text().splitlines()[1] == "1795695077000 0.0 2"
    assert "status: 3" in (run / "meta.yaml").read_text()


def test_an_experiment_that_is_not_there(client: type[Client]) -> None:
    del client
    with pytest.raises(UsageError, match="no such file or folder"):
        remote_folders("mlflow://h/other")


def test_a_server_that_does_not_answer_is_given_up_soon(client: type[Client], monkeypatch: pytest.MonkeyPatch) -> None:
    del client
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_TIMEOUT", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "5")  # the user's own
    remote_folders("mlflow://h/Users/me/grpo")
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "10"
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "5"


def test_mlflow_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(mlflow_server, "import_module", missing)
    with pytest.raises(UsageError, match=r"needs MLflow's client: pip install .*\[mlflow\]"):
        remote_folders("mlflow://h/grpo")
