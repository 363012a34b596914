"""MLflow's own client and server: ``check`` and ``run`` over ``mlflow://``, while a run goes on and afterwards."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grpo_watch.cli.tracker_servers import local_copies
from grpo_watch.errors import SourceError
from tests.live_training.log_like_verl import row
from tests.live_training.test_tracker_packages import found_in
from tests.live_training.test_trl_live import PATIENCE, firing, first_step, metrics, until, value, watching

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]

SERVER = Path(__file__).with_name("serve_mlflow.py")
WRITER = Path(__file__).with_name("log_like_verl.py")


@contextmanager
def serving(database: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    process = subprocess.Popen([sys.executable, str(SERVER), str(database), "0"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"127.0.0.1:{int(process.stdout.readline())}", process
    finally:
        process.kill()
        process.wait(timeout=PATIENCE)
        process.stdout.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with serving(tmp_path_factory.mktemp("server") / "mlflow.db") as started:
        yield started


class Job:
    """A run that goes on, logged with MLflow's client."""

    def __init__(self, host: str, experiment: str) -> None:
        mlflow = pytest.importorskip("mlflow")
        self.client = mlflow.MlflowClient(f"http://{host}")
        self.run = self.client.create_run(self.client.create_experiment(experiment), run_name="one").info.run_id
        self.entities, self.chance = mlflow.entities, random.Random(7)
        for name, setting in {"kl_loss_coef": 0.001, "use_kl_loss": True}.items():
            self.client.log_param(self.run, f"actor_rollout_ref/actor/{name}", setting)

    def log(self, steps: range, **more: float) -> None:
        for step in steps:
            values = {**row(step, self.chance, frozen=True), **more}
            stored = [
                self.entities.Metric(key.replace("@", "_at_"), number, 1_795_695_075_000 + 1_000 * step, step)
                for key, number in values.items()
            ]
            self.client.log_batch(self.run, metrics=stored)


@pytest.mark.parametrize("kind", ["healthy", "frozen"])
def test_a_finished_run_gets_the_verdict_of_its_rows(
    server: tuple[str, subprocess.Popen[bytes]], kind: str, tmp_path: Path
) -> None:
    host, _ = server
    environment = {**os.environ, "MLFLOW_SERVER": f"http://{host}"}
    command = [sys.executable, str(WRITER), str(tmp_path), kind]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, env=environment)
    with local_copies([f"mlflow://{host}/{kind}"]) as (place,):
        there = found_in(Path(place))
    assert there == found_in(tmp_path / "file")
    assert there["verdict"] == ("healthy" if kind == "healthy" else "critical")


def test_a_run_that_goes_on_is_checked_and_watched(server: tuple[str, subprocess.Popen[bytes]], tmp_path: Path) -> None:
    """A frozen policy fires while the job logs; NaN and both infinities arrive as what they are; the end is seen."""
    host, process = server
    job, address = Job(host, "live"), f"mlflow://{host}/live"
    job.log(range(1, 41))
    with local_copies([address]) as (place,):
        there = found_in(Path(place))
    assert (there["steps"], there["verdict"]) == (40, "critical")
    with watching(address, tmp_path / "state") as url:
        until(lambda: "kl-stuck-at-zero" in firing(metrics(url)), process)
        assert first_step(metrics(url), "kl-stuck-at-zero") == 2
        job.log(range(41, 44), **{"actor/pg_loss": math.nan, "extra/up": math.inf, "extra/down": -math.inf})
        until(lambda: "non-finite-metric" in firing(metrics(url)), process)
        job.client.set_terminated(job.run)
        until(lambda: value(metrics(url), "grpo_step") == 43, process)
    with local_copies([address]) as (place,):
        there = found_in(Path(place))
    assert there["steps"] == 43
    (finding,) = [each for each in there["findings"] if each[0] == "non-finite-metric"]
    assert finding[2] == 41


def test_sources_names_what_was_found(server: tuple[str, subprocess.Popen[bytes]]) -> None:
    host, _ = server
    Job(host, "named").log(range(1, 4))
    command = [sys.executable, "-m", "grpo_watch", "sources", f"mlflow://{host}/named", "--format", "json"]
    (run,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["runs"]
    (channel,) = run["channels"]
    assert (run["run"], channel["kind"]) == ("named/one", "mlflow")


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(SourceError, match=r"^mlflow://127\.0\.0\.1:1/grpo: MlflowException: .*refused"):
        local_copies(["mlflow://127.0.0.1:1/grpo"]).__enter__()


USED = """
import sys
from pathlib import Path
from grpo_watch.cli.main import run_cli
from grpo_watch.cli.run import Poller, running
from grpo_watch.config.schema import Settings

run_cli(["check", sys.argv[1], "--output", sys.argv[1] + "/report.txt"])
Poller([sys.argv[1]], Settings(), folder=Path(sys.argv[1]))
print(sorted({"mlflow", "swanlab", "trackio", "wandb", "torch"}.intersection(sys.modules)))
"""


def test_a_client_that_is_not_used_is_not_imported(tmp_path: Path) -> None:
    """The memory of a check and of the daemon stays what it is where mlflow and SwanLab are installed."""
    (tmp_path / "run.jsonl").write_text("".join(f'{{"step": {step}, "loss": 0.1}}\n' for step in range(9)))
    command = [sys.executable, "-c", USED, str(tmp_path)]
    done = subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
