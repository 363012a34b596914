"""Planted completions: nothing that leaves the daemon, or that it keeps, holds more of a text than one excerpt."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from grpo_watch.cli.main import run_cli
from tests.support.bundles import unpack
from tests.support.process import until, watching
from tests.support.receiving import Receiving, receiving

COPIES = "ms-swift-4.6.0-05a-dups-i-eq-i-plus-3"
BEGINS, MIDDLE, TAIL, PROMPT, SECRET = (
    "plantedbegin",
    "plantedmiddle",
    "plantedtail",
    "plantedprompt",
    "sk-planted1secret2key3",
)
HOSTILE = "\x1b[31m"


def planted(text: str) -> str:
    """A completion that stays equal where it was: an excerpt may show its first 80 characters, masked and escaped."""
    return f"{BEGINS} {HOSTILE}{SECRET} {text[:10]} " + "and so on " * 10 + MIDDLE + " and on" * 300 + TAIL


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three of six completions are copies in every group: a finding that has something to show."""
    folder = unpack(COPIES, tmp_path / "runs")
    (file,) = folder.rglob("completions.jsonl")
    tables = [json.loads(line) for line in file.read_text().splitlines()]
    for table in tables:
        table["completion"] = [planted(text) for text in table["completion"]]
        table["prompt"] = [f"{PROMPT} {prompt}" for prompt in table["prompt"]]
    file.write_text("".join(json.dumps(table) + "\n" for table in tables))
    console = folder / "train.log"
    console.write_text(console.read_text(errors="replace") + f"\n| {PROMPT} | {MIDDLE} {TAIL} |\n")
    return folder


@pytest.fixture
def servers() -> Iterator[dict[str, Receiving]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(receiving()) for name in ("slack", "webhook", "gateway", "alerts")}


def config(folder: Path, servers: dict[str, Receiving], **more: object) -> Path:
    secret = folder / "slack.secret"
    secret.write_text(f"{servers['slack'].url}/services/x")
    secret.chmod(0o600)
    sinks = [
        {"type": "slack", "webhook_url_file": str(secret)},
        {"type": "webhook", "url": f"{servers['webhook'].url}/hook"},
        {"type": "alertmanager", "url": servers["alerts"].url},
        {"type": "pushgateway", "url": servers["gateway"].url},
        {"type": "textfile", "path": str(folder / "grpo.prom")},
    ]
    file = folder / "grpo-watch.yaml"
    file.write_text(json.dumps({"sinks": sinks, "notify_backlog": "all", **more}))  # JSON is YAML
    return file


def kept(state: Path) -> Iterator[tuple[str, bytes]]:
    """Every value in the state file, unpacked, and every file as it is."""
    for file in state.rglob("*"):
        if file.is_file():
            yield file.name, file.read_bytes()
    (database,) = state.rglob("*.db")
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608  names from the file itself
                for cell in row:
                    yield table, unpacked(cell)


def unpacked(cell: object) -> bytes:
    if not isinstance(cell, bytes):
        return str(cell).encode()
    try:
        return zlib.decompress(cell)
    except zlib.error:
        return cell


def everything(
    run: Path,
    tmp_path: Path,
    servers: dict[str, Receiving],
    capsys: pytest.CaptureFixture[str],
    *options: str,
    **more: object,
) -> dict[str, bytes]:
    """All that the daemon and ``check`` say of the run, by place."""
    state = tmp_path / "state"
    with watching(
        run, state=state, options=("--config", str(config(tmp_path, servers, **more)), "-vv", *options)
    ) as daemon:
        for server in servers.values():
            until(lambda server=server: server.sent, daemon.child)
        until(lambda: b"duplicate-completions" in b"".join(sent.body for sent in servers["webhook"].sent), daemon.child)
        batches = f"/api/v1/runs/{COPIES}/batches"
        paths = ("/metrics", "/", "/api/v1/runs", "/api/v1/alerts", batches)
        places = {path: httpx.get(f"{daemon.url}{path}", headers=daemon.headers).content for path in paths}
        until((tmp_path / "grpo.prom").exists, daemon.child)
        places["textfile"] = (tmp_path / "grpo.prom").read_bytes()
        daemon.child.terminate()
        assert daemon.ends() == 0
    places["log"] = daemon.said().encode()
    places |= {f"state {at} {name}": data for at, (name, data) in enumerate(kept(state))}
    for name, server in servers.items():
        places |= {f"{name} {at}": sent.body for at, sent in enumerate(server.sent)}
    for form in ("text", "json", "html", "markdown", "junit"):
        assert run_cli(["check", str(run), "--format", form, "--fail-on", "never", *options]) == 0
        said = capsys.readouterr()
        places[f"check {form}"] = (said.out + said.err).encode()
    return places


