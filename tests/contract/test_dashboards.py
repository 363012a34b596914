"""The shipped dashboards: a real Prometheus answers every panel's query, and the JSON is what Grafana reads."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from grpo_watch.engine.metric_names import METRICS, prometheus_name
from grpo_watch.metrics.exposition import METRIC_TABLE
from tests.conftest import find_program
from tests.support.bundles import unpack
from tests.support.process import PATIENCE, until, watching
from tests.support.prometheus import shipped_prometheus
from tests.support.promql import metrics_of
from tests.support.receiving import receiving

FOLDER = Path("deploy/grafana")
FILES = sorted((FOLDER / "dashboards").glob("*.json"))
LINES = Path("tests/frameworks/lines")
FOREIGN = {"up", "scrape_duration_seconds", "process_cpu_seconds_total", "process_resident_memory_bytes"}
FOREIGN |= {"process_open_fds", "grpo_watch_engine_seconds_count", "grpo_watch_engine_seconds_bucket", "ALERTS"}
UNITS = {"none", "short", "percentunit", "s", "sci", "bytes", "gbytes", "cps"}
"""Grafana's ids of the units that are used (its list of value formats)."""
KINDS = {"row", "stat", "table", "timeseries", "state-timeline"}
FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"
RUNS = ("trl-1.16.0-04-healthy-lora", "trl-1.16.0-11-dup-stride3")
"""Real runs with checkpoints and with completions; the frozen one is replayed."""
ENGINES = ("nemo-rl.jsonl", "slime.log", "trl-async.jsonl", "verl.log", "ms-swift.jsonl", "trl.log")
"""Lines of frameworks that log what the bundled runs don't, about the rollout engine above all."""
READ = ("grpo_parameters_changed_ratio", "grpo_completion_duplicate_ratio")
REPORTED = (
    'count_over_time(grpo_watch_deliveries_total{outcome="delivered"}[1m]) > 2',
    'ALERTS{alertname="GrpoRunAlert", alertstate="firing"}',
    "fleet:grpo_runs_frozen:ratio > 0",
    "run:grpo_remaining:seconds",
)
"""What is last to come: from the worker process before the alert, and because of it."""
VERL = {"critic/score/mean": 0.5, "critic/advantages/max": 1.0, "training/global_step": 1}
VERL |= {
    "rollout_corr/chi2_token": 0.01,
    "rollout_corr/rollout_is_eff_sample_size": 0.9,
    "prompt_length/clip_ratio": 0.02,
    "num_turns/mean": 3.0,
    "tool_call_counts/mean": 2.0,
    "val-core/math/reward/mean@1": 0.4,
}
TOOLS = {"step": 5, "reward": 0.5, "reward_std": 0.2, "kl": 0.01, "tools/failure_frequency": 0.1}
FAILED = """\
step:1 - critic/score/mean:0.5 - actor/pg_clipfrac:0.1 - actor/ppo_kl:0.1 - training/global_step:1
Reward API WARNING: Computing reward timeout after 15s. Set reward to 0.
Error when executing tool: timed out
step:2 - critic/score/mean:0.5 - actor/pg_clipfrac:0.1 - actor/ppo_kl:0.1 - training/global_step:2
"""


@dataclass(frozen=True)
class Asked:
    """One query of one panel."""

    where: str
    expr: str


@cache
def parsed(file: Path) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def panels(file: Path) -> list[Mapping[str, Any]]:
    return [panel for panel in parsed(file)["panels"] if panel["type"] != "row"]


def everything(expr: str) -> str:
    """The query with Grafana's variables as when all runs of all watchers are chosen."""
    expr = re.sub(r'=~?"\$(instance|run)"', '=~".*"', expr)
    return expr.replace("$__rate_interval", "1m")


def asked() -> list[Asked]:
    """Every query of every panel."""
    found = []
    for file in FILES:
        for panel in panels(file):
            for target in panel["targets"]:
                expr = everything(target["expr"])
                found.append(Asked(f"{file.stem}: {panel['title']}: {target['refId']}", expr))
    return found


