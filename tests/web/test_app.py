"""The HTTP side: who is answered, what the documents say, and that nothing on the page can be injected."""

from __future__ import annotations

import asyncio
import json
import math
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.cli.main import run_cli
from grpo_watch.daemon.run_detail import RunDetail
from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.records import Severity
from grpo_watch.engine.snapshot import RuleStatus, RuleView, RunSnapshot, RunVerdict
from grpo_watch.errors import UsageError
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from grpo_watch.metrics.exposition import label_value
from grpo_watch.report.charts import Sparkline, sparks
from grpo_watch.report.check_document import RunReport, document
from grpo_watch.report.series import Series, ThinnedColumns
from grpo_watch.rules.packs import load_rules
from grpo_watch.rules.rule_changes import RuleSet, rule_set
from grpo_watch.store.state import slug
from grpo_watch.web.app import make_app
from grpo_watch.web.documents import brief_document, detail_document, rule_document
from grpo_watch.web.server import SECURITY_HEADERS, Server, address, bind
from tests.support.live import SHIPPED
from tests.support.serving import web

RULE = next(rule for rule in SHIPPED.rules if rule.name == "stale-rollout-weights")
EVIL = '<script>alert("x")</script>'
FINDING = Finding(
    "kl-stuck-at-zero", "", Severity.CRITICAL, 1, 2, 10, None, {"kl_reference": 0.0, "loss": math.nan}, EVIL, "fix it"
)
SNAPSHOT = RunSnapshot(
    run="v0 run",
    framework="ms-swift",
    version="3.12.6",
    attempt=1,
    step=33,
    rows=33,
    max_steps=80,
    last_step_time=990.0,
    verdict=RunVerdict.CRITICAL,
    values={"kl_reference": 0.0},
    config={},
    rules=(RuleView("stale-rollout-weights", Severity.CRITICAL, RuleStatus.BLIND, f"needs {EVIL}"),),
    alerts=(),
    findings=(FINDING, replace(FINDING, rule="entropy-collapse", resolved_step=20)),
)
PEOPLE = [
    "/",
    "/static/js/main.js",
    "/api/v1/runs",
    "/api/v1/overview",
    "/api/v1/alerts",
    "/api/v1/compare",
    "/api/v1/runbooks",
    "/api/v1/words",
    "/api/v1/runbooks/kl-stuck-at-zero",
    "/api/v1/runs/v0-run",
    "/api/v1/runs/v0-run/series",
    "/api/v1/runs/v0-run/charts",
    "/api/v1/runs/v0-run/batches",
    "/api/v1/runs/v0-run/report",
]
"""All that is for people."""


class Fake:
    """A daemon that has one run."""

    def __init__(self) -> None:
        self.lateness: float | None = None
        self.is_ready = True
        self.problems: tuple[str, ...] = ()

    def snapshot(self) -> DaemonSnapshot:
        run = RunOverview(SNAPSHOT, "v0-run", active=True, labels={"team": "math"})
        return DaemonSnapshot(runs=(run,), problems=self.problems)

    def detail(self, run: str) -> RunDetail:
        assert run == "v0 run"
        return RunDetail(Series.of(ThinnedColumns([1, 1], [1, 2], {"loss": [0.5, None]})))

    def sparks(self, run: str) -> Mapping[str, Sparkline]:
        return sparks(self.detail(run).series)

    def rules(self) -> RuleSet:
        return SHIPPED

    def late(self) -> float | None:
        return self.lateness

    def ready(self) -> bool:
        return self.is_ready


def get(path: str, watch: Fake | None = None, peer: str = "127.0.0.1", host: str = "localhost:9853") -> httpx.Response:
    app = make_app(watch or Fake(), lambda: 1000.0, ["gpu7"])

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=(peer, 40_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path, headers={"host": host})

    return asyncio.run(ask())


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_machines_are_answered_from_anywhere_under_any_name(path: str) -> None:
    assert get(path, peer="10.1.2.3", host="gpu99.cluster:9853").status_code == 200


@pytest.mark.parametrize("path", PEOPLE)
def test_people_are_answered_on_the_machine_itself_only(path: str) -> None:
    for peer in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"):
        assert get(path, peer=peer).status_code == 200
    for peer in ("10.1.2.3", "::ffff:10.1.2.3", "fe80::1%eth0", "testclient", ""):
        refused = get(path, peer=peer)
        assert refused.status_code == 403
        assert "kl-stuck" not in refused.text


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9853", "[::1]:80", "LOCALHOST:1", "gpu7:9853"])
def test_known_hosts(host: str) -> None:
    assert get("/", host=host).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:9853", "", "127.0.0.1.evil:80", "localhost:"])
