"""Routes, texts and inhibition of the shipped Alertmanager configuration, by amtool and by a real Alertmanager."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from grpo_watch.catalogue import catalogue
from tests.support.alertmanager import SHIPPED, telling
from tests.support.process import until
from tests.support.receiving import Receiving, receiving
from tests.support.servers import Served, alertmanager_command, free_port, serving

TEXTS = SHIPPED.with_name("grpo-watch.tmpl")
HOSTILE = "<!channel> *a* & <http://evil|click>"
RUN = {"alertname": "GrpoRunAlert", "run": "a"}
CRASHED = {**RUN, "rule": "run-crashed", "severity": "critical"}


@pytest.mark.system("amtool")
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("alertname=GrpoRunAlert rule=kl-stuck-at-zero run=a severity=critical", "on-call"),
        ("alertname=GrpoRunAlert rule=entropy-collapse run=a severity=warning", "team"),
        ("alertname=GrpoFleetFrozen severity=critical", "on-call"),
        ("alertname=GrpoWatchDown severity=warning instance=one", "team"),
        ("alertname=GrpoWatchAlive severity=none instance=one", "dead-mans-switch"),
        ("alertname=DiskFull severity=critical", "team"),
    ],
)
def test_who_is_notified(labels: str, receiver: str, program: Callable[[str], str]) -> None:
    command = [
        program("amtool"),
        "config",
        "routes",
        "test",
        f"--config.file={SHIPPED}",
        f"--verify.receivers={receiver}",
    ]
    done = subprocess.run([*command, *labels.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_as_shipped_nobody_is_notified() -> None:
    """No address of ours is asked every minute: the receivers that the routes name are there, and empty."""
    receivers = yaml.safe_load(SHIPPED.read_text())["receivers"]
    assert receivers == [{"name": "team"}, {"name": "on-call"}, {"name": "dead-mans-switch"}]


@pytest.mark.system("amtool")
def test_uncommented_they_are_valid(tmp_path: Path, program: Callable[[str], str]) -> None:
    shutil.copy(TEXTS, tmp_path)
    config = tmp_path / "alertmanager.yml"
    config.write_text(telling("https://pager.test"))
    done = subprocess.run([program("amtool"), "check-config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 receivers" in done.stdout
    reported = yaml.safe_load(config.read_text())["receivers"]
    assert [sorted(receiver) for receiver in reported] == [
        ["name", "slack_configs"],
        *[["name", "webhook_configs"]] * 2,
    ]


def alert(status: str, labels: Mapping[str, str], **annotations: str) -> dict[str, Any]:
    times = {"startsAt": "2026-01-01T00:00:00Z", "endsAt": "2026-01-01T01:00:00Z"}
    return {"status": status, "labels": labels, "annotations": annotations, **times}


@pytest.fixture
def rendered(tmp_path: Path, program: Callable[[str], str]) -> Callable[..., str]:
    """Gives what amtool makes of a template and alerts."""

    def render(name: str, *alerts: Mapping[str, Any], **common: Any) -> str:
        data = tmp_path / "data.json"
        data.write_text(
            json.dumps({"status": alerts[0]["status"], "alerts": alerts, "externalURL": "http://am", **common})
        )
        command = [program("amtool"), "template", "render", f"--template.glob={TEXTS}", f"--template.data={data}"]
        text = f'--template.text={{{{ template "{name}" . }}}}'
        return subprocess.run([*command, text], capture_output=True, text=True, check=True).stdout

    return render


@pytest.mark.system("amtool")
def test_a_message_says_what_is_known(rendered: Callable[..., str]) -> None:
    firing = alert(
        "firing", CRASHED, summary="It ended.", evidence="step 5", cause="OOM", fix="Less.", runbook="x run-crashed"
    )
    bare = alert("firing", {"alertname": "GrpoRunGone", "run": "a", "severity": "warning"}, summary="a: vanished")
    over = alert("resolved", {**RUN, "rule": "entropy-collapse", "severity": "warning"}, summary="Low.")
    common = {"commonLabels": {"run": "a"}, "commonAnnotations": {"page": "http://gpu7:9853/"}}
    assert rendered("grpo.title", firing, bare, over, **common) == "2 firing · a"
    assert rendered("grpo.title", firing, over, **common) == "CRITICAL run-crashed · a"
    plain = alert("firing", CRASHED, headline="Crashed after step 5 (<!here>)")
    assert rendered("grpo.title", plain, **common) == "CRITICAL Crashed after step 5 (&lt;!here&gt;) · a"
    assert rendered("grpo.text", firing, bare, over, **common).splitlines() == [
        "*critical* `run-crashed` It ended.",
        ">evidence: step 5",
        ">likely cause: OOM",
        ">fix: Less.",
        ">more: x run-crashed",
        "*warning* `GrpoRunGone` a: vanished",
        "over: `entropy-collapse` Low.",
    ]
    linked = alert("firing", CRASHED, summary="It ended.", runbook="x", runbook_url="https://wiki.example.org/r?a=1&b")
    assert rendered("grpo.text", linked).splitlines()[1] == ">more: https://wiki.example.org/r?a=1&amp;b"
    assert rendered("grpo.page", firing, **common) == "http://gpu7:9853/"
    assert rendered("grpo.page", firing) == "http://am"
    assert rendered("grpo.title", over, **common) == "RESOLVED entropy-collapse · a"
    assert rendered("grpo.title", over, over, **common) == "RESOLVED · a"


@pytest.mark.system("amtool")
@pytest.mark.parametrize(
    ("status", "severity", "color"),
    [("firing", "critical", "danger"), ("firing", "warning", "warning"), ("resolved", "critical", "good")],
)
def test_the_colour(status: str, severity: str, color: str, rendered: Callable[..., str]) -> None:
    assert rendered("grpo.color", alert(status, CRASHED), commonLabels={"severity": severity}) == color


@pytest.mark.system("amtool")
def test_a_model_can_mention_nobody(rendered: Callable[..., str]) -> None:
    """In every annotation, and in the name of the run."""
    hostile = dict.fromkeys(("summary", "evidence", "cause", "fix", "runbook"), HOSTILE)
    named = {"commonLabels": {"run": HOSTILE}}
    crashed = {**CRASHED, "run": HOSTILE}
    alerts = (alert("firing", crashed, **hostile), alert("resolved", crashed, **hostile))
    made = rendered("grpo.text", *alerts, **named) + rendered("grpo.title", *alerts, **named)
    assert "<" not in made
    assert made.count("&lt;!channel&gt; *a* &amp; &lt;http://evil|click&gt;") == 7


@pytest.fixture
def people() -> Iterator[Receiving]:
    with receiving() as server:
        yield server


@pytest.fixture
def alertmanager(
    tmp_path: Path, program: Callable[[str], str], people: Receiving, request: pytest.FixtureRequest
) -> Iterator[Served]:
    """A real one under the shipped configuration, Slack's address being that of ``people``.

    Its parameter is the receiver of critical alerts, where it is another than the shipped one.
    """
    (tmp_path / "slack").write_text(f"{people.url}/slack")
    shutil.copy(TEXTS, tmp_path)
    config = tmp_path / "alertmanager.yml"
    text = telling(people.url, tmp_path / "slack")
    assert text.count("group_wait: 10s") == 1  # of warnings; a critical waits for nothing as shipped
    assert text.count("receiver: on-call") == 1
    text = text.replace("receiver: on-call", f"receiver: {getattr(request, 'param', 'on-call')}")
    config.write_text(text.replace("group_wait: 10s", "group_wait: 0s"))
    port = free_port()
    command = alertmanager_command(program("alertmanager"), config, tmp_path, port)
    with serving(command, port, "/-/ready") as server:
        yield server


def post(server: Served, *alerts: Mapping[str, str], **annotations: str) -> None:
    started = datetime.fromtimestamp(time.time() - 30, timezone.utc).isoformat()
    body = [{"labels": labels, "annotations": annotations, "startsAt": started} for labels in alerts]
    assert httpx.post(f"{server.url}/api/v2/alerts", json=body).is_success


@pytest.mark.system("alertmanager")
def test_slack_gets_the_text(alertmanager: Served, people: Receiving) -> None:
    warning = {**RUN, "rule": "entropy-collapse", "severity": "warning"}
    post(alertmanager, warning, summary=HOSTILE, fix="Raise it.")
    (message,) = until(lambda: [json.loads(sent.body) for sent in people.sent if sent.path == "/slack"])
    (shown,) = message["attachments"]
    assert shown["title"] == "WARNING entropy-collapse · a"
    assert shown["color"] == "warning"
    assert shown["text"].splitlines() == [
        "*warning* `entropy-collapse` &lt;!channel&gt; *a* &amp; &lt;http://evil|click&gt;",
        ">fix: Raise it.",
    ]


@pytest.mark.system("alertmanager")
@pytest.mark.parametrize("alertmanager", ["team"], indirect=True)
def test_the_page_shows_what_slack_gets(alertmanager: Served, people: Receiving) -> None:
    """The alert that docs/notifications.md shows for Alertmanager, posted as it stands there."""
    page = Path("docs/notifications.md").read_text(encoding="utf-8")
    posted, received = (json.loads(text) for text in re.findall(r"(?s)Alertmanager:\n\n```json\n(.*?)\n```", page))
    assert httpx.post(f"{alertmanager.url}/api/v2/alerts", json=posted).is_success
    (message,) = until(lambda: [json.loads(sent.body) for sent in people.sent if sent.path == "/slack"])
    (shown,) = message["attachments"]
    ours = {key: shown[key] for key in ("title", "title_link", "text", "fallback", "color")}
    made = {"channel": message["channel"], "attachments": [ours]}
    assert made == received, json.dumps(made, ensure_ascii=False, indent=1)


@pytest.mark.system("alertmanager")
def test_each_critical_rule_goes_out_by_itself_at_once(alertmanager: Served, people: Receiving) -> None:
    """The second does not wait for the first one's group, whose interval is a minute; with its title and the fix."""

    def paged() -> list[dict[str, Any]]:
        return [json.loads(sent.body) for sent in people.sent if sent.path == "/on-call"]

    post(alertmanager, {**RUN, "rule": "duplicate-completions", "severity": "critical"}, fix="Set the seed.")
    until(lambda: len(paged()) == 1)
    post(alertmanager, {**RUN, "rule": "non-finite-metric", "severity": "critical"}, fix="Lower the rate.")
    until(lambda: len(paged()) == 2)
    assert [
        [(alert["labels"]["rule"], alert["annotations"]["fix"]) for alert in message["alerts"]] for message in paged()
    ] == [[("duplicate-completions", "Set the seed.")], [("non-finite-metric", "Lower the rate.")]]
    assert [message["commonLabels"]["run"] for message in paged()] == ["a", "a"]


