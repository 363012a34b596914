"""Every route, however it answers: the headers that keep a browser safe, nothing for other sites, no inner text."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import httpx
import pytest

from grpo_watch.config.fields import SecretFile
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.web.access import AccessKeys
from grpo_watch.web.app import make_app
from grpo_watch.web.server import SECURITY_HEADERS
from tests.support.process import PATIENCE
from tests.support.receiving import secret_file
from tests.support.serving import web
from tests.web.test_app import PEOPLE, Fake

MACHINES = ("/metrics", "/healthz", "/readyz")
FOREIGN = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}


class Broken(Fake):
    """A daemon of which every question fails, with a text that must stay private."""

    def snapshot(self) -> DaemonSnapshot:
        raise RuntimeError("geheim")

    def rules(self) -> Any:
        raise RuntimeError("geheim")

    def late(self) -> float | None:
        return 12.0

    def ready(self) -> bool:
        return False


def answers(place: str, **headers: str) -> Iterator[httpx.Response]:
    """Each route, asked by a page of another site, in two ways."""
    with httpx.Client(base_url=f"http://{place}", headers={**FOREIGN, **headers}) as client:
        for path in (*PEOPLE, *MACHINES, "/nope", "/static/nope.js", "/api/v1/runs/nope"):
            yield client.get(path)
            yield client.options(path)


def test_these_are_all_routes() -> None:
    """A new one has to be added to the list that the tests of this folder go through."""
    routes = make_app(Fake(), lambda: 0.0)._app.routes  # type: ignore[attr-defined]
    patterns = {re.sub(r"\{\w+(:path|:run)?\}", ".+", route.path) for route in routes}
    asked = (*PEOPLE, *MACHINES)
    assert all(any(re.fullmatch(pattern, path) for path in asked) for pattern in patterns)
    assert len(patterns) == len(asked)


def test_nothing_can_be_written() -> None:
    """The page and the API are read-only: every other method is refused, wherever it comes from."""
    with web(Fake()) as place, httpx.Client(base_url=f"http://{place}") as client:
        for path in (*PEOPLE, *MACHINES):
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                assert client.request(method, path, headers={"X-Grpo-Watch": "page"}).status_code == 405, path
        assert client.post("/api/v1/silences?run=v0-run&rule=kl-stuck-at-zero&kind=ack").status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "statuses"),
    [
        ("well", {200, 404, 405}),
        ("without the token", {200, 401, 404, 405}),
        ("under another name", {200, 404, 405, 421}),
        ("through a proxy", {200, 403, 404, 405}),
        ("with a token that can't be read", {200, 404, 405, 503}),
        ("of a daemon that fails", {200, 404, 405, 500, 503}),
    ],
)
def test_every_answer_is_safe(how: str, statuses: set[int], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys, headers, token = AccessKeys(), {}, secret_file(tmp_path / "token", "geheim")
    if "token" in how:
        keys = AccessKeys(SecretFile(token))
    if "read" in how:
        token.chmod(0o644)
        headers = {"Authorization": "Bearer x"}
    if "name" in how:
        headers = {"Host": "evil.example"}
    if "proxy" in how:
        headers = {"X-Forwarded-For": "127.0.0.1"}
    with web(Broken() if "fails" in how else Fake(), keys) as place:
        given = list(answers(place, **headers))
    assert {answer.status_code for answer in given} == statuses
    for answer in given:
        for name, value in SECURITY_HEADERS.items():
            assert answer.headers.get_list(name) == [value], (answer.url, name)
        assert not any(name.startswith("access-control-") for name in answer.headers)
        assert not {"server", "x-powered-by", "set-cookie"} & set(answer.headers)
        assert "geheim" not in answer.text
        assert "Traceback" not in answer.text
        assert (answer.headers.get("connection") == "close") == (answer.status_code in {413, 500})


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nnot a header\r\n\r\n",
    ],
    ids=["no HTTP", "no header"],
)
def test_what_is_answered_before_a_request_is_understood_is_safe(request_: bytes) -> None:
    with web(Fake()) as place:
        host, _, port = place.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            connection.sendall(request_)
            answer = HTTPResponse(connection)
            answer.begin()
            body = answer.read()
    assert answer.status == 400
    for name, value in SECURITY_HEADERS.items():
        assert answer.headers.get_all(name) == [value]
    assert answer.headers.get_all("Content-Type") == ["text/plain; charset=utf-8"]
    assert answer.headers["Server"] is None
    assert body == b"Invalid HTTP request received."
