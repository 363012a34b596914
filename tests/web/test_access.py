"""Who is let in, asked over real connections: tokens, names, proxies; and what a connection may cost."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from grpo_watch.cli.http_listener import HttpListener
from grpo_watch.config.fields import SecretFile
from grpo_watch.config.schema import Settings
from grpo_watch.web.access import AccessKeys, OwnToken
from grpo_watch.web.limits import MAX_CONNECTIONS, MAX_HEAD, PATIENCE, SlowClientLimit
from tests.support.process import PATIENCE as LONG
from tests.support.process import until
from tests.support.receiving import secret_file
from tests.support.serving import web
from tests.web.test_app import PEOPLE, Fake

MACHINES = ["/metrics", "/healthz", "/readyz"]
TOKEN = "geheim-7f3a"  # noqa: S105  a test's


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def token(tmp_path: Path) -> SecretFile:
    return SecretFile(secret_file(tmp_path / "token", f"{TOKEN}\n"))


def test_with_a_token_all_are_refused_without_it(token: SecretFile) -> None:
    """On this machine neither: others may have accounts there. What machines ask stays open."""
    with web(Fake(), AccessKeys(token, anywhere=True)) as place, httpx.Client(base_url=f"http://{place}") as client:
        for path in PEOPLE:
            refused = client.get(path)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith("Bearer realm=")
            assert "kl-stuck" not in refused.text
            assert client.get(path, headers=bearer(TOKEN)).status_code == 200
        for path in MACHINES:
            assert client.get(path).status_code == 200


def test_a_link_with_the_token_opens_the_page_for_a_browser(token: SecretFile) -> None:
    """Its cookie lets in from then on; the token is neither in it nor in the address that it leads to."""
    with web(Fake(), AccessKeys(token)) as place, httpx.Client(base_url=f"http://{place}") as browser:
        link = browser.get("/", params={"token": TOKEN})
        assert (link.status_code, link.headers["location"]) == (303, "./")
        flags = link.headers["set-cookie"].lower().split("; ")[1:]
        assert {"httponly", "samesite=lax", "path=/"} <= set(flags)
        assert "secure" not in flags
        assert TOKEN not in str(link.headers)
        for path in PEOPLE:
            assert browser.get(path).status_code == 200
        secret_file(token.path, "another")
        assert browser.get("/").status_code == 401
        assert browser.get("/", params={"token": TOKEN}).status_code == 401


def test_daemons_on_two_ports_have_cookies_of_their_own(token: SecretFile) -> None:
    """A browser sends the cookies of a host to all its ports."""
    with (
        web(Fake(), AccessKeys(token)) as first,
        web(Fake(), AccessKeys(OwnToken("other"))) as second,
        httpx.Client() as browser,
    ):
        browser.get(f"http://{first}/", params={"token": TOKEN})
        assert browser.get(f"http://{second}/").status_code == 401
        browser.get(f"http://{second}/", params={"token": "other"})
        assert [browser.get(f"http://{place}/").status_code for place in (first, second)] == [200, 200]


def test_scripts_may_give_the_token_in_the_address(token: SecretFile) -> None:
    with web(Fake(), AccessKeys(token)) as place:
        answer = httpx.get(f"http://{place}/api/v1/runs", params={"token": TOKEN})
        assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)


def test_a_plain_proxy_makes_nobody_local(tmp_path: Path) -> None:
    """What nginx's ``proxy_pass`` sends as it is: from a loopback address, a known name, no header of a proxy."""
    state = tmp_path / "state"
    state.mkdir()
    front = HttpListener(Settings(listen="127.0.0.1:0"))
    front.protect(state)
    servers = front.serve(Fake())
    servers.start()
    try:
        asked = {"Host": front.address, "Connection": "close"}
        for path in PEOPLE:
            assert httpx.get(f"http://{front.address}{path}", headers=asked).status_code == 401
        for path in MACHINES:
            assert httpx.get(f"http://{front.address}{path}", headers=asked).status_code == 200
        assert httpx.get(front.link, follow_redirects=False).status_code == 303
    finally:
        servers.stop()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        bearer("geheim-7f3"),
        bearer(f"{TOKEN}x"),
        bearer(TOKEN.upper()),
        {"Authorization": TOKEN},
        {"Authorization": f"Token {TOKEN}"},
        {"Authorization": "Basic " + "YTpnZWhlaW0tN2YzYQ=="},
        {"Cookie": f"grpo-watch={TOKEN}"},
    ],
    ids=str,
)
def test_wrong_tokens(token: SecretFile, headers: dict[str, str]) -> None:
    with web(Fake(), AccessKeys(token, anywhere=True)) as place:
        assert httpx.get(f"http://{place}/", headers=headers).status_code == 401


