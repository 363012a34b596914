"""A real Prometheus scrapes the real daemon while a real run is replayed into a growing log."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.bundles import unpack
from tests.support.process import until, watching
from tests.support.receiving import receiving
from tests.support.servers import free_port, prometheus_command, serving

FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"


@contextmanager
def prometheus(program: str, target: str, folder: Path, **more: object) -> Iterator[Callable[[str], list[Any]]]:
    """A Prometheus that scrapes ``target`` once a second; gives a function that asks it a query. ``more`` is its setup.

    In the end no scrape had failed but those for which a busy machine took longer than that.
    """
    scrape = {
        "job_name": "grpo-watch",
        "scrape_interval": "1s",
        "scrape_timeout": "1s",
        "static_configs": [{"targets": [target]}],
    }
    config = folder / "prometheus.yml"
    config.write_text(json.dumps({"scrape_configs": [scrape], **more}))  # JSON is YAML
    port = free_port()
    command = prometheus_command(program, config, folder, port)
    errors = set[str]()
    with serving(command, port, "/-/ready") as server:

        def ask(query: str) -> list[Any]:
            scraped = httpx.get(f"{server.url}/api/v1/targets").json()["data"]["activeTargets"]
            errors.update(each["lastError"] for each in scraped)
            found: list[Any] = httpx.get(f"{server.url}/api/v1/query", params={"query": query}).json()["data"]["result"]
            return found

        yield ask
    assert [error for error in errors if error and "deadline exceeded" not in error] == []


@pytest.mark.slow
@pytest.mark.system("prometheus")
def test_prometheus_shows_the_alert_of_a_frozen_run(tmp_path: Path, program: Callable[[str], str]) -> None:
    """Quiet before the fault is possible to see, then pending or firing, then firing; every scrape parses."""
    run = unpack(FROZEN, tmp_path / "runs")
    for console in run.rglob("*.log"):
        console.unlink()
    log = next(run.rglob("logging.jsonl"))
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:2]))
    alert = f'grpo_alert_firing{{rule="kl-stuck-at-zero",run="{run.name}"}}'
    with (
        watching(run, state=tmp_path / "state") as daemon,
        prometheus(program("prometheus"), daemon.url.removeprefix("http://"), tmp_path) as ask,
    ):
        until(lambda: ask(f'grpo_step{{run="{run.name}"}} == 2'), daemon.child)
        assert ask(f"{alert} == 1") == []
        pause = threading.Event()
        with log.open("ab", buffering=0) as growing:
            for line in lines[2:]:
                growing.write(line)
                pause.wait(0.02)
        (firing,) = until(lambda: ask(f"{alert} == 1"), daemon.child)
        assert firing["metric"]["severity"] == "critical"
        assert firing["metric"]["job"] == "grpo-watch"
        (first,) = until(lambda: ask(f'grpo_alert_first_step{{rule="kl-stuck-at-zero",run="{run.name}"}}'))
        assert float(first["value"][1]) == 3  # as check says, see expected.json
        assert until(lambda: ask("up == 1"))


@pytest.mark.slow
@pytest.mark.system("prometheus")
def test_the_shipped_rules_send_the_sentence_of_each_alert(tmp_path: Path, program: Callable[[str], str]) -> None:
    """What Alertmanager is posted has the summary that ``/metrics`` carries, led by the run, and not the rule's own."""
    run = unpack(FROZEN, tmp_path / "runs")
    with receiving() as alertmanager, watching(run, state=tmp_path / "state") as daemon:
        setup = {
            "global": {"evaluation_interval": "1s"},
            "rule_files": [str(Path("rules/prometheus/grpo-runs.rules.yaml").absolute())],
            "alerting": {
                "alertmanagers": [{"static_configs": [{"targets": [alertmanager.url.removeprefix("http://")]}]}]
            },
        }
        with prometheus(program("prometheus"), daemon.url.removeprefix("http://"), tmp_path, **setup) as ask:
            (series,) = until(lambda: ask('grpo_alert_info{rule="kl-stuck-at-zero"}'), daemon.child)

            def posted() -> list[dict[str, Any]]:
                alerts = [alert for sent in alertmanager.sent for alert in json.loads(sent.body)]
                return [alert for alert in alerts if alert["labels"]["rule"] == "kl-stuck-at-zero"]

            alert = until(posted, daemon.child)[0]
    sentence = series["metric"]["summary"]
    assert sentence.startswith("KL to the reference is exactly 0 although ")
    ended = " (run ended, still broken)"  # where Prometheus asked after the log had been quiet for long enough
    assert alert["annotations"]["summary"].replace(ended, "") == f"{run.name}: {sentence}"