def inhibited() -> list[tuple[set[str], set[str]]]:
    """Of each inhibition among rules: those that silence, and those that are silenced."""
    pairs = []
    for each in yaml.safe_load(SHIPPED.read_text())["inhibit_rules"]:
        sides = [
            re.search(r'rule=~?"([^"]+)"', " ".join(each[side])) for side in ("source_matchers", "target_matchers")
        ]
        if sides[0] and sides[1]:
            pairs.append((set(sides[0][1].split("|")), set(sides[1][1].split("|"))))
    return pairs


def test_a_finding_silences_only_what_diagnosis_explains_by_it() -> None:
    """No inhibition is wider than what the detectors declare; those of a frozen policy are all there."""
    pairs, detectors = inhibited(), catalogue()
    for causes, effects in pairs:
        assert all(cause in detectors[effect].explained_by for cause in causes for effect in effects)
    silenced = {(cause, effect) for causes, effects in pairs for cause in causes for effect in effects}
    frozen = {name for name, detector in detectors.items() if detector.shows_frozen_policy}
    frozen -= {"reference-follows-policy"}  # makes what it explains an `info`, which is not sent
    expected = {(cause, effect) for effect in frozen for cause in detectors[effect].explained_by if cause in frozen}
    assert expected <= silenced


def test_every_inhibition_of_a_run_stays_with_that_run() -> None:
    shipped = yaml.safe_load(SHIPPED.read_text())
    assert shipped["route"]["group_by"] == ["alertname", "run", "namespace", "team"]
    *of_runs, of_watchers, of_receivers = (each["equal"] for each in shipped["inhibit_rules"])
    assert of_runs == [["run", "namespace", "team"]] * 5
    assert (of_watchers, of_receivers) == (["job", "instance"], ["job", "instance", "sink"])


