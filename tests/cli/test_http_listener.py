"""The addresses of the HTTP side: what is printed at the start, and which link messages carry."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import ValidationError

from grpo_watch.cli.daemon_client import forget_token, keep_token, known_token
from grpo_watch.cli.http_listener import NO_LINK, HttpListener, hosts_of
from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings
from tests.support.receiving import secret_file
from tests.web.test_app import Fake


@pytest.mark.parametrize(
    ("settings", "page", "warned"),
    [
        ({"listen": "127.0.0.1:0"}, "http://127.0.0.1:", 0),
        ({"listen": "[::1]:0"}, "http://[::1]:", 0),
        ({"listen": "127.0.0.1:0", "web": {"token_file": "token"}}, "http://127.0.0.1:", 0),
        ({"listen": "0.0.0.0:0", "web": {"allowed_hosts": ["gpu7", "gpu8"], "token_file": "token"}}, "http://gpu7:", 1),
    ],
)
def test_links_and_warnings(settings: dict[str, Any], page: str, warned: int, tmp_path: Path) -> None:
    """Where it listens everywhere, people come by the first allowed name; a token in the open is warned of."""
    secret_file(tmp_path / "token", "geheim")
    front = HttpListener(converted(Settings, settings, tmp_path))
    try:
        front.protect(tmp_path)
        reported = front.start_lines()
        assert front.page.startswith(page)
        assert front.page.endswith(f":{front.address.rpartition(':')[2]}/")
        made = "" if "web" in settings else f"?token={json.loads((tmp_path / 'page.json').read_text())['token']}"
        assert reported[:2] == [f"page: {front.page}{made}", f"metrics: http://{front.address}/metrics"]
        assert len(reported) == 2 + warned
    finally:
        front.close()


@pytest.mark.parametrize(
    ("settings", "page"),
    [
        ({"listen": "0.0.0.0:0"}, ""),
        ({"listen": "0.0.0.0:0", "web": {"allowed_hosts": ["gpu7"]}}, ""),
        ({"listen": "0.0.0.0:0", "web": {"token_file": "token"}}, ""),
        ({"listen": "0.0.0.0:0", "web": {"url": "https://grpo.example.org/night"}}, "https://grpo.example.org/night/"),
        ({"listen": "127.0.0.1:0", "web": {"url": "https://grpo.example.org/"}}, "https://grpo.example.org/"),
        ({"listen": "127.0.0.1:0"}, ""),
        ({"listen": "[::1]:0", "web": {"token_file": "token"}}, ""),
        ({"listen": "localhost:0", "web": {"url": "http://127.0.0.1:9853"}}, "http://127.0.0.1:9853/"),
    ],
)
@pytest.mark.parametrize("receivers", [True, False])
def test_no_link_leads_where_the_page_does_not_answer(
    settings: dict[str, Any],
    page: str,
    receivers: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    """Nobody else reaches loopback, without a key they are refused, and so is a name that is not allowed.

    A proxy's address is given. Where there is a receiver, the absence of a link is printed at the start.
    """
    secret_file(tmp_path / "token", "geheim")
    sinks = [{"type": "webhook", "url": "http://hook"}] if receivers else []
    front = HttpListener(converted(Settings, {**settings, "sinks": sinks}, tmp_path))
    try:
        assert front.sent == page
        assert (NO_LINK in front.start_lines()) == (receivers and not page)
    finally:
        front.close()


def test_a_link_for_this_machine_is_printed_where_it_listens_everywhere(tmp_path: Path) -> None:
    """As in a container whose port is forwarded; messages carry none."""
    front = HttpListener(Settings(listen="0.0.0.0:0"))
    try:
        front.protect(tmp_path)
        port = front.address.rpartition(":")[2]
        assert front.start_lines()[0].startswith(f"page: http://127.0.0.1:{port}/?token=")
        assert (front.page, front.sent) == ("", "")
    finally:
        front.close()


def test_the_token_is_kept_for_its_owner_and_outlives_a_restart(tmp_path: Path) -> None:
    links = []
    for _ in range(2):
        front = HttpListener(Settings(listen="127.0.0.1:0"))
        front.protect(tmp_path)
        links.append(front.link.rpartition("=")[2])
        front.unprotect(tmp_path)
        front.close()
    assert links[0] == links[1]
    assert len(links[0]) >= 32
    assert stat.S_IMODE((tmp_path / "page.json").stat().st_mode) == 0o600


def test_commands_find_the_token_of_the_daemon_they_ask_and_of_no_other(tmp_path: Path) -> None:
    """In the state that is named, else below the usual place of this host; none once nothing listens any more."""
    host, home = socket.gethostname(), tmp_path / "grpo-watch"
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    tokens = {}
    for name, address in (("a", "127.0.0.1:1001"), ("b", "0.0.0.0:1002"), ("c", "10.0.0.1:1003"), ("d", "[::1]:1004")):
        (state := home / f"{host}-{name}").mkdir(parents=True)
        tokens[name] = keep_token(state, address)
    (elsewhere := home / "another-host-e").mkdir()
    keep_token(elsewhere, "127.0.0.1:1005")

    def known(host: str, port: int, state: Path | None = None) -> str:
        return known_token(state, host, port, environ)

    assert known("127.0.0.1", 1001) == known("127.0.0.1", 1001, home / f"{host}-a") == tokens["a"]
    assert known("127.0.0.1", 1002) == tokens["b"]
    assert (known("10.0.0.1", 1003), known("127.0.0.1", 1003)) == (tokens["c"], "")
    assert known("::1", 1004) == tokens["d"]
    assert (known("127.0.0.1", 1005), known("127.0.0.1", 1005, elsewhere) != "") == ("", True)
    assert known("10.9.9.9", 1001) == known("127.0.0.1", 1001, home / f"{host}-b") == ""
    forget_token(home / f"{host}-a")
    assert known("127.0.0.1", 1001) == ""
    assert keep_token(home / f"{host}-a", "127.0.0.1:1001") == tokens["a"]


def test_a_full_disk_takes_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    token = keep_token(tmp_path, "127.0.0.1:1")
    with monkeypatch.context() as patched:
        patched.setattr("grpo_watch.cli.daemon_client.json.dump", full)
        assert keep_token(tmp_path, "127.0.0.1:2") == token
    assert known_token(tmp_path, "127.0.0.1", 1, {}) == token
    assert [path.name for path in tmp_path.iterdir()] == ["page.json"]


def test_a_token_that_is_noted_already_is_not_written_again(tmp_path: Path) -> None:
    """But it becomes the newest, which commands look at first."""
    keep_token(tmp_path, "127.0.0.1:1")
    os.utime(tmp_path / "page.json", (1.0, 1.0))
    before = (tmp_path / "page.json").stat()
    keep_token(tmp_path, "127.0.0.1:1")
    after = (tmp_path / "page.json").stat()
    assert before.st_ino == after.st_ino
    assert after.st_mtime > 1.0
    (tmp_path / "page.json").chmod(0o644)
    keep_token(tmp_path, "127.0.0.1:1")
    assert stat.S_IMODE((tmp_path / "page.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"token": 3}',
        "\x00",
        '{"token": "x"}',
        '{"address": "127.0.0.1:1"}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_damaged_token_file_is_made_again(content: str, tmp_path: Path) -> None:
    (tmp_path / "page.json").write_text(content)
    assert known_token(tmp_path, "127.0.0.1", 1, {}) == ""
    token = keep_token(tmp_path, "127.0.0.1:1")
    assert known_token(tmp_path, "127.0.0.1", 1, {}) == token != ""


@pytest.mark.parametrize(
    "url", ["grpo.example.org", "https://me:pw@x/", "https://x/?a=1", "https://x/#/run/a", "https://"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        converted(Settings, {"web": {"url": url}})


@pytest.mark.parametrize(("listen", "evil"), [("127.0.0.1:0", 421), ("0.0.0.0:0", 200)])
def test_metrics_on_loopback_are_given_under_known_names_only(listen: str, evil: int) -> None:
    """A page of another site whose name leads to 127.0.0.1 reads nothing; who opens them to the network does so."""
    front = HttpListener(converted(Settings, {"listen": listen, "web": {"allowed_hosts": ["gpu7"]}}))
    server = front.serve(Fake())
    server.start()
    try:
        place = f"http://127.0.0.1:{front.address.rpartition(':')[2]}"
        for host, status in [("evil.example", evil), ("gpu7:9853", 200), ("localhost", 200), ("127.0.0.1:1", 200)]:
            assert httpx.get(f"{place}/metrics", headers={"Host": host}).status_code == status
        assert httpx.get(f"{place}/healthz", headers={"Host": "evil.example"}).text == "ok\n"
    finally:
        server.stop()


def test_the_address_that_is_bound_is_a_known_name() -> None:
    assert [hosts_of(host) for host in ("10.0.0.1", "fe80::1", "0.0.0.0", "::")] == [  # noqa: S104
        ["10.0.0.1"],
        ["[fe80::1]"],
        [],
        [],
    ]
