"""The real Alertmanager under the shipped configuration: fire, repeat, resolve, silence, inhibit, restarts."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import AlertmanagerSink
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.notify.receiver import DeliveryResult, ReceiverContext
from grpo_watch.notify.receivers.alertmanager import EXPIRES_SECONDS, AlertmanagerReceiver
from grpo_watch.store.messages import Notification
from tests.support.alertmanager import SHIPPED, telling
from tests.support.high import RULE, RULES, Run, ready
from tests.support.process import until, watching
from tests.support.receiving import Receiving, a_notification, receiving
from tests.support.servers import Served, alertmanager_command, free_port, serving

Start = Callable[[], AbstractContextManager[Served]]
pytestmark = pytest.mark.system("alertmanager")


@pytest.fixture
def people() -> Iterator[Receiving]:
    """Where Alertmanager sends what it groups."""
    with receiving() as server:
        yield server


@pytest.fixture
def start(tmp_path: Path, program: Callable[[str], str], people: Receiving) -> Start:
    """Starts Alertmanager under the shipped configuration, always on the same port and storage."""
    config = tmp_path / "alertmanager.yml"
    config.write_text(telling(people.url))
    port = free_port()
    command = alertmanager_command(program("alertmanager"), config, tmp_path, port)
    return lambda: serving(command, port, "/-/ready")


def receiver_of(server: Served, instance: str, clock: Callable[[], float]) -> AlertmanagerReceiver:
    settings = {"type": "alertmanager", "url": server.url, "heartbeat": bool(instance)}
    return AlertmanagerReceiver(converted(AlertmanagerSink, settings), "alertmanager", ReceiverContext(clock, instance))


def receiver(server: Served, instance: str = "") -> AlertmanagerReceiver:
    return receiver_of(server, instance, time.time)


def firing(**changed: Any) -> Notification:
    return a_notification(started=time.time() - 30, **changed)


def over(notification: Notification) -> Notification:
    return replace(notification, id=f"{notification.id}-over", status="resolved", ended=time.time())


def alerts(server: Served) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{server.url}/api/v2/alerts").json()
    return sorted(found, key=lambda alert: (alert["labels"].get("run", ""), alert["labels"].get("rule", "")))


def named(server: Served) -> list[tuple[str, str]]:
    return [(alert["labels"]["run"], alert["labels"]["rule"]) for alert in alerts(server)]


def delivered(*outcomes: Any) -> None:
    assert [outcome.result for outcome in outcomes] == [DeliveryResult.DELIVERED] * len(outcomes), outcomes


def states(server: Served) -> dict[str, str]:
    return {f"{a['labels']['run']} {a['labels']['rule']}": a["status"]["state"] for a in alerts(server)}


def seconds(moment: str) -> float:
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def got(people: Receiving, path: str) -> Sequence[dict[str, Any]]:
    return [json.loads(sent.body) for sent in people.sent if sent.path == path]


def test_fires_repeats_and_resolves(start: Start, people: Receiving) -> None:
    """Labels and annotations as in the public interface; a repeat is the same alert; a person is notified."""
    with start() as server:
        sink, alert = receiver(server), firing()
        delivered(sink.send(alert))
        (first,) = alerts(server)
        assert first["labels"] == {
            "alertname": "GrpoRunAlert",
            "rule": "kl-stuck-at-zero",
            "run": "v0-run",
            "severity": "critical",
            "team": "math",
        }
        assert first["annotations"] == {
            "headline": "Not learning since step 2 (8 steps)",
            "summary": "KL has been exactly 0 for 9 steps although rewards differ.",
            "evidence": "reference KL 0 · groups with zero std 12%",
            "cause": "The optimizer does not hold the model's parameters.",
            "fix": "Stop the run.",
            "runbook": "grpo-watch explain kl-stuck-at-zero",
            "page": "http://127.0.0.1:9853/",
        }
        assert seconds(first["startsAt"]) == pytest.approx(alert.started, abs=0.01)
        assert seconds(first["endsAt"]) == pytest.approx(time.time() + EXPIRES_SECONDS, abs=60)
        (call,) = until(lambda: got(people, "/on-call"))
        assert (call["status"], call["alerts"][0]["labels"]["run"]) == ("firing", "v0-run")
        delivered(sink.refresh([alert], DaemonSnapshot(), time.time()))
        (again,) = alerts(server)
        assert (again["fingerprint"], again["startsAt"]) == (first["fingerprint"], first["startsAt"])
        assert again["updatedAt"] > first["updatedAt"]
        delivered(sink.send(over(alert)))
        until(lambda: alerts(server) == [])


def test_an_empty_request_is_taken(start: Start) -> None:
    """It shows that Alertmanager is there while nothing fires."""
    with start() as server:
        delivered(receiver(server).refresh([], DaemonSnapshot(), time.time()))
        assert alerts(server) == []


def test_a_runbook_that_is_an_address_is_a_link(start: Start) -> None:
    with start() as server:
        delivered(receiver(server).send(firing(runbook="https://wiki.example.org/kl")))
        (alert,) = alerts(server)
        assert alert["annotations"]["runbook_url"] == "https://wiki.example.org/kl"


def test_one_alert_for_many_keys_ends_with_the_last(start: Start) -> None:
    """Two reward functions under one rule share their labels."""
    with start() as server:
        sink, one, two = receiver(server), firing(key="a"), firing(key="b", id="beef")
        delivered(sink.send(one), sink.send(two), sink.send(over(one)))
        assert len(alerts(server)) == 1
        delivered(sink.send(over(two)))
        until(lambda: alerts(server) == [])


def test_an_alert_that_gets_worse_is_one_alert(start: Start) -> None:
    """As a critical one at once, and not as a warning too; it resolves whole."""
    with start() as server:
        sink, warning = receiver(server), firing(severity="warning")
        critical = replace(warning, id="beef", severity="critical")
        delivered(sink.send(warning), sink.send(critical))
        until(lambda: [a["labels"]["severity"] for a in alerts(server)] == ["critical"])
        delivered(sink.send(over(critical)))
        until(lambda: alerts(server) == [])


def test_what_fires_no_more_ends_with_the_next_repeat(start: Start) -> None:
    """A finding that diagnosis made a warning has other labels; the critical one must not page on."""
    with start() as server:
        sink, alert = receiver(server), firing()
        delivered(sink.send(alert))
        delivered(sink.refresh([replace(alert, severity="warning")], DaemonSnapshot(), time.time()))
        until(lambda: [a["labels"]["severity"] for a in alerts(server)] == ["warning"])


def test_silence(start: Start, people: Receiving) -> None:
    now = datetime.now(timezone.utc)
    with start() as server:
        silence = {
            "matchers": [{"name": "run", "value": "v0-run", "isRegex": False, "isEqual": True}],
            "startsAt": now.isoformat(),
            "endsAt": (now + timedelta(hours=1)).isoformat(),
            "createdBy": "someone",
            "comment": "known",
        }
        assert httpx.post(f"{server.url}/api/v2/silences", json=silence).is_success
        delivered(receiver(server).send(firing()), receiver(server).send(firing(run="v1-run", id="beef")))
        until(lambda: states(server).get("v0-run kl-stuck-at-zero") == "suppressed")
        calls = until(lambda: got(people, "/on-call"))
        assert {alert["labels"]["run"] for call in calls for alert in call["alerts"]} == {"v1-run"}


def test_a_frozen_policy_inhibits_what_follows_from_it(start: Start) -> None:
    """And no more: of two findings of the same standstill the nearer cause calls."""
    with start() as server:
        sink = receiver(server)
        frozen = firing(rule="parameters-unchanged")
        parts = (
            frozen,
            firing(id="2", rule="kl-stuck-at-zero"),
            firing(id="3", rule="entropy-collapse", severity="warning"),
            firing(id="4", rule="kl-stuck-at-zero", run="v1-run"),
        )
        delivered(sink.send(replace(frozen, id="digest", parts=parts)))
        until(lambda: len(alerts(server)) == 4)
        until(lambda: states(server)["v0-run entropy-collapse"] == "active")
        until(lambda: states(server)["v0-run kl-stuck-at-zero"] == "suppressed")
        until(lambda: states(server)["v0-run parameters-unchanged"] == "active")
        until(lambda: states(server)["v1-run kl-stuck-at-zero"] == "active")


def test_the_root_cause_calls_at_once_after_another_finding_of_the_run(start: Start, people: Receiving) -> None:
    """Each critical rule is a group of its own: the second one waits for no group_interval."""
    with start() as server:
        sink = receiver(server)
        delivered(sink.send(firing()))
        until(lambda: got(people, "/on-call"))
        delivered(sink.send(firing(id="beef", rule="parameters-unchanged")))
        calls = until(lambda: len(calls := got(people, "/on-call")) > 1 and calls)
        reported = [[each["labels"]["rule"] for each in call["alerts"]] for call in calls]
        assert reported == [["kl-stuck-at-zero"], ["parameters-unchanged"]]


def test_alertmanager_restarts(start: Start) -> None:
    """It forgets alerts; the next repeat gives them back. Meanwhile sending is to be tried again."""
    alert = firing()
    with start() as server:
        sink = receiver(server)
        delivered(sink.send(alert))
    assert sink.send(alert).result is DeliveryResult.RETRY
    with start() as server:
        assert alerts(server) == []
        delivered(sink.refresh([alert], DaemonSnapshot(), time.time()))
        assert named(server) == [("v0-run", "kl-stuck-at-zero")]


def test_the_watcher_restarts(start: Start) -> None:
    """A new process knows nothing of what it posted: what fires stays one alert, and resolves."""
    alert, other = firing(), firing(id="beef", run="v1-run")
    with start() as server:
        delivered(receiver(server).send(alert), receiver(server).send(other))
        fresh = receiver(server)
        delivered(fresh.refresh([alert, other], DaemonSnapshot(), time.time()))
        assert named(server) == [("v0-run", "kl-stuck-at-zero"), ("v1-run", "kl-stuck-at-zero")]
        delivered(fresh.send(over(alert)))
        until(lambda: named(server) == [("v1-run", "kl-stuck-at-zero")])


@pytest.mark.slow
def test_each_of_two_has_the_alert_also_one_that_is_started_later(
    tmp_path: Path, program: Callable[[str], str], people: Receiving
) -> None:
    """The daemon tells both; while one is down the other has it, and in the end it is active in each, once."""
    run, config = Run(tmp_path), tmp_path / "alertmanager.yml"
    config.write_text(telling(people.url))
    up, later = free_port(), free_port()

    def started(port: int) -> AbstractContextManager[Served]:
        folder = tmp_path / str(port)
        return serving(alertmanager_command(program("alertmanager"), config, folder, port), port, "/-/ready")

    sinks = [
        {"type": "alertmanager", "name": name, "url": f"http://127.0.0.1:{port}", "only_rules": [RULE]}
        for name, port in (("up", up), ("later", later))
    ]
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "grpo-watch.yaml").write_text(json.dumps({"rules": ["rules.yaml"], "sinks": sinks}))
    options = ("--config", str(tmp_path / "grpo-watch.yaml"))
    with started(up) as one, watching(run.path, state=tmp_path / "state", options=options) as daemon:
        ready(daemon)
        run.write(0.9)
        until(lambda: active(one) == [("run", RULE)], daemon.child)
        until(lambda: 'grpo_watch_delivery_queue_length{sink="later"} 1.0' in daemon.get("/metrics"), daemon.child)
        with started(later) as other:
            until(lambda: active(other) == [("run", RULE)], daemon.child)
            assert active(one) == [("run", RULE)]
            run.write(0.2)
            until(lambda: active(one) == active(other) == [], daemon.child)


def active(server: Served) -> list[tuple[str, str]]:
    """Run and rule of each alert that is active there."""
    return [(a["labels"]["run"], a["labels"]["rule"]) for a in alerts(server) if a["status"]["state"] == "active"]


@pytest.mark.slow
def test_many_alerts_and_hostile_text(start: Start) -> None:
    """Five hundred in three requests; text that is no UTF-8, and control characters, are taken."""
    with start() as server:
        sink = receiver(server)
        parts = tuple(firing(id=str(n), run=f"run-{n:03}", message="\x1b[31m<!channel> \ud83d") for n in range(500))
        delivered(sink.send(replace(parts[0], id="digest", parts=parts)))
        assert len(alerts(server)) == 500
        assert alerts(server)[0]["annotations"]["summary"] == "\\x1b[31m<!channel> \\ud83d"


def test_the_heartbeat_always_fires(start: Start, people: Receiving) -> None:
    with start() as server:
        delivered(receiver(server, "gpu7").refresh([], DaemonSnapshot(), time.time()))
        (alive,) = alerts(server)
        assert alive["labels"] == {"alertname": "GrpoWatchAlive", "instance": "gpu7", "severity": "none"}
        assert until(lambda: got(people, "/alive"))


@pytest.mark.system("amtool")
def test_shipped_configurations_are_valid(program: Callable[[str], str]) -> None:
    files = sorted(SHIPPED.parent.glob("*.yml"))
    assert files
    for file in files:
        subprocess.run([program("amtool"), "check-config", str(file)], check=True, capture_output=True)


class Shifted:
    """A watcher whose clock is off by so many seconds; its alert began half a minute ago by that clock."""

    def __init__(self, server: Served, seconds: float) -> None:
        self.seconds = seconds
        self.sink = receiver_of(server, "gpu7", self.clock)
        self.alert = a_notification(started=self.clock() - 30)

    def clock(self) -> float:
        return time.time() + self.seconds

    def repeat(self) -> None:
        delivered(self.sink.refresh([self.alert], DaemonSnapshot(), self.clock()))

    def end(self) -> None:
        delivered(self.sink.send(replace(self.alert, status="resolved", ended=self.clock())))


def of_run(server: Served) -> list[dict[str, Any]]:
    return [alert for alert in alerts(server) if alert["labels"]["alertname"] == "GrpoRunAlert"]


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_clock_that_is_wrong_changes_nothing(start: Start, people: Receiving, minutes: int) -> None:
    """Ten minutes behind, it would be over as it comes; ten ahead, it would outlive its end and the watcher by that."""
    with start() as server:
        watcher = Shifted(server, 60.0 * minutes)
        delivered(watcher.sink.send(watcher.alert))
        for _ in range(2):
            (alert,) = of_run(server)
            assert alert["status"]["state"] == "active"
            assert seconds(alert["startsAt"]) == pytest.approx(time.time() - 30, abs=60)
            assert seconds(alert["endsAt"]) == pytest.approx(time.time() + EXPIRES_SECONDS, abs=60)
            watcher.repeat()
        (call,) = until(lambda: got(people, "/on-call"))
        assert call["status"] == "firing"
        assert [a["labels"]["instance"] for a in alerts(server) if a not in of_run(server)] == ["gpu7"]
        watcher.end()
        until(lambda: of_run(server) == [])


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_clock_that_is_set_while_the_alert_fires_changes_nothing(start: Start, minutes: int) -> None:
    """The first repeat after it says what is right."""
    with start() as server:
        watcher = Shifted(server, 0.0)
        delivered(watcher.sink.send(watcher.alert))
        watcher.seconds = 60.0 * minutes
        watcher.repeat()
        (alert,) = of_run(server)
        assert seconds(alert["endsAt"]) == pytest.approx(time.time() + EXPIRES_SECONDS, abs=60)
        watcher.end()
        until(lambda: of_run(server) == [])


def test_no_alert_begins_in_the_future(start: Start) -> None:
    """A row may bear a time that its producer's clock was ahead with."""
    with start() as server:
        delivered(receiver(server).send(a_notification(started=time.time() + 3_600)))
        (alert,) = alerts(server)
        assert seconds(alert["startsAt"]) <= time.time()


@pytest.mark.slow
def test_ten_thousand_alerts_at_once_are_all_there(start: Start) -> None:
    """In fifty requests, each taken whole."""
    many = [firing(run=f"run-{number}", id=str(number), severity="warning") for number in range(10_000)]
    with start() as server:
        delivered(receiver(server).refresh(many, DaemonSnapshot(), time.time()))
        until(lambda: 'alertmanager_alerts{state="active"} 10000' in httpx.get(f"{server.url}/metrics").text)
