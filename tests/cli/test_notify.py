"""``notify test`` against receivers on this machine, and ``status`` against a daemon that is not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.config.fields import converted
from grpo_watch.config.schema import AlertmanagerSink, BaseSink, Settings
from grpo_watch.notify.receiver import ReceiverContext, build
from tests.support.bundles import unpack
from tests.support.every_receiver import pointed, shown
from tests.support.receiving import Answer, receiving, secret_file


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
    assert json.loads(message.body)["text"].startswith("TEST of grpo-watch")
    assert "geheim" not in first + second


@pytest.mark.filterwarnings("ignore:.*imghdr.*:DeprecationWarning")  # imported by apprise itself
@pytest.mark.parametrize("sink", shown(), ids=lambda sink: sink.type)
def test_every_title_says_that_it_is_a_test(sink: BaseSink, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a receiver is sent about alerts; a heartbeat is asked, and metrics are left alone."""
    with receiving() as service:
        given = pointed(sink, service.url, tmp_path, lambda _: "geheim")
        (tmp_path / "grpo-watch.yaml").write_text(json.dumps({"sinks": [given]}))
        assert run_cli(["notify", "test", "--config", str(tmp_path / "grpo-watch.yaml")]) == 0
    assert not any(b"critical" in sent.body for sent in service.sent)
    (routed,) = build(converted(Settings, {"sinks": [given]}).sinks, ReceiverContext(lambda: 0.0))
    if not (routed.receiver.chat or routed.receiver.keyed or routed.receiver.for_programs):  # it takes no messages
        assert {(sent.method, sent.body) for sent in service.sent} <= {("GET", b"")}
        return
    bodies = [document(sent.body) for sent in service.sent if sent.method == "POST"]
    if isinstance(sink, AlertmanagerSink):
        assert bodies.pop(0) == []  # first that nothing fires, then the sample
    (body,) = bodies
    assert any(text.startswith("TEST ") for text in texts_in(body))


def document(body: bytes) -> object:
    """What was sent: JSON, or a text as it is."""
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()


def texts_in(part: object) -> Iterator[str]:
    """The texts of a document: any may be the one that people read first."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict | list):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from texts_in(inner)


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


def test_the_alert_of_a_finished_run_is_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its root finding as the daemon would have sent it, under an id that no daemon uses."""
    run = unpack("trl-1.16.0-09-frozen-lr0", tmp_path)
    with receiving() as hook:
        file = settings(tmp_path, f"type: webhook, url: '{hook.url}/hook'")
        assert run_cli(["notify", "test", "--run", str(run), "--config", file]) == 0
    (sent,) = hook.sent
    message = json.loads(sent.body)
    assert (message["rule"], message["severity"], message["status"]) == ("learning-rate-zero", "critical", "firing")
    assert message["run"] == run.name
    assert message["id"].startswith("notify-test-")
    assert message["hint"]


def test_the_commands_of_a_message_work_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = unpack("trl-1.16.0-21-late-freeze", tmp_path)
    monkeypatch.chdir(tmp_path)
    with receiving() as hook:
        file = settings(tmp_path, f"type: webhook, url: '{hook.url}/hook'")
        assert run_cli(["notify", "test", "--run", run.name, "--config", file]) == 0
    (sent,) = hook.sent
    at = f"{run}/output/checkpoint-"
    assert f"`grpo-watch digest {at}20 {at}30`" in json.loads(sent.body)["hint"]


def test_a_healthy_run_has_no_alert_to_send(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = unpack("trl-1.16.0-04-healthy-lora", tmp_path)
    with receiving() as hook:
        file = settings(tmp_path, f"type: webhook, url: '{hook.url}/hook'")
        assert run_cli(["notify", "test", "--run", str(run), "--config", file]) == 2
    assert hook.sent == []
    assert "no run with a finding to send" in capsys.readouterr().err