def test_a_rebound_name_is_refused(host: str) -> None:
    """A page of a foreign site whose name points to 127.0.0.1 must not read the API."""
    assert get("/api/v1/alerts", host=host).status_code == 421


def test_metrics() -> None:
    answer = get("/metrics")
    assert 'grpo_step{run="v0 run"} 33.0' in answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_health_follows_the_engine() -> None:
    watch = Fake()
    assert get("/healthz", watch).text == "ok\n"
    watch.lateness = 12.3
    assert get("/healthz", watch).status_code == 503
    assert "12 s late" in get("/healthz", watch).text


def test_not_ready_before_the_first_pass() -> None:
    watch = Fake()
    watch.is_ready = False
    assert get("/readyz", watch).status_code == 503


def test_runs() -> None:
    (run,) = get("/api/v1/runs").json()["runs"]
    assert (run["run"], run["slug"], run["step"], run["verdict"]) == ("v0 run", "v0-run", 33, "critical")
    assert run["labels"] == {"team": "math"}
    assert run["rules"][0]["status"] == "blind"


def test_the_overview_is_brief_and_says_since_when() -> None:
    """The finding that explains the other began at step 2, the other one at step 1."""
    shown = get("/api/v1/overview").json()
    (run,) = shown["runs"]
    assert (shown["total"], shown["matching"], shown["verdicts"]) == (1, 1, {"critical": 1})
    assert (run["top"]["rule"], run["top"]["first_step"], run["top"]["first_sign"]) == ("kl-stuck-at-zero", 2, 2)
    assert (run["open"], run["resolved"], run["watching"], run["blind"]) == (1, 1, 0, 1)
    assert "rules" not in run
    earlier = replace(FINDING, rule="reward-collapse", first_step=1, caused_by="kl-stuck-at-zero")
    snapshot = replace(SNAPSHOT, findings=(FINDING, earlier), seconds_per_step=2.0)

    class Both(Fake):
        def snapshot(self) -> DaemonSnapshot:
            return DaemonSnapshot(runs=(RunOverview(snapshot, "v0-run", active=True),))

    (run,) = get("/api/v1/overview", Both()).json()["runs"]
    assert run["top"]["first_sign"] == 1
    assert run["eta_seconds"] == (80 - 33) * 2.0


def test_a_fix_can_be_pasted_anywhere() -> None:
    """Checkpoints are named below the run's folder; a run on a server has none."""
    hint = "Compare `grpo-watch digest checkpoint-20 checkpoint-40`."
    names = {"earlier_checkpoint": "checkpoint-20", "later_checkpoint": "checkpoint-40"}
    snapshot = replace(SNAPSHOT, findings=(replace(FINDING, hint=hint, evidence=names),))
    local = RunOverview(snapshot, "v0-run", active=True, folder=Path("/runs/a b"))
    for run, there in (
        (local, "'/runs/a b/checkpoint-20' '/runs/a b/checkpoint-40'"),
        (replace(local, folder=None), ""),
    ):
        document = detail_document(run)
        expected = f"Compare `grpo-watch digest {there or 'checkpoint-20 checkpoint-40'}`."
        assert [found["hint"] for found in (*document["cards"], *document["findings"])] == [expected, expected]