def test_a_new_token_counts_at_once_and_an_unreadable_one_opens_nothing(token: SecretFile) -> None:
    with web(Fake(), AccessKeys(token, anywhere=True)) as place:
        secret_file(token.path, "other")
        assert httpx.get(f"http://{place}/", headers=bearer(TOKEN)).status_code == 401
        assert httpx.get(f"http://{place}/", headers=bearer("other")).status_code == 200
        token.path.chmod(0o644)
        refused = httpx.get(f"http://{place}/", headers=bearer("other"))
        assert refused.status_code == 503
        assert str(token.path) not in refused.text


def test_rebound_names_are_refused_even_with_the_token(token: SecretFile) -> None:
    with web(Fake(), AccessKeys(token, anywhere=True), hosts=["GPU7"]) as place:
        for host, status in [("evil.example", 421), ("gpu7:9853", 200), ("localhost", 200)]:
            headers = {"Host": host, **bearer(TOKEN)}
            assert httpx.get(f"http://{place}/", headers=headers).status_code == status


def own_address() -> str:
    """An address of this machine that is not loopback; asks the routing table only."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with suppress(OSError):
            probe.connect(("192.0.2.1", 9))
        found: str = probe.getsockname()[0]
        return found


def test_peers_from_elsewhere_need_the_token_of_the_settings(token: SecretFile) -> None:
    """Over an address that is not loopback, as from another machine; the token that the daemon made opens nothing."""
    mine = own_address()
    if mine.startswith(("127.", "0.")):
        pytest.skip("not run, not installed: a network beside loopback")
    with web(Fake(), hosts=[mine], listen="0.0.0.0") as place:  # noqa: S104
        port = place.rpartition(":")[2]
        assert httpx.get(f"http://{mine}:{port}/").status_code == 403
        assert httpx.get(f"http://{mine}:{port}/metrics").status_code == 200
        assert httpx.get(f"http://127.0.0.1:{port}/").status_code == 200
    with web(Fake(), AccessKeys(token), hosts=[mine], listen="0.0.0.0") as place:  # noqa: S104
        port = place.rpartition(":")[2]
        assert httpx.get(f"http://{mine}:{port}/", headers=bearer(TOKEN)).status_code == 403
        assert httpx.get(f"http://127.0.0.1:{port}/", headers=bearer(TOKEN)).status_code == 200
    with web(Fake(), AccessKeys(token, anywhere=True), hosts=[mine], listen="0.0.0.0") as place:  # noqa: S104
        port = place.rpartition(":")[2]
        assert httpx.get(f"http://{mine}:{port}/").status_code == 401
        assert httpx.get(f"http://{mine}:{port}/", headers=bearer(TOKEN)).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "header",
    [
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "Forwarded",
        "X-Real-IP",
        "Via",
        "CF-Connecting-IP",
        "True-Client-IP",
    ],
)
def test_what_comes_through_a_proxy_is_not_local(
    header: str, token: SecretFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With any header, and any setting of uvicorn in the environment."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    with web(Fake()) as place:
        assert httpx.get(f"http://{place}/", headers={header: "127.0.0.1"}).status_code == 403
        assert httpx.get(f"http://{place}/metrics", headers={header: "127.0.0.1"}).status_code == 200
    with web(Fake(), AccessKeys(token, anywhere=True)) as place:
        assert httpx.get(f"http://{place}/", headers={header: "127.0.0.1", **bearer(TOKEN)}).status_code == 200


def test_every_answer_has_the_security_headers_and_none_opens_to_other_sites(token: SecretFile) -> None:
    with web(Fake(), AccessKeys(token, anywhere=True)) as place, httpx.Client(base_url=f"http://{place}") as client:
        answers = [client.get(path) for path in (*PEOPLE, *MACHINES, "/nope", "/static/../../etc/passwd")]
        answers += [client.options("/", headers={"Origin": "http://evil.example"}), client.post("/metrics")]
        answers += [with_body(place)]
        answers += [client.get("/metrics", headers={"Origin": "http://evil.example"})]
    assert {answer.status_code for answer in answers} == {200, 401, 404, 405, 413}
    for answer in answers:
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert not any(name.startswith("access-control-") for name in answer.headers)
        assert "server" not in answer.headers


def with_body(place: str) -> httpx.Response:
    """The answer to a request that arrives at once with its body; a body that comes later meets a closed connection."""
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
    head, _, _ = talk(place, request).partition(b"\r\n\r\n")
    status, *headers = head.split(b"\r\n")
    return httpx.Response(int(status.split()[1]), headers=[line.split(b": ", 1) for line in headers])


def talk(place: str, request: bytes) -> bytes:
    """The head of what is answered to raw bytes, or all up to the end of the connection."""
    host, _, port = place.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=LONG) as connection:
        answer = b""
        with suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(request)
            while b"\r\n\r\n" not in answer and (piece := connection.recv(65_536)):
                answer += piece
        return answer


def asked(place: str) -> int | None:
    """The status of an answer; None where a busy machine took longer to ask than the server's patience is here."""
    try:
        return httpx.get(f"http://{place}/healthz").status_code
    except httpx.TransportError:
        return None


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 10 * MAX_HEAD, b"400"),
        (b"GET /" + b"a" * 10 * MAX_HEAD, b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * MAX_HEAD + b"\r\n\r\n", b"431"),
        (b"GET /?" + b"a" * MAX_HEAD + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * (MAX_HEAD // 2) + b"\r\n", b"431"),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\nabc", b"413"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", b"413"),
        (b"\x16\x03\x01\x02\x00\x01\x00", b"400"),
    ],
    ids=["header", "path", "whole header", "whole query", "many headers", "body", "chunked", "tls to a plain port"],
)
def test_requests_are_bounded(request_: bytes, status: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlowClientLimit, "patience", 1.0 if status == b"400" else LONG)
    with web(Fake()) as place:
        answer = talk(place, request_)
        assert answer.startswith(b"HTTP/1.1 " + status) or (status == b"400" and answer == b"")
        assert until(lambda: asked(place)) == 200


