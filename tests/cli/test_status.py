"""``status`` asks a daemon with a token and a certificate too, and obeys nothing that a run's folder is called."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from grpo_watch.cli.http_listener import HttpListener, protection_of
from grpo_watch.cli.main import run_cli
from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings, Web
from grpo_watch.engine.snapshot import RunSnapshot, RunVerdict
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from tests.support.receiving import Answer, receiving, secret_file
from tests.support.serving import web
from tests.web.test_app import FINDING, SNAPSHOT, Fake

ODD = "a\x1b]8;;http://evil.example\x07b\x1b[2J\u202ec"


class Hostile(Fake):
    """A run whose folder and findings are called something that a terminal would obey."""

    def snapshot(self) -> DaemonSnapshot:
        rules = tuple(replace(rule, reason=ODD) for rule in SNAPSHOT.rules)
        finding = replace(FINDING, summary=ODD)
        snapshot: RunSnapshot = replace(SNAPSHOT, run=ODD, rules=rules, findings=(finding,))
        return DaemonSnapshot(runs=(RunOverview(snapshot, "slug", active=True),), problems=(ODD,))


class Resolved(Fake):
    """A run whose only finding resolved in its last attempt, which is why its verdict is a warning."""

    def snapshot(self) -> DaemonSnapshot:
        finding = replace(FINDING, resolved_step=30, attempt=SNAPSHOT.attempt)
        snapshot = replace(SNAPSHOT, findings=(finding,), verdict=RunVerdict.WARNING)
        return DaemonSnapshot(runs=(RunOverview(snapshot, "slug", active=True),))


def test_a_verdict_stands_above_the_finding_that_it_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with web(Resolved()) as place:
        assert run_cli(["status", "--listen", place]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("v0 run: warning")
    assert second.startswith(f"  {FINDING.severity.value}, over: {FINDING.rule} ")
    assert "resolved at 30" in second


def test_runs_that_are_not_read_yet_are_announced(capsys: pytest.CaptureFixture[str]) -> None:
    watch = Resolved()
    for watch.is_ready, announced in ((True, False), (False, True)):
        with web(watch) as place:
            assert run_cli(["status", "--listen", place]) == 0
        assert ("\nstill reading: other runs may follow\n" in capsys.readouterr().out) is announced


def test_in_chinese(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own words are; those of the daemon are in the daemon's language. So is why none answers."""
    monkeypatch.setenv("GRPO_WATCH_LANGUAGE", "zh")
    with web(Resolved()) as place:
        assert run_cli(["status", "-v", "--listen", place]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("v0 run：warning，运行中，第 33 步，共 80 步 · ")
    assert second.startswith(f"  严重，已恢复：{FINDING.rule} ")
    assert run_cli(["status", "--listen", "127.0.0.1:1"]) == 3
    assert capsys.readouterr().err.startswith("grpo-watch: http://127.0.0.1:1 没有守护进程响应（")


def settings(folder: Path, place: str, **more: object) -> list[str]:
    file = folder / "grpo-watch.yaml"
    file.write_text(json.dumps({"listen": place, "web": more}))
    return ["status", "--config", str(file)]


def test_a_terminal_obeys_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    with web(Hostile()) as place:
        assert run_cli(["status", "-v", "--listen", place]) == 0
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert shown.count("\\x1b]8;;http://evil.example\\x07") == 4


def test_with_the_token_and_the_certificate_of_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = trustme.CA().issue_cert("gpu7.example")
    secret_file(tmp_path / "key.pem", made.private_key_pem.bytes().decode())
    (tmp_path / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    secret_file(tmp_path / "token", "geheim")
    files = {"tls_cert": str(tmp_path / "cert.pem"), "tls_key": str(tmp_path / "key.pem")}
    files["token_file"] = str(tmp_path / "token")
    keys, tls = protection_of(converted(Web, files))
    with web(Fake(), keys, tls) as place:
        assert run_cli(settings(tmp_path, place, **files)) == 0
        assert capsys.readouterr().out.startswith("v0 run: critical, running, step 33 of 80")
        other = trustme.CA().issue_cert("gpu7.example").cert_chain_pems[0].bytes()
        (tmp_path / "cert.pem").write_bytes(other)
        assert run_cli(settings(tmp_path, place, **files)) == 3
        assert "certificate verify failed" in capsys.readouterr().err
    with web(Fake(), keys) as place:
        assert run_cli(["status", "--listen", place]) == 3
        assert "requires a token" in capsys.readouterr().err


def test_with_the_token_that_the_daemon_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Found in its state; the link that opens the page is printed with it."""
    (state := tmp_path / "state").mkdir()
    front = HttpListener(Settings(listen="127.0.0.1:0"))
    front.protect(state)
    servers = front.serve(Fake())
    servers.start()
    try:
        assert run_cli(["status", "--listen", front.address, "--state-dir", str(state)]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"page: {front.link}"
        assert run_cli(["status", "--state-dir", str(state)]) == 0, "the state says where its daemon listens"
        assert run_cli(["status", "--listen", front.address, "--state-dir", str(tmp_path)]) == 3
        assert "requires a token; use its --state-dir" in capsys.readouterr().err
    finally:
        servers.stop()


def test_the_token_is_not_sent_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret_file(tmp_path / "token", "geheim")
    with receiving() as elsewhere, receiving(Answer(302, {"Location": elsewhere.url})) as other:
        place = other.url.removeprefix("http://")
        assert run_cli(settings(tmp_path, place, token_file=str(tmp_path / "token"))) == 3
        assert elsewhere.sent == []
    assert "geheim" not in capsys.readouterr().err