def test_a_run_that_makes_no_progress_has_no_estimate_of_its_end() -> None:
    """Whatever the rule is called: an open finding of a rule that says so, not a resolved one."""
    ends = [None, 33]
    estimates = []
    for resolved in ends:
        findings = (replace(FINDING, rule="my-stall", resolved_step=resolved),)
        stalls = (RuleView("my-stall", Severity.CRITICAL, RuleStatus.OK, stops_progress=True),)
        snapshot = replace(SNAPSHOT, findings=findings, rules=stalls, seconds_per_step=2.0)
        estimates.append(brief_document(RunOverview(snapshot, "v0-run", active=True))["eta_seconds"])
    assert estimates == [None, 94.0]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["b", "c", "a"]),
        ("sort=name", ["a", "b", "c"]),
        ("sort=nonsense&limit=0&offset=-1", ["b"]),
        ("sort=name&offset=1&limit=1", ["b"]),
        ("verdict=healthy,warning", ["c", "a"]),
        ("state=running&sort=name", ["a", "b"]),
        ("state=ended", ["c"]),
        ("q=MATH", ["a"]),
        ("q=trl kl-stuck", ["b"]),
        ("q=trl math", []),
        ("sort=progress", ["c", "b", "a"]),
    ],
)
def test_filters(query: str, found: list[str]) -> None:
    """a: healthy, ms-swift, labelled; b: critical, trl; c: a warning, over."""
    healthy = replace(SNAPSHOT, run="a", verdict=RunVerdict.HEALTHY, findings=(), step=1)
    critical = replace(SNAPSHOT, run="b", framework="trl", findings=(FINDING,), step=2)
    warning = replace(SNAPSHOT, run="c", verdict=RunVerdict.WARNING, findings=(), step=3)

    class Three(Fake):
        def snapshot(self) -> DaemonSnapshot:
            return DaemonSnapshot(
                runs=(
                    RunOverview(healthy, "a", active=True, labels={"team": "math"}),
                    RunOverview(critical, "b", active=True),
                ),
                past=(RunOverview(warning, "c", active=False, ended=1.0),),
            )

        def sparks(self, _run: str) -> Mapping[str, Sparkline]:
            return {}

    shown = get(f"/api/v1/overview?{query}", Three()).json()
    assert [run["run"] for run in shown["runs"]] == found
    assert shown["total"] == 3


def test_a_runbook_is_a_tree_of_elements() -> None:
    """No markup: code is an element of its own, and backticks are gone."""
    shown = get("/api/v1/runbooks/kl-stuck-at-zero").json()
    assert shown["sections"][0]["title"] == "What it detects"
    first = shown["sections"][0]["blocks"][0]
    assert first[:3] == ["p", "Reward, entropy, loss and usually even ", ["code", "grad_norm"]]
    assert {block[0] for section in shown["sections"] for block in section["blocks"]} <= {
        "p",
        "ul",
        "ol",
        "table",
        "pre",
    }
    assert {param["name"] for param in shown["params"]} >= {"min_cumulative_lr", "min_signal"}
    assert get("/api/v1/runbooks/nope").status_code == 404


def test_rules_are_reported_as_they_are_in_force() -> None:
    (rule,) = get("/api/v1/runs/v0-run").json()["rules"]
    assert (rule["rule"], rule["status"], rule["for_steps"]) == ("stale-rollout-weights", "blind", RULE.for_steps)
    assert {param["name"] for param in rule["params"]} == set(SHIPPED.detectors["stale-rollout-weights"].params)


def test_problems_are_reported_with_the_runs() -> None:
    watch = Fake()
    watch.problems = (f"/runs/\udcff.log: {EVIL}",)
    assert get("/api/v1/runs", watch).json()["problems"] == [f"/runs/?.log: {EVIL}"]