def test_connections_that_ask_nothing_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent ones, and one that drips its headers; who asks is answered."""
    assert PATIENCE <= 10
    monkeypatch.setattr(SlowClientLimit, "patience", 0.3)
    over = threading.Event()
    with web(Fake()) as place:
        host, _, port = place.rpartition(":")
        silent = [socket.create_connection((host, int(port)), timeout=LONG) for _ in range(3)]
        dripping = socket.create_connection((host, int(port)), timeout=LONG)

        def drip() -> None:
            with suppress(OSError):
                while not over.wait(0.02):
                    dripping.sendall(b"X")

        thread = threading.Thread(target=drip)
        thread.start()
        for connection in silent:  # waited for as long as the sockets' own patience at most
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
        with suppress(ConnectionResetError):
            assert dripping.recv(1) == b""
        over.set()
        thread.join()
        assert until(lambda: asked(place)) == 200
        for connection in (*silent, dripping):
            connection.close()


def test_many_connections_do_not_keep_others_out_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for a moment: the oldest of the silent ones gives way; once they are ended too, all is well again."""
    monkeypatch.setattr(SlowClientLimit, "patience", LONG)
    with web(Fake()) as place:
        host, _, port = place.rpartition(":")
        silent = [socket.create_connection((host, int(port)), timeout=LONG) for _ in range(MAX_CONNECTIONS + 1)]
        assert [asked(place) for _ in range(3)] == [200] * 3
        for connection in silent:
            connection.close()
        assert asked(place) == 200


def test_who_opens_page_and_api_is_logged_at_info_level(token: SecretFile, caplog: pytest.LogCaptureFixture) -> None:
    """Neither queries nor credentials, nor what machines ask for."""
    caplog.set_level("INFO", "grpo_watch.web")
    with web(Fake(), AccessKeys(token, anywhere=True)) as place, httpx.Client(base_url=f"http://{place}") as client:
        for path in ("/", "/api/v1/overview?find=secret", "/metrics", "/healthz", "/readyz"):
            client.get(path, headers=bearer(TOKEN))
        client.get("/api/v1/runs?token=wrong")
    said = [getattr(record, "fields", {}) for record in caplog.records if record.message == "request"]
    common = {"peer": "127.0.0.1", "method": "GET"}
    assert said == [
        {**common, "path": "/", "status": "200"},
        {**common, "path": "/api/v1/overview", "status": "200"},
        {**common, "path": "/api/v1/runs", "status": "401"},
    ]
    assert TOKEN not in caplog.text + str(said)
