"""A wandb server that is hostile: it costs a bounded amount, gets no key by another name, and stops no other run."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.sources.base import Skip
from grpo_watch.sources.trackers.wandb_api.client import LARGEST, WandbClient
from grpo_watch.sources.trackers.wandb_api.process import ClientProcess
from grpo_watch.sources.trackers.wandb_api.remote import RemoteError, RemotePlace, ServerTrouble, TableRef
from tests.support.wandb_runs import PLACE, Reading, calls, metrics, table
from tests.support.wandb_server import Fault, ServedRun, WandbServer, served

COLUMNS = {"step": ["3"] * 4, "prompt": list("ppqq"), "completion": list("aabc"), "fn": [1.0] * 4}
Write = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def run(server: WandbServer, client: ClientProcess) -> ServedRun:
    """A run whose details are known."""
    run = server.add("ada/grpo", ServedRun("r1", rows=calls(metrics(1), metrics(2))))
    client.ask(WandbClient.details, PLACE)
    return run


def streamed(size: int, **headers: str) -> Write:
    """So many blanks, whatever was said of their number."""

    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        for _ in range(size >> 20):
            handler.wfile.write(b" " * (1 << 20))

    return write


def history(*rows: Any) -> Fault:
    """This page of a history, whatever was asked for."""
    answer = {"data": {"project": {"internalId": "7", "run": {"history": list(rows)}}}}
    return Fault(question="HistoryPage", body=json.dumps(answer).encode())


def test_an_answer_that_takes_all_memory_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may grow by so much only; the next question is asked of another one."""

    def exhausted(*_: object) -> Any:
        raise MemoryError

    client = WandbClient()
    monkeypatch.setattr(client, "_run", exhausted)
    with pytest.raises(RemoteError) as caught:
        client.pieces(PLACE, 0, 5_000)
    assert caught.value.trouble is ServerTrouble.TOO_MUCH