def test_status_lists_the_problems(capsys: pytest.CaptureFixture[str]) -> None:
    watch = Fake()
    watch.problems = ("/runs/x.log: UTF-16\x1b[2J",)
    listener = bind("127.0.0.1", 0)
    server = Server(make_app(watch, lambda: 0.0), listener)
    server.start()
    try:
        assert run_cli(["status", "--listen", address(listener)]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "problem: /runs/x.log: UTF-16\\x1b[2J"
        assert run_cli(["status", "--listen", address(listener), "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["problems"] == list(watch.problems)
    finally:
        server.stop()


def test_alerts_are_strict_json_with_their_evidence() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    alerts = json.loads(get("/api/v1/alerts").text, parse_constant=refuse)["alerts"]
    assert [alert["status"] for alert in alerts] == ["firing", "resolved"]
    assert alerts[0]["evidence"] == {"kl_reference": 0.0, "loss": "NaN"}


def test_series_by_slug() -> None:
    assert get("/api/v1/runs/v0-run/series").json() == {
        "run": "v0 run",
        "series": {"step": [1, 2], "loss": [0.5, None]},
    }
    assert get("/api/v1/runs/nope/series").status_code == 404
    assert get("/api/v1/runs/v0%20run/series").json()["run"] == "v0 run"  # by its name, as a label holds it


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two\nlines", "ends\n", "a/b", "esc\x1b[31m"])
def test_a_run_with_a_strange_name_is_found_by_it(name: str) -> None:
    """Over a real connection, encoded as a URL wants it, on each of its pages; and as a label of /metrics shows it."""

    class Strange(Fake):
        def snapshot(self) -> DaemonSnapshot:
            (run,) = super().snapshot().runs
            return DaemonSnapshot(runs=(replace(run, snapshot=replace(run.snapshot, run=name), slug=slug(name)),))

        def detail(self, run: str) -> RunDetail:
            assert run == name
            return super().detail("v0 run")

    watch = Strange()
    listener = bind("127.0.0.1", 0)
    server = Server(make_app(watch, lambda: 1000.0), listener)
    server.start()
    try:
        for shown in (name, slug(name), label_value(name)):
            for page in ("", "/series", "/charts", "/batches"):
                answer = httpx.get(f"http://{address(listener)}/api/v1/runs/{quote(shown, safe='')}{page}")
                assert (answer.status_code, shown, page) == (200, shown, page)
    finally:
        server.stop()


def test_the_page_asks_nothing_from_elsewhere() -> None:
    answer = get("/")
    assert "//" not in answer.text.replace("<!doctype", "")
    assert "<script>" not in answer.text
    policy = dict(part.strip().split(" ", 1) for part in SECURITY_HEADERS["Content-Security-Policy"].split(";"))
    assert (policy["default-src"], policy["script-src"], policy["connect-src"]) == ("'none'", "'self'", "'self'")
    assert policy["require-trusted-types-for"] == "'script'"


def test_a_real_server_on_a_free_port_and_a_taken_one() -> None:
    listener = bind("127.0.0.1", 0)
    server = Server(make_app(Fake(), lambda: 0.0), listener)
    server.start()
    try:
        where = address(listener)
        assert httpx.get(f"http://{where}/api/v1/runs").status_code == 200
        port = int(where.rpartition(":")[2])
        with pytest.raises(UsageError, match=rf"--listen 127\.0\.0\.1:{port}: .*in use"):
            bind("127.0.0.1", port)
    finally:
        server.stop()
    assert not server.thread.is_alive()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_an_address_of_another_machine_is_a_one_line_error() -> None:
    with pytest.raises(UsageError, match=r"--listen 192\.0\.2\.1:80"):
        bind("192.0.2.1", 80)


def test_halves_of_pairs_are_no_json() -> None:
    odd = "a\x1b[31mb\x00c\u202ed\ud83de"
    finding = replace(FINDING, summary=odd, hint=odd, evidence={odd: odd})
    snapshot = replace(SNAPSHOT, findings=(finding,))

    class Hostile(Fake):
        def snapshot(self) -> DaemonSnapshot:
            return DaemonSnapshot(
                runs=(RunOverview(snapshot, "v0-run", active=True, labels={"team": odd}),), problems=(odd,)
            )

    for path in PEOPLE:
        assert get(path, Hostile()).status_code == 200
    (alert,) = get("/api/v1/alerts", Hostile()).json()["alerts"]
    assert alert["summary"] == odd.replace("\ud83d", "?")


def test_the_report_of_a_run() -> None:
    """The one of ``check``: as text to paste, or as a file; texts of the run are no markup in either."""
    text = get("/api/v1/runs/v0-run/report")
    assert text.headers["content-type"] == "text/markdown; charset=utf-8"
    assert text.text.startswith("## CRITICAL: `v0 run`\n")
    assert EVIL not in text.text
    file = get("/api/v1/runs/v0-run/report?format=html")
    assert file.headers["content-disposition"] == 'attachment; filename="v0-run.html"'
    assert EVIL not in file.text
    assert "kl-stuck-at-zero" in file.text
    assert get("/api/v1/runs/nope/report").status_code == 404


def test_the_page_gets_its_words_in_the_language_of_the_rules() -> None:
    class Chinese(Fake):
        def rules(self) -> RuleSet:
            return rule_set(load_rules(language="zh"), catalogue())

    with web(Fake()) as place:
        assert httpx.get(f"http://{place}/api/v1/words").json() == {"language": "en", "words": {}}
    with web(Chinese()) as place:
        received = httpx.get(f"http://{place}/api/v1/words").json()
    assert (received["language"], received["words"]["Runs"]) == ("zh", "任务")


def test_a_reason_is_english_to_machines_and_in_the_readers_language_to_people() -> None:
    blind = RuleView("kl-stuck-at-zero", Severity.CRITICAL, RuleStatus.BLIND, "no row has been logged yet")
    snapshot = replace(SNAPSHOT, language="zh", rules=(blind,))
    received = rule_document(blind, snapshot)
    (checked,) = document([RunReport(snapshot)])["runs"][0]["rules"]
    assert received["reason"] == checked["reason"] == "no row has been logged yet"
    assert received["text"] == "还没有任何数据行"