def lay_out(folder: Path) -> tuple[Path, list[bytes]]:
    """Runs as they are while they are written, and the frozen one's log with the lines that are still to come."""
    for name in RUNS:
        unpack(name, folder)
    for name in ENGINES:
        source = LINES / name
        run = folder / source.stem
        run.mkdir(parents=True)
        plain = {"ms-swift.jsonl": "logging.jsonl", ".jsonl": "metrics.jsonl", ".log": "train.log"}
        shutil.copy(source, run / plain.get(name, plain[source.suffix]))
    (folder / "verl-bypass").mkdir()
    (folder / "verl-bypass" / "run.jsonl").write_text(json.dumps({"step": 1, "data": VERL}) + "\n")
    for name, text in (("tools/metrics.jsonl", json.dumps(TOOLS) + "\n"), ("failed/train.log", FAILED)):
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    frozen = unpack(FROZEN, folder)
    for console in frozen.rglob("*.log"):
        console.unlink()
    log = next(frozen.rglob("logging.jsonl"))
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:2]))
    for path in folder.rglob("*"):
        os.utime(path)
    return log, [*lines[2:-4], b'{"step": 1, "not a row\n']


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], list[Any]]]:
    """Asks a Prometheus with the shipped rules that has scraped a watcher which notified a receiver of an alert."""
    tmp_path = tmp_path_factory.mktemp("dashboards")
    log, rest = lay_out(tmp_path / "runs")
    program = find_program("prometheus") or ""
    with receiving() as people:
        config = tmp_path / "grpo-watch.yaml"
        config.write_text(json.dumps({"sinks": [{"type": "webhook", "url": people.url}]}))
        options = ("--config", str(config))
        with (
            watching(tmp_path / "runs", state=tmp_path / "state", options=options) as daemon,
            shipped_prometheus(program, tmp_path, daemon.url, interval="1s") as server,
            httpx.Client(base_url=server.url, timeout=PATIENCE) as client,
        ):

            def ask(query: str) -> list[Any]:
                answer = client.get("/api/v1/query", params={"query": query})
                assert answer.is_success, f"{query}: {answer.text}"
                found: list[Any] = answer.json()["data"]["result"]
                return found

            for before in (f'grpo_step{{run="{FROZEN}"}} == 2', *READ):
                until(partial(ask, before), daemon.child)
            with log.open("ab", buffering=0) as growing:
                growing.write(b"".join(rest))
            for after in REPORTED:
                until(partial(ask, after), daemon.child)
            yield ask


@pytest.mark.system("prometheus")
def test_every_panel_has_an_answer(answers: Callable[[str], list[Any]]) -> None:
    """Asked again where a busy machine missed a scrape."""
    empty = list(asked())

    def none_left() -> bool:
        empty[:] = [query for query in empty if not answers(query.expr)]
        return not empty

    with suppress(AssertionError):
        until(none_left)
    assert [f"{query.where}: {query.expr}" for query in empty] == []


@pytest.mark.slow
@pytest.mark.system("prometheus")
def test_variables_and_annotations_have_an_answer(answers: Callable[[str], list[Any]]) -> None:
    for file in FILES:
        board = parsed(file)
        for variable in board["templating"]["list"][1:]:
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
            found = until(partial(answers, everything(metric)))
            assert all(label in each["metric"] for each in found)
        for annotation in board["annotations"]["list"]:
            until(partial(answers, everything(annotation["expr"])))


def queries(title: str, board: str) -> list[str]:
    """Of the panel of that title."""
    (panel,) = (panel for panel in panels(FOLDER / "dashboards" / f"{board}.json") if panel["title"] == title)
    return [everything(target["expr"]) for target in panel["targets"]]


def agreed(answers: Callable[[str], list[Any]], *queries: str) -> list[Any]:
    """What the first query finds, once all know the same rules of the same runs: a scrape may lie between them."""
    found = [answers(query) for query in queries]
    known = [{(each["metric"]["run"], each["metric"]["rule"]) for each in series} for series in found]
    return found[0] if all(each == known[0] for each in known) else []


@pytest.mark.slow
@pytest.mark.system("prometheus")
def test_findings_are_what_is_reported_with_a_link_to_the_page(answers: Callable[[str], list[Any]]) -> None:
    """By severity as a number, 2 for critical; the link is that of the watcher, which listens on loopback."""
    for board in ("grpo-fleet", "grpo-run"):
        severity, since = queries("Findings", board)

        found = until(partial(agreed, answers, severity, since, "run:grpo_alert_firing:told"))
        for each in found:
            assert each["value"][1] == {"critical": "2", "warning": "1"}[each["metric"]["severity"]]
            assert each["metric"]["page"] == f"http://{each['metric']['instance']}/#/rule/{each['metric']['rule']}"
    (runs, *_) = queries("Runs", "grpo-fleet")
    shown = until(partial(answers, runs))
    assert all(each["metric"]["page"].endswith(f"/#/run/{each['metric']['run']}") for each in shown)


def test_links_to_a_page_go_by_what_its_watcher_reports() -> None:
    for file in FILES:
        assert "http://" not in file.read_text()
        for panel in panels(file):
            overrides = panel["fieldConfig"]["overrides"]
            if any(override["matcher"]["options"] == "page" for override in overrides):
                assert '"page"' in panel["targets"][0]["expr"]