@pytest.mark.usefixtures("run")
def test_a_run_whose_answers_are_too_large_is_named_and_others_go_on(
    server: WandbServer, client: ClientProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reported in one line with what to do; the other run is read."""
    server.add("ada/grpo", ServedRun("r2", rows=calls(metrics(1), metrics(2))))
    reading = Reading(client)
    bad, good = reading.source(), reading.source(place=RemotePlace("ada", "grpo", "r2"))
    ask = client.ask

    def refused(question: Any, *arguments: Any) -> Any:
        if question is WandbClient.news and arguments[0] == PLACE:
            raise RemoteError(ServerTrouble.TOO_MUCH, "no memory is left for the answer")
        return ask(question, *arguments)

    monkeypatch.setattr(client, "ask", refused)
    for _ in range(4):
        reading.turn(700.0)
    list(bad.poll(None))
    assert bad.stats.problem == (
        "wandb://ada/grpo/r1: the server sends more than is read; check wandb.base_url, or watch the run's files "
        "instead (no memory is left for the answer)"
    )
    assert [getattr(item, "step", None) for item in good.poll(None)][:1] == [1]


@pytest.mark.parametrize("size", [LARGEST + (1 << 20), 300 << 20], ids=["a little", "much"])
def test_a_table_that_is_larger_than_it_says_is_given_up(
    server: WandbServer, run: ServedRun, client: ClientProcess, size: int
) -> None:
    """The run's rows are read all the same."""
    run.rows = calls(metrics(1, completions=table(run, 0, COLUMNS)), metrics(2), metrics(3))
    server.standing = Fault(question="GET", raw=streamed(size))
    reading = Reading(client)
    source = reading.source()
    items = [item for _ in range(3) for item in reading.read(source, 700.0)]
    assert [step for item in items if (step := getattr(item, "step", None))] == [1, 2]
    assert source.stats.skipped[Skip.UNREADABLE] == 1


def test_a_table_that_drips_is_given_up(run: ServedRun, client: ClientProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it took too long some times; until then the server may be why."""
    run.rows = calls(metrics(1, completions=table(run, 0, COLUMNS)), metrics(2))
    ask = client.ask

    def late(question: Any, *arguments: Any) -> Any:
        if question is WandbClient.news and arguments[-1]:
            raise RemoteError(ServerTrouble.TIMEOUT, "no answer for 150 s")
        return ask(question, *arguments)

    monkeypatch.setattr(client, "ask", late)
    reading = Reading(client)
    source = reading.source()
    items = [item for _ in range(6) for item in reading.read(source, 700.0)]
    assert [step for item in items if (step := getattr(item, "step", None))] == [1]


def test_a_download_that_drips_ends(
    server: WandbServer, run: ServedRun, client: ClientProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = table(run, 0, COLUMNS)

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not server.released.wait(0.3):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    monkeypatch.setattr(client, "_patience", 3.0)
    server.standing = Fault(question="GET", raw=drip)
    with pytest.raises(RemoteError) as caught:
        client.ask(WandbClient.tables, PLACE, [TableRef(ref["path"], ref["size"])], 2, False)
    assert caught.value.trouble is ServerTrouble.TIMEOUT


@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_key_follows_no_redirect(
    server: WandbServer, run: ServedRun, client: ClientProcess, host: str, status: int
) -> None:
    """Neither to another host nor to another port of this one; nor is it sent to where a file lies."""
    ref = table(run, 0, COLUMNS)
    wanted = [TableRef(ref["path"], ref["size"])]
    with served() as other:
        other.add("ada/grpo", ServedRun("r1"))
        elsewhere = f"http://{host}:{other._http.server_port}/graphql"
        server.standing = Fault(question="Run", status=status, headers={"Location": elsewhere})
        with suppress(RemoteError):  # a GET where a question was posted
            client.ask(WandbClient.details, PLACE)
        server.standing = Fault(question="GET", raw=_redirect(elsewhere, status))
        client.ask(WandbClient.tables, PLACE, wanted, 2, False)
        assert other.asked, "it is followed"
        assert other.keys == {""}


@pytest.mark.parametrize("status", [302, 307])
def test_no_redirect_leads_to_a_file(
    server: WandbServer, run: ServedRun, client: ClientProcess, status: int, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    ref = table(run, 0, COLUMNS)
    secret.write_bytes(run.files[ref["path"]])
    server.standing = Fault(question="Run", status=status, headers={"Location": secret.as_uri()})
    with pytest.raises(RemoteError):
        client.ask(WandbClient.details, PLACE)
    server.standing = Fault(question="GET", raw=_redirect(secret.as_uri(), status))
    (found,), _ = client.ask(WandbClient.tables, PLACE, [TableRef(ref["path"], ref["size"])], 2, False)
    assert isinstance(found, str)


def _redirect(where: str, status: int) -> Write:
    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Location", where)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return write


def test_a_page_that_is_repeated_counts_once(server: WandbServer, client: ClientProcess) -> None:
    """Also one of steps that nobody asked for: they would be taken for read."""
    server.add("ada/grpo", ServedRun("r1", rows=calls(*(metrics(step) for step in range(3_000)))))
    client.ask(WandbClient.details, PLACE)
    rows = [json.dumps({"_step": step, "train/loss": 0.1}) for step in (0, 1, 1, 0, 2, -1, 10**6)]
    server.standing = history(*rows)
    found, _ = client.ask(WandbClient.pieces, PLACE, 0, 5_000)
    assert [call.order for call in found.rows] == [0, 1, 2]


def test_a_history_without_an_end_is_not_begun(server: WandbServer, client: ClientProcess) -> None:
    """Nor asked for page by page."""
    run = server.add("ada/grpo", ServedRun("r1", rows=[{"_step": 10**15, "train/loss": 0.1}]))
    client.ask(WandbClient.details, PLACE)
    with pytest.raises(RemoteError) as caught:
        client.ask(WandbClient.pieces, PLACE, 0, 5_000)
    assert caught.value.trouble is ServerTrouble.TOO_MUCH
    assert "HistoryPage" not in server.asked
    run.rows = calls(metrics(1))


def test_a_list_of_runs_without_an_end_ends(
    server: WandbServer, client: ClientProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add("ada/grpo", ServedRun("r1"))
    page = server._page_of_runs

    def again(*arguments: Any) -> dict[str, Any]:
        found = page(*arguments)
        found["runs"]["pageInfo"] = {"endCursor": "1", "hasNextPage": True}
        return found

    monkeypatch.setattr(server, "_page_of_runs", again)
    listed, _ = client.ask(WandbClient.runs, RemotePlace("ada", "grpo"), 200)
    assert {info.id for info in listed} == {"r1"}
    assert server.count("Runs") <= 5


@pytest.mark.parametrize(
    "rows",
    [("no row",), (5,), (None,), ("[1]",), ('{"_step": 0, "a": ' + "[" * 200_000 + "]" * 200_000 + "}",)],
    ids=["text", "number", "null", "list", "deep"],
)
@pytest.mark.usefixtures("run")
def test_a_page_of_something_else_is_an_error(
    server: WandbServer, client: ClientProcess, rows: tuple[Any, ...]
) -> None:
    server.standing = history(*rows)
    with pytest.raises(RemoteError) as caught:
        client.ask(WandbClient.pieces, PLACE, 0, 10)
    assert caught.value.trouble is ServerTrouble.FAILED
    assert len(str(caught.value)) < 300
    server.standing = None
    assert client.ask(WandbClient.pieces, PLACE, 0, 10)[0].last == 1, "the same client goes on"