@pytest.mark.system("alertmanager")
def test_a_frozen_run_silences_its_effects_and_nothing_else(alertmanager: Served) -> None:
    """Not what is wrong besides, and nothing of a run of the same name in another namespace or of another team."""

    def of(rule: str, severity: str = "warning", **labels: str) -> dict[str, str]:
        return {**RUN, "rule": rule, "severity": severity, **labels}

    besides = ("delivery-failing", "source-unreachable", "memory-creep", "entropy-collapse", "reward-variance-collapse")
    mine = {"namespace": "x", "team": "math"}
    frozen = of("gradient-lost", "critical", **mine)
    others = [
        frozen,
        *(of(rule, **mine) for rule in besides),
        of("run-crashed", "critical", **mine),
        of("kl-stuck-at-zero", "critical", namespace="y", team="math"),
        of("kl-stuck-at-zero", "critical", namespace="x", team="code"),
        of("kl-stuck-at-zero", "critical"),
    ]
    follow = [of("kl-stuck-at-zero", "critical", **mine), of("parameters-unchanged", **mine)]
    post(alertmanager, *others, *follow)

    def labels(state: str) -> list[frozenset[tuple[str, str]]]:
        found = httpx.get(f"{alertmanager.url}/api/v2/alerts").json()
        return [frozenset(each["labels"].items()) for each in found if each["status"]["state"] == state]

    until(lambda: set(labels("suppressed")) == {frozenset(each.items()) for each in follow})
    until(lambda: set(labels("active")) == {frozenset(each.items()) for each in others})


