"""``notify test`` against receivers on this machine, and ``status`` against a daemon that is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.cli.notify import ONLY_METRICS
from grpo_watch.config.sinks import SINKS
from tests.support.receiving import Answer, receiving, secret_file

TITLES = {
    "slack": ("type: slack, webhook_url_file: '{file}'", "", ("text",)),
    "webhook": ("type: webhook, url: '{url}/hook'", "", ("summary",)),
    "webhook as Alertmanager": (
        "type: webhook, url: '{url}/hook', format: alertmanager",
        "",
        ("alerts", 0, "annotations", "summary"),
    ),
    "alertmanager": ("type: alertmanager, url: '{url}'", "", (0, "annotations", "summary")),
    "pagerduty": ("type: pagerduty, url: '{url}', routing_key_file: '{file}'", "", ("payload", "summary")),
    "apprise": ("type: apprise, url_file: '{file}'", "json", ("title",)),
}
"""Of each kind of receiver: its setting, the scheme of the address in its file, and where its message has the title."""
WITHOUT_TITLE = ONLY_METRICS | {"heartbeat"}


def settings(folder: Path, *sinks: str) -> str:
    path = folder / "grpo-watch.yaml"
    path.write_text("sinks:\n" + "".join(f"  - {{{sink}}}\n" for sink in sinks))
    return str(path)


def test_a_sample_arrives_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says that it is a test, pages nobody, and no resolved notification follows."""
    with receiving() as hook:
        assert (
            run_cli(["notify", "test", "--config", settings(tmp_path, f"type: webhook, url: '{hook.url}/hook'")]) == 0
        )
    sent_notifications = [json.loads(sent.body) for sent in hook.sent]
    (sample,) = sent_notifications
    assert (sample["run"], sample["rule"], sample["status"]) == ("notify-test", "notify-test", "firing")
    assert sample["severity"] == "info"
    assert sample["runbook"] == ""  # no rule of this name has one
    assert sample["summary"] == "TEST of grpo-watch: no run is affected."
    assert capsys.readouterr().out.startswith("ok      webhook:127.0.0.1:")


def test_each_receiver_is_tried_and_one_that_fails_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second one does not hide the first; the secret path of a webhook's address is not printed."""
    with receiving(Answer(status=403)) as closed, receiving() as slack:
        secret_file(tmp_path / "slack", f"{slack.url}/services/T0/B0/geheim\n")
        file = settings(tmp_path, f"type: webhook, url: '{closed.url}/hook'", "type: slack, webhook_url_file: slack")
        assert run_cli(["notify", "test", "--config", file]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("failed  webhook:127.0.0.1:")
    assert "403" in first
    assert second.startswith("ok      slack")
    (message,) = slack.sent
    assert json.loads(message.body)["text"].startswith("TEST notify-test ")
    assert "geheim" not in first + second


@pytest.mark.filterwarnings("ignore:.*imghdr.*:DeprecationWarning")  # imported by apprise itself
@pytest.mark.parametrize("kind", TITLES)
def test_every_title_says_that_it_is_a_test(kind: str, tmp_path: Path) -> None:
    setting, scheme, place = TITLES[kind]
    with receiving() as service:
        address = service.url.replace("http", scheme) if scheme else service.url
        file = secret_file(tmp_path / "address", f"{address}/services/T0/B0/x\n")
        sink = setting.format(url=service.url, file=file)
        assert run_cli(["notify", "test", "--config", settings(tmp_path, sink)]) == 0
    title = json.loads(service.sent[-1].body)  # Alertmanager is asked for its clock first
    for step in place:
        title = title[step]
    assert title.startswith("TEST ")
    assert not any(b"critical" in sent.body for sent in service.sent)


def test_the_title_of_every_kind_of_receiver_is_known() -> None:
    kinds = {kind.model_fields["type"].annotation.__args__[0] for kind in SINKS}  # type: ignore[union-attr]
    assert kinds == {name.partition(" ")[0] for name in TITLES} | WITHOUT_TITLE


def test_metrics_of_a_running_watch_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with receiving() as gateway:
        file = settings(tmp_path, f"type: pushgateway, url: '{gateway.url}'", "type: textfile, path: grpo.prom")
        assert run_cli(["notify", "test", "--config", file]) == 0
    assert gateway.sent == []
    assert not (tmp_path / "grpo.prom").exists()
    assert capsys.readouterr().out.count("skipped") == 2


def test_without_receivers_there_is_nothing_to_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "grpo-watch.yaml"
    file.write_text("listen: ':0'\n")
    assert run_cli(["notify", "test", "--config", str(file)]) == 2
    assert "no receiver configured" in capsys.readouterr().err


def test_status_without_a_daemon(capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names the address; port 9 of this machine is unused."""
    assert run_cli(["status", "--listen", "127.0.0.1:9"]) == 3
    assert "no daemon responds at http://127.0.0.1:9" in capsys.readouterr().err
