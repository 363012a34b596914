"""A real Ray cluster on this machine: the reports of one process, and work that goes on when a worker is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_watch.archive.checks import CheckSetup, Execution, check_all
from grpo_watch.archive.on_ray import on_ray
from grpo_watch.engine.records import Tick
from grpo_watch.errors import UsageError
from grpo_watch.report.check_document import document
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.discovery.discover import discover
from tests.archive.work import doubled, kills_always, kills_once
from tests.support.bundles import bundled_runs, unpack

pytestmark = pytest.mark.frameworks
SETUP = CheckSetup(tuple(load_rules([])), Tick(1_798_761_600.0, live=False))


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[str]:
    """Two workers; each call of ``on_ray`` connects to it and leaves it."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    yield made.address
    made.shutdown()


def test_a_cluster_gives_the_reports_of_one_process(cluster: str, tmp_path: Path) -> None:
    for name in bundled_runs()[::15]:
        unpack(name, tmp_path)
    runs = discover(tmp_path)
    spread = check_all(SETUP, runs, Execution(on_ray=True, address=cluster, results=tmp_path / "results.db"))
    assert json.dumps(document(spread)) == json.dumps(document(check_all(SETUP, runs, Execution())))


def test_work_of_a_killed_worker_is_done_again(cluster: str, tmp_path: Path) -> None:
    pieces = [(tmp_path if number else tmp_path / "first", number) for number in range(4)]
    answers = {answer.place: answer.result for answer in on_ray(kills_once, pieces, cluster)}
    assert answers == {0: b"0", 1: b"2", 2: b"4", 3: b"6"}


def test_errors_and_lost_workers_stop_no_other_piece(cluster: str) -> None:
    failed = {answer.place: answer for answer in on_ray(doubled, [1, 13, 3], cluster)}
    assert (failed[0].result, failed[2].result) == (b"2", b"6")
    assert "unlucky" in failed[1].error
    killed = {answer.place: answer for answer in on_ray(kills_always, [1, 7], cluster)}
    assert killed[0].result == b"2"
    assert killed[1].error.startswith("WorkerCrashedError")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_no_cluster_at_an_address_is_a_usage_error(address: str) -> None:
    with pytest.raises(UsageError, match="no Ray cluster"):
        list(on_ray(doubled, [1], address))