def holding(places: dict[str, bytes], *words: str) -> dict[str, set[str]]:
    """Where each word is found, by the first part of the place's name."""
    return {
        word: {place.split(" ")[0] for place, data in places.items() if word.encode() in data}
        for word in words
        if any(word.encode() in data for data in places.values())
    }


@pytest.mark.slow
def test_one_excerpt_and_no_more(
    run: Path, tmp_path: Path, servers: dict[str, Receiving], capsys: pytest.CaptureFixture[str]
) -> None:
    places = everything(run, tmp_path, servers, capsys)
    assert holding(places, MIDDLE, TAIL, PROMPT, SECRET, HOSTILE) == {}
    found = holding(places, BEGINS)[BEGINS]
    assert {"check", "state"} <= found
    assert not found & {"/metrics", "textfile", "gateway", "log", "webhook", "slack", "alerts"}
    findings = json.loads(places["check json"])["runs"][0]["findings"]
    examples = [finding["evidence"]["example"] for finding in findings if "example" in finding["evidence"]]
    assert examples
    for example in examples:
        assert example.startswith(f"{BEGINS} \\x1b[31m*** ")
        assert len(example) <= 80


@pytest.mark.slow
def test_excerpts_in_the_messages_that_ask_for_them(
    run: Path, tmp_path: Path, servers: dict[str, Receiving], capsys: pytest.CaptureFixture[str]
) -> None:
    places = everything(run, tmp_path, servers, capsys, privacy={"messages": True})
    assert holding(places, MIDDLE, TAIL, PROMPT, SECRET, HOSTILE) == {}
    assert "webhook" in holding(places, BEGINS)[BEGINS]


@pytest.mark.slow
def test_no_excerpt_when_configured_so(
    run: Path, tmp_path: Path, servers: dict[str, Receiving], capsys: pytest.CaptureFixture[str]
) -> None:
    places = everything(run, tmp_path, servers, capsys, "--no-examples")
    assert len(places) > 20
    assert holding(places, BEGINS, MIDDLE, TAIL, PROMPT, SECRET, HOSTILE) == {}


@pytest.mark.slow
def test_texts_that_the_table_of_completions_asks_for(
    run: Path, tmp_path: Path, servers: dict[str, Receiving], capsys: pytest.CaptureFixture[str]
) -> None:
    """How prompts and texts begin is on the page; rows, messages and reports are as without the setting.

    (In the state, an ended run's packed details holds them: tests/daemon/test_run_detail.py.)
    """
    places = everything(run, tmp_path, servers, capsys, privacy={"completions": True})
    assert holding(places, TAIL, SECRET, HOSTILE) == {}
    assert holding(places, PROMPT) == {PROMPT: {f"/api/v1/runs/{COPIES}/batches"}}
    batches = json.loads(places[f"/api/v1/runs/{COPIES}/batches"])["batches"]
    texts = [text for batch in batches for group in batch["listed"] for text in group["texts"]]
    assert all(text.startswith(BEGINS) and len(text) <= 240 for text in texts)


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    """In packed values of a state file too."""
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        connection.execute("CREATE TABLE rows (block BLOB)")
        connection.execute("INSERT INTO rows VALUES (?)", (zlib.compress(TAIL.encode() * 9),))
        connection.commit()
    assert holding({f"state {name}": data for name, data in kept(tmp_path)}, TAIL, PROMPT) == {TAIL: {"state"}}
