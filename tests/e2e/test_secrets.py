"""Planted secrets: no log, error, metric, page, state file or message, of daemon or command, holds one of them."""

from __future__ import annotations

import sqlite3
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.daemon.run_detail import RunDetail, pack
from grpo_watch.engine.records import EventKind, RunEvent
from grpo_watch.report.series import Series, ThinnedColumns
from grpo_watch.store.codec import encode_block, encode_item
from tests.support.planted import CRASHED, ECHO, FROZEN, REMOTE, SECRETS, Planted, kept_in, leaks, plant_runs, planted
from tests.support.process import Process, until, watching

ONE = ("", "/series", "/charts", "/charts?axis=time", "/batches")
SITE = ("/", "/static/js/main.js", "/api/v1/runs", "/api/v1/overview", "/api/v1/alerts", "/nope", "/api/v1/runs/nope")
MACHINES = ("/metrics", "/healthz", "/readyz")
RUNBOOKS = ("/api/v1/runbooks/run-crashed", "/api/v1/runbooks/nope")
LOUD = ("--log-format", "json", "-vv")


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Planted]:
    plant_runs(tmp_path / "runs")
    with planted(tmp_path) as everything:
        for name, value in everything.environment.items():
            monkeypatch.setenv(name, value)
        yield everything


def answers(client: httpx.Client) -> Iterator[tuple[str, bytes]]:
    """Every page, with the token, with a wrong one and with none; headers too."""
    runs = [f"/api/v1/runs/{name}{part}" for name in (FROZEN, CRASHED) for part in ONE]
    for token in (SECRETS["token"], "wrong", ""):
        key = {"Authorization": f"Bearer {token}"} if token else {}
        for path in (*SITE, *MACHINES, *RUNBOOKS, *runs):
            answer = client.get(path, headers=key)
            yield f"{path} {len(token)}", answer.content + str(answer.headers).encode()
    yield "openmetrics", client.get("/metrics", headers={"Accept": "application/openmetrics-text"}).content
    let_in = client.get("/", params={"token": SECRETS["token"]})
    yield "by the link", let_in.content + str(let_in.headers).encode()
    yield "by the cookie", client.get("/", headers={"Cookie": let_in.headers["set-cookie"].partition(";")[0]}).content


def alerts(client: httpx.Client) -> str:
    return client.get("/api/v1/alerts", headers={"Authorization": f"Bearer {SECRETS['token']}"}).text


def heard(daemon: Process, given: Planted, client: httpx.Client) -> None:
    """Wait until every receiver was asked and failed as it does, and both faults are known."""
    for server in given.servers.values():
        until(lambda server=server: server.sent, daemon.child)
    until(lambda: len(given.servers["echo"].sent) > 1, daemon.child)  # the first answer was heard
    for said in ("HTTP 403", "the proxy refuses", "HTTP 302", "HTTP 500", "a wandb server can't be read"):
        until(lambda said=said: said in daemon.said(), daemon.child)
    until(lambda: "kl-stuck-at-zero" in alerts(client) and "401 Client Error" in alerts(client), daemon.child)
    until(given.textfile.exists, daemon.child)
    (secret,) = given.config.parent.glob("secrets/hmac")
    secret.chmod(0o644)
    until(lambda: "every user" in daemon.said(), daemon.child)
    secret.chmod(0o600)


