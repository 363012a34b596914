"""The shipped Prometheus rules under the real promtool: valid, tested both ways, and of our own metrics."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.records import Severity
from grpo_watch.metrics.exposition import METRIC_TABLE
from grpo_watch.rules.packs import load_rules, packs_folder
from tests.support.promql import metrics_of

RULES = packs_folder() / "prometheus"
FILES = sorted(RULES.glob("*.rules.yaml"))
TESTS = sorted((RULES / "tests").glob("*.test.yaml"))
FOREIGN = {"up", "process_start_time_seconds", "push_time_seconds", "node_textfile_mtime_seconds"}
"""Of Prometheus, of every process, of the Pushgateway and of node_exporter."""
TELLING = [rule.name for rule in load_rules() if rule.severity is not Severity.INFO]

TARGET = 'job="j",instance="i",namespace="n",pod="p"'


@cache
def parsed(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def rules() -> Iterator[Mapping[str, Any]]:
    """Every rule of every file."""
    for file in FILES:
        for group in parsed(file)["groups"]:
            yield from group["rules"]


def alerts() -> list[Mapping[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def promtool(program: Callable[[str], str], *arguments: str | Path) -> None:
    done = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout + done.stderr


@pytest.mark.system("promtool")
def test_the_rules_are_valid(program: Callable[[str], str]) -> None:
    assert FILES
    promtool(program, "check", "rules", *FILES)


@pytest.mark.slow
@pytest.mark.system("promtool")
@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_the_shipped_tests_pass(file: Path, program: Callable[[str], str]) -> None:
    promtool(program, "test", "rules", file)


def test_each_alert_is_tested_firing_and_quiet() -> None:
    cases = [case for file in TESTS for test in parsed(file)["tests"] for case in test.get("alert_rule_test", ())]
    names = {rule["alert"] for rule in alerts()}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == names
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == names


@pytest.mark.system("promtool")
def test_each_rule_of_ours_is_reported_once_and_only_when_it_fires(
    tmp_path: Path, program: Callable[[str], str]
) -> None:
    """Of three runs the second has all rules firing, as critical and as warning by turns."""
    severities = {name: ("critical", "warning")[i % 2] for i, name in enumerate(TELLING)}
    series = [
        {
            "series": f'grpo_run_info{{{TARGET},exported_namespace="n",run="{run}",framework="trl",team="x"}}',
            "values": "1x9",
        }
        for run in ("quiet", "loud", "explained")
    ]
    for name, severity in severities.items():
        of = f'{TARGET},rule="{name}"'
        for run, value in (("quiet", 0), ("loud", 1), ("explained", 1)):
            firing = f'grpo_alert_firing{{{of},run="{run}",severity="{severity}"}}'
            series.append({"series": firing, "values": f"{value}+0x9"})
        series.append({"series": f'grpo_alert_explained{{{of},run="explained",cause="c"}}', "values": "1x9"})
    reported = [
        {
            "labels": f'ALERTS{{alertname="GrpoRunAlert",alertstate="firing",rule="{name}",run="loud",namespace="n",'
            f'severity="{severity}",team="x"}}',
            "value": 1,
        }
        for name, severity in severities.items()
    ]
    asked = [{"expr": "ALERTS", "eval_time": "1m", "exp_samples": reported}]
    document = {
        "rule_files": [str(RULES / "grpo-runs.rules.yaml")],
        "evaluation_interval": "15s",
        "tests": [{"interval": "15s", "input_series": series, "promql_expr_test": asked}],
    }
    written = tmp_path / "every.test.yaml"
    written.write_text(yaml.safe_dump(document))
    assert len(reported) == len(TELLING) > 40
    promtool(program, "test", "rules", written)


def test_only_known_metrics_are_asked_for() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    known = METRIC_TABLE.keys() | recorded | FOREIGN | {"grpo_watch_engine_seconds_count"}
    asked = {name for rule in rules() for name in metrics_of(rule["expr"])}
    assert asked - known == set()
    assert len(asked) > 20
    in_texts = {
        name
        for alert in alerts()
        for text in alert["annotations"].values()
        for name in re.findall(r"\b(?:grpo_|fleet:grpo_)[\w:]+", text)
    }
    assert in_texts - known == set()


def test_a_frozen_policy_is_what_the_watcher_calls_so() -> None:
    lists = {found for rule in rules() for found in re.findall(r'rule=~"([^"]+)"', rule["expr"])}
    frozen = {name for name, detector in catalogue().items() if detector.shows_frozen_policy}
    assert [set(found.split("|")) for found in lists] == [frozen]


def test_every_alert_explains_itself() -> None:
    """With a severity of ours, a summary and where to read on."""
    page = Path("docs/prometheus.md").read_text()
    for alert in alerts():
        name, notes = alert["alert"], alert["annotations"]
        assert notes["summary"]
        assert f"### {name}\n" in page, name
        assert alert.get("labels", {}).get("severity", "warning") in {"critical", "warning", "none"}
        assert notes["runbook"].startswith(("grpo-watch explain ", f"docs/prometheus.md#{name.lower()}"))


def test_the_alerts_of_runs_are_those_of_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """``make docs`` writes them."""
    monkeypatch.syspath_prepend("scripts")
    made = import_module("prometheus_rules").page(load_rules())
    assert made == (RULES / "grpo-runs.rules.yaml").read_text()


RULE_URL, ALERT_URL = "https://wiki.example.org/grpo/{rule}", "https://wiki.example.org/alerts#{alert}"


@pytest.mark.system("promtool")
def test_alerts_link_to_where_the_runbooks_are_served(tmp_path: Path, program: Callable[[str], str]) -> None:
    """As the script writes them; what an alert says besides stays as it is."""
    command = [sys.executable, "scripts/prometheus_runbooks.py", tmp_path]
    subprocess.run([*command, "--runbook-url", RULE_URL, "--alert-runbook-url", ALERT_URL], check=True)
    written = sorted(tmp_path.glob("*.rules.yaml"))
    assert [file.name for file in written] == [file.name for file in FILES]
    promtool(program, "check", "rules", *written)
    linked = {}
    for shipped, file in zip(FILES, written, strict=True):
        made = yaml.safe_load(file.read_text())
        for rule in (rule for group in made["groups"] for rule in group["rules"] if "alert" in rule):
            linked[rule.get("labels", {}).get("rule", rule["alert"])] = rule["annotations"].pop("runbook_url")
        assert made == parsed(shipped)
    assert linked["kl-stuck-at-zero"] == "https://wiki.example.org/grpo/kl-stuck-at-zero"
    assert linked["GrpoRunAlert"] == "https://wiki.example.org/grpo/{{ $labels.rule }}"
    assert linked["GrpoWatchDown"] == "https://wiki.example.org/alerts#grpowatchdown"


@pytest.mark.parametrize(
    "url", ["https://wiki.example.org/", 'https://x/"{rule}', "ftp://x/{rule}", "https://x/$1{rule}"]
)
def test_an_address_of_runbooks_that_can_not_be_is_refused(url: str, tmp_path: Path) -> None:
    command = [sys.executable, "scripts/prometheus_runbooks.py", tmp_path / "rules", "--runbook-url", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "{rule}" in done.stderr
    assert not (tmp_path / "rules").exists()


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ('sum by (a, b) (rate(x_total{l="y_z"}[5m])) > 2', {"x_total"}),
        ("a:b:c / on (job) group_left (rule) d offset 15m and e == 1e3 or vector(0)", {"a:b:c", "d", "e"}),
        ('label_replace(up, "x", "$1", "y", "(.*)")', {"up"}),
    ],
)
def test_metrics_of_an_expression(expression: str, names: set[str]) -> None:
    assert metrics_of(expression) == names


def test_rule_packs_are_those_beside_the_folder() -> None:
    """What Prometheus reads is no pack of ours, though it is shipped among them."""
    assert {Path(rule.where.rpartition(":")[0]).parent for rule in load_rules()} == {packs_folder()}