@pytest.mark.system("alertmanager")
def test_a_crash_explains_that_the_run_goes_away_and_a_dead_watcher_what_it_last_reported(alertmanager: Served) -> None:
    """Of the same run and the same watcher only."""

    def of(name: str, severity: str = "warning", **labels: str) -> dict[str, str]:
        return {"alertname": name, "severity": severity, **labels}

    down, stuck = {"job": "grpo", "instance": "one"}, {"job": "grpo", "instance": "two"}
    post(
        alertmanager,
        CRASHED,
        of("GrpoRunGone", run="a"),
        of("GrpoRunGone", run="b"),
        of("GrpoWatchDown", **down),
        of("GrpoDeliveryFailing", **down),
        of("GrpoDeliveryFailing", sink="hook", **stuck),
        of("GrpoReceiverDown", sink="hook", **stuck),
        of("GrpoReceiverDown", sink="ping", job="grpo", instance="three"),
        of("GrpoFleetFrozen", "critical"),
    )

    def states() -> dict[str, str]:
        found = httpx.get(f"{alertmanager.url}/api/v2/alerts").json()
        places = {a["fingerprint"]: a["labels"].get("run") or a["labels"].get("instance", "") for a in found}
        return {f"{a['labels']['alertname']} {places[a['fingerprint']]}": a["status"]["state"] for a in found}

    follows = ("GrpoRunGone a", "GrpoDeliveryFailing one", "GrpoReceiverDown two")
    others = ("GrpoRunAlert a", "GrpoRunGone b", "GrpoWatchDown one", "GrpoDeliveryFailing two", "GrpoFleetFrozen ")
    others = (*others, "GrpoReceiverDown three")
    until(lambda: states() == {**dict.fromkeys(others, "active"), **dict.fromkeys(follows, "suppressed")})