def test_the_worst_comes_first() -> None:
    for title, heading in (("Findings", "severity"), ("Runs", "verdict")):
        (panel,) = (panel for panel in panels(FOLDER / "dashboards/grpo-fleet.json") if panel["title"] == title)
        assert panel["options"]["sortBy"] == [{"displayName": heading, "desc": True}]
        colours = next(o for o in panel["fieldConfig"]["overrides"] if o["matcher"]["options"] == heading)
        assert {"thresholds", "mappings", "custom.cellOptions"} <= {each["id"] for each in colours["properties"]}


@pytest.mark.system("promtool")
def test_a_board_of_watchers_is_red_when_one_is_down(tmp_path: Path, program: Callable[[str], str]) -> None:
    """By job or by what it has shown; what is pushed has no say, and without a watcher there is no number."""
    (down,) = queries("Watchers down", "grpo-fleet")
    assert queries("Watchers down", "grpo-watcher") == [down]
    up, pushed = 'up{job="x/grpo-watch", instance="%s"}', 'grpo_watch_build_info{job="grpo-watch", instance="pushed"}'
    strange = 'grpo_watch_build_info{job="trainers", instance="three"}'
    watched = [(up % "one", "1x20"), (up % "two", "1x10 0x10"), ('up{job="trainers", instance="three"}', "1x12 0x8")]
    series = [*watched, (strange, "1x12 stale"), (pushed, "1x20"), ('up{job="node", instance="four"}', "0x20")]
    cases = ((series, {"5m": 0, "11m": 1, "15m": 2}), ([(pushed, "1x20")], {"5m": None}))
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in given],
            "promql_expr_test": [
                {"expr": down, "eval_time": at, "exp_samples": [] if n is None else [{"labels": "{}", "value": n}]}
                for at, n in expected.items()
            ],
        }
        for given, expected in cases
    ]
    (tmp_path / "down.test.yaml").write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": tests}))
    command = [program("promtool"), "test", "rules", str(tmp_path / "down.test.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_is_chosen_by_its_very_name() -> None:
    """``output (2)`` is no regular expression; Grafana escapes it only where several runs can be chosen."""
    for file in FILES:
        several = {v["name"]: v["multi"] for v in parsed(file)["templating"]["list"] if v["type"] == "query"}
        used = set(re.findall(r'(=~?)\\"\$(run|instance)\\"', file.read_text()))
        assert used == {("=~" if several[name] else "=", name) for _, name in used}
        assert used


def test_only_known_metrics_are_asked_for() -> None:
    """And each one that says how training goes is on some dashboard."""
    groups = [
        group
        for file in Path("rules/prometheus").glob("*.yaml")
        for group in yaml.safe_load(file.read_text())["groups"]
    ]
    recorded = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    names = {name for query in asked() for name in metrics_of(query.expr)}
    assert names - METRIC_TABLE.keys() - recorded - FOREIGN == set()
    unseen = {prometheus_name(name) for name in METRICS} - names
    assert unseen == set(), "give it a panel in scripts/grafana_run_boards.py"


def test_the_dashboards_are_those_of_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    """``make docs`` writes them."""
    monkeypatch.syspath_prepend("scripts")
    made = dict(import_module("grafana_dashboards").dashboards())
    assert made == {file.name: file.read_text() for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_model_is_whole(file: Path) -> None:
    board = parsed(file)
    assert board["uid"] == file.stem
    assert board["title"]
    assert board["schemaVersion"] == 39
    assert len(board["uid"]) <= 40  # Grafana's limit
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    assert {panel["type"] for panel in board["panels"]} <= KINDS
    variables = {variable["name"] for variable in board["templating"]["list"]}
    text = json.dumps([board["panels"], board["annotations"]])
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "__data"}
    assert used <= variables
    for panel in panels(file):
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        letters = [target["refId"] for target in panel["targets"]]
        assert letters
        assert len(set(letters)) == len(letters)
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_panel_lies_on_another(file: Path) -> None:
    places = [panel["gridPos"] for panel in parsed(file)["panels"]]
    for place in places:
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
        assert place["w"] > 0
        assert place["h"] > 0
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


@pytest.mark.slow
def test_uids_are_unique_and_links_lead_to_them() -> None:
    uids = [parsed(file)["uid"] for file in FILES]
    assert len(set(uids)) == len(uids) == 4
    led_to = set(re.findall(r"/d/([\w-]+)", "".join(file.read_text() for file in FILES)))
    assert led_to <= set(uids)
    assert led_to


def test_provisioning_names_what_is_there() -> None:
    """The forms of Grafana's provisioning files, version 1."""
    (source,) = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    assert (source["type"], source["access"]) == ("prometheus", "proxy")
    assert source["url"] == "${PROMETHEUS_URL}"
    boards = yaml.safe_load((FOLDER / "provisioning/dashboards/grpo-watch.yaml").read_text())
    assert boards["apiVersion"] == 1
    (provider,) = boards["providers"]
    assert provider["type"] == "file"
    assert provider["options"]["path"] in (FOLDER / "README.md").read_text() + "/"