def printed_by(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[str, bytes]:
    """What a command says on both streams."""
    run_cli(list(command))
    said = capsys.readouterr()
    assert said.out or said.err, command
    return " ".join(command), (said.out + said.err).encode()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*imghdr.*:DeprecationWarning")  # apprise's
def test_planted_secrets_are_found_nowhere(given: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, states = tmp_path / "runs", tmp_path / "states"
    settings = ("--config", str(given.config))
    places: dict[str, bytes] = {}
    trust = ssl.create_default_context(cafile=str(given.authority))
    for form in ("logfmt", "json"):
        (state := states / form).mkdir(parents=True)
        options = (*settings, "-vv", "--log-format", form)
        with watching(str(runs), REMOTE, state=state, options=options) as daemon:
            with httpx.Client(base_url=daemon.url, verify=trust, trust_env=False, timeout=60) as client:
                heard(daemon, given, client)
                places |= {f"{form} {path}": text for path, text in answers(client)}
            where = (*settings, "--listen", daemon.url.partition("://")[2])
            places |= [printed_by(capsys, "status", *where), printed_by(capsys, "status", *where, "--format", "json")]
            live = [kept_in(file) for file in states.rglob("*") if file.is_file()]
            places |= {f"{place} live": content for each in live for place, content in each.items()}
            places[f"{form} process"] = Path(f"/proc/{daemon.child.pid}/cmdline").read_bytes()
            daemon.child.terminate()
            assert daemon.ends() == 0
        places[f"{form} log"] = daemon.said().encode()
        for server in given.servers.values():
            server.answers = server.answers[-1:]
    assert b"state.db-wal" in "".join(places).encode()
    places |= by_command(capsys, str(runs), settings, state)
    kept = [file for folder in (states, tmp_path / "home", tmp_path / "tmp") for file in folder.rglob("*")]
    for file in [*kept, given.textfile]:
        places |= kept_in(file) if file.is_file() else {}
    for column in ("items.data", "runs.history"):
        assert [place for place in places if f"{column} unpacked" in place], column
    assert len(places) > 150
    everything = b"".join(places.values())
    assert b"https://***@hub.example/api?token=***" in everything
    assert b"https://***@models.example/qwen?key=***" in everything
    assert leaks({**places, **pushed(given)}, given.secrets) == []


def by_command(
    capsys: pytest.CaptureFixture[str], runs: str, settings: tuple[str, ...], state: Path
) -> dict[str, bytes]:
    """What every command says of these runs and settings, in every format."""
    frozen, crashed = f"{runs}/{FROZEN}", f"{runs}/{CRASHED}"
    launch = ("--", "python", "train.py", "--hub_token", SECRETS["launch"], "--beta", "x")
    lines: list[tuple[str, ...]] = [
        *(("check", runs, *settings, "--format", form) for form in ("text", "junit", "markdown", "html")),
        ("check", runs, REMOTE, *settings, "--format", "json", *LOUD),
        *(("sources", runs, "--format", form) for form in ("text", "json")),
        *(("diff", frozen, crashed, "--format", form) for form in ("text", "json")),
        *(("config", *settings, "--format", form) for form in ("text", "json")),
        *(("preflight", frozen, "--format", form) for form in ("text", "json")),
        ("preflight", "--format", "json", *launch),
        ("explain", "run-crashed", *settings),
        ("rules", "list"),
        ("notify", "test", *settings, *LOUD),
        ("push", "clean", *settings, "--state-dir", str(state), *LOUD),
    ]
    return dict(printed_by(capsys, *line) for line in lines)


def pushed(given: Planted) -> Mapping[str, bytes]:
    """What receivers got, without what each needs itself: its address, its headers, a key in the body."""
    places = {}
    for name, server in given.servers.items():
        own = [word.encode() for secret, word in given.secrets.items() if secret.partition(" ")[0] == name]
        for number, sent in enumerate(server.sent):
            body = sent.body
            for word in own:
                body = body.replace(word, b"")
            places[f"to {name} {number}"] = body
    assert b"dedup_key" in places["to pagerduty 0"]
    return places


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    assert leaks({"somewhere": ECHO}, SECRETS) == [("somewhere", name) for name in SECRETS]
    for before in (b"", b"a", b"ab", b"abc"):
        coded = httpx.BasicAuth(before, SECRETS["token"])._auth_header.encode()
        assert leaks({"a header": coded}, SECRETS) == [("a header", "token")]
    said = RunEvent("train.log", EventKind.TRACEBACK, text=SECRETS["token"])
    assert hidden(tmp_path / "items.db", encode_block([encode_item(said)]))
    assert hidden(
        tmp_path / "history.db", pack(RunDetail(Series.of(ThinnedColumns([1], [1], {SECRETS["token"]: [0.5]}))))
    )


def hidden(state: Path, content: bytes) -> bool:
    """Whether the search finds the token in packed content that only the WAL holds; its bytes alone don't show it."""
    assert SECRETS["token"].encode() not in content
    with closing(sqlite3.connect(state)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE packed (data BLOB)")
        database.execute("INSERT INTO packed VALUES (?)", (content,))
        database.commit()
        return leaks(kept_in(state), SECRETS) == [(f"{state} packed.data unpacked", "token")]
