"""What a receiver's answer, or its silence, means; and that no secret gets into what is reported of it."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import trustme
import urllib3

from grpo_watch.config.fields import SecretFile
from grpo_watch.config.schema import BaseSink
from grpo_watch.errors import ConfigError
from grpo_watch.notify.receiver import DeliveryResult, ReceiverContext
from grpo_watch.notify.receivers import http_client as module
from grpo_watch.notify.receivers.http import MAX_RETRY_AFTER, HttpAccess, HttpEndpoint, HttpReceiver, outcome_of
from tests.support.dripping import dripping
from tests.support.receiving import Answer, receiving, secret_file

NOW = 1_795_000_000.0  # Wed, 18 Nov 2026 11:06:40 GMT
DELIVERED, RETRY, REFUSED = DeliveryResult.DELIVERED, DeliveryResult.RETRY, DeliveryResult.REFUSED


def http(ca_file: Path | None = None, **headers: SecretFile) -> HttpEndpoint:
    return HttpEndpoint(HttpAccess(headers, ca_file), lambda: NOW)


class OneSOwn(HttpReceiver):
    """A receiver whose settings name no address."""


class Elsewhere(OneSOwn):
    default_url = "https://example.com/in"


def test_a_receiver_without_an_address_does_not_begin() -> None:
    """Before, it was asked at "" for as long as it lived."""
    with pytest.raises(ConfigError, match="the receiver has no address"):
        OneSOwn(BaseSink(), "own", ReceiverContext(lambda: NOW))
    Elsewhere(BaseSink(), "own", ReceiverContext(lambda: NOW)).close()


@pytest.mark.parametrize(
    ("statuses", "result"),
    [
        ((200, 201, 202, 204), DELIVERED),
        ((301, 302, 303, 307, 308), RETRY),
        ((401, 403, 404, 407, 408, 409, 421, 423, 425, 429), RETRY),
        ((400, 402, 405, 406, 410, 411, 413, 414, 415, 418, 422, 451), REFUSED),
        ((500, 502, 503, 504, 507, 520, 599), RETRY),
        ((501, 505), REFUSED),
    ],
)
def test_the_table_of_outcomes(statuses: tuple[int, ...], result: DeliveryResult) -> None:
    for status in statuses:
        outcome = outcome_of(status)
        assert (outcome.result, outcome.status) == (result, status)
        assert str(status) in outcome.detail
        assert outcome.most_tries == (1_500 if status in {401, 403, 404, 407} else None)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("-3", 0.0),
        ("99999", MAX_RETRY_AFTER),
        ("Wed, 18 Nov 2026 11:07:10 GMT", 30.0),
        ("Wed, 18 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("nan", None),
        ("", None),
        ("1.5", 1.5),
        ("9" * 400, MAX_RETRY_AFTER),
        ("Wed, 99999999999999999999 Oct 2026 07:28:00 GMT", None),
        ("Thu, 01 Jan 0001 00:00:00 +2359", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 -2359", MAX_RETRY_AFTER),
    ],
)
def test_retry_after(header: str, seconds: float | None) -> None:
    with receiving(Answer(429, {"Retry-After": header})) as server:
        outcome = http().send("POST", server.url)
    assert (outcome.result, outcome.retry_after, outcome.status) == (RETRY, seconds, 429)


def test_a_refusal_with_a_good_status_is_no_delivery() -> None:
    """What stands before Slack may answer 200 with Slack's own refusal; any other word means nothing."""
    with receiving(Answer(200, body=b"invalid_payload"), Answer(200, body=b"ok"), Answer(204, body=b"")) as server:
        refused, *taken = (http().send("POST", server.url) for _ in range(3))
    assert (refused.result, refused.detail, refused.most_tries) == (RETRY, "HTTP 200 invalid_payload", 1_500)
    assert [outcome.result for outcome in taken] == [DELIVERED, DELIVERED]


def test_a_redirect_is_not_followed() -> None:
    with receiving() as elsewhere, receiving(Answer(302, {"Location": f"{elsewhere.url}/?a"})) as server:
        outcome = http().send("POST", server.url, b"x")
        assert outcome.result is RETRY
        assert "redirects are not followed" in outcome.detail
        assert len(server.sent) == 1
        assert elsewhere.sent == []


def test_the_status_is_the_answer_even_when_the_body_breaks_off() -> None:
    head = b"HTTP/1.1 %s\r\nContent-Length: 1000\r\n\r\nbeg"
    with receiving(Answer(raw=head % b"200 OK"), Answer(raw=head % b"503 Busy")) as server:
        assert http().send("POST", server.url).result is DELIVERED
        assert http().send("POST", server.url).result is RETRY


@pytest.mark.parametrize("raw", [b"\x00garbage\r\n\r\n", b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_garbage_is_tried_again(raw: bytes) -> None:
    with receiving(Answer(raw=raw)) as server:
        outcome = http().send("POST", server.url)
    assert (outcome.result, outcome.status) == (RETRY, None)
    assert outcome.detail == "the answer is not HTTP or broke off"


def test_only_a_known_word_of_an_answer_is_repeated() -> None:
    """A password may be one plain word too."""
    answers = (b"invalid_payload", b"you sent token=geheim", b"correcthorsebatterystaple")
    with receiving(*(Answer(403, body=body) for body in answers)) as server:
        said = [http().send("POST", server.url).detail for _ in answers]
    assert said == ["HTTP 403 invalid_payload", "HTTP 403", "HTTP 403"]


def test_nobody_listens() -> None:
    with socket.socket() as silent:  # its port is taken, so that nobody else listens there, and refuses
        silent.bind(("127.0.0.1", 0))
        outcome = http().send("POST", f"http://127.0.0.1:{silent.getsockname()[1]}/geheim")
    assert (outcome.result, outcome.detail) == (RETRY, "the connection is refused")


def test_a_name_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    outcome = http().send("POST", "http://receiver.invalid/geheim")
    assert (outcome.result, outcome.detail) == (RETRY, "the host's name can't be resolved")


def test_an_answer_that_drips_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes well within the time allowed for one; the request as a whole is bounded all the same."""
    monkeypatch.setattr(module, "TOTAL_SECONDS", 0.3)
    with dripping(b"X") as url:
        began = time.monotonic()
        outcome = http().send("POST", url)
        assert outcome.result is RETRY
        assert 0.2 < time.monotonic() - began < 60


def test_no_more_is_read_of_an_answer_than_its_beginning() -> None:
    """One that has no end, and comes fast: 64 KB, and what was on the way."""
    given = []

    class Endless(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            given.append(size or 0)
            return b"x" * given[-1]

    endpoint, client = http(), module.HttpClient(None)
    client._sent = lambda *_: urllib3.HTTPResponse(Endless(), status=200, preload_content=False)
    endpoint._client = client
    assert endpoint.send("POST", "http://receiver.invalid/").result is DELIVERED
    assert 65_536 <= sum(given) <= 65_536 + 16_384


def test_a_name_that_is_found_too_late_is_no_way_around_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's look-up can't be ended; what comes of it after the time is over is."""
    look_up, over = socket.getaddrinfo, threading.Event()

    def slow(*asked: Any, **how: Any) -> Any:
        assert not over.wait(0.4)
        return look_up(*asked, **how)

    monkeypatch.setattr(module, "TOTAL_SECONDS", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with receiving() as server:
        assert http().send("POST", server.url).result is RETRY
        assert server.sent == []


def test_a_clock_that_differs_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """Who reads the times of messages is misled; one of the clocks has to be set."""
    shifted, exact = HttpEndpoint(HttpAccess({}), lambda: time.time() - 400), HttpEndpoint(HttpAccess({}), time.time)
    with receiving() as server:
        for _ in range(2):
            shifted.send("POST", server.url)
            exact.send("POST", server.url)
    (said,) = [record for record in caplog.records if "clock" in record.message]
    assert 390 < vars(said)["fields"]["seconds"] < 410


@pytest.mark.parametrize(
    ("date", "ahead"),
    [
        ("Wed, 18 Nov 2026 11:16:40 GMT", 400.0),
        ("Wed, 18 Nov 2026 11:10:03 GMT", 0.0),  # whole seconds, and an answer that took a while
        ("Sun, 01 Jan 9999 00:00:00 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("today", 0.0),
        ("", 0.0),
    ],
)
def test_what_an_answer_says_of_the_receivers_clock(date: str, ahead: float) -> None:
    client = HttpEndpoint(HttpAccess({}), lambda: 1_795_000_200.0)
    head = f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n"
    with receiving(Answer(raw=head.encode())) as server:
        client.send("POST", server.url)
    assert client.ahead == ahead


def test_silence_is_not_waited_for_longer_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        outcome = http().send("POST", f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert (outcome.result, outcome.detail) == (RETRY, "no answer in time")


def test_certificates_are_checked(tmp_path: Path) -> None:
    """An unknown authority is refused, the named one trusted, and only for the host that it names."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("elsewhere.example").configure_cert(other)
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    with receiving(tls=context) as server, receiving(tls=other) as impostor:
        refused = http().send("POST", server.url)
        assert (refused.result, refused.detail) == (RETRY, "the certificate is not trusted")
        assert http(ca_file).send("POST", server.url).result is DELIVERED
        assert http(ca_file).send("POST", impostor.url).detail == "the certificate is not trusted"
        assert http().send("POST", server.url.replace("https", "http")).result is RETRY
        assert [sent.method for sent in server.sent] == ["POST"]


def test_renewed_authorities_count_at_once(tmp_path: Path) -> None:
    """While they are being replaced, what was known is trusted."""
    old, new = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    new.issue_cert("127.0.0.1").configure_cert(context)
    ca_file = tmp_path / "ca.pem"
    old.cert_pem.write_to_path(ca_file)
    client = http(ca_file)
    with receiving(tls=context) as server:
        assert client.send("POST", server.url).detail == "the certificate is not trusted"
        ca_file.unlink()
        assert client.send("POST", server.url).detail == "the certificate is not trusted"
        ca_file.write_text("half a certificate")
        assert client.send("POST", server.url).detail == "the authorities to trust can't be read (SSLError)"
        new.cert_pem.write_to_path(ca_file)
        assert client.send("POST", server.url).result is DELIVERED
        ca_file.unlink()
        assert client.send("POST", server.url).result is DELIVERED


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)
        assert http().send("POST", "http://receiver.invalid/hook").result is DELIVERED
        assert proxy.sent[0].path == "http://receiver.invalid/hook"


def test_user_and_password_of_an_address_are_sent_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """The receiver's, and the proxy's."""
    coded = {
        name: f"Basic {b64encode(auth.encode()).decode()}" for name, auth in (("ada", "ada:a b"), ("eve", "eve:ü"))
    }
    with receiving() as server:
        assert http().send("POST", server.url.replace("//", "//ada:a%20b@"), b"", {"authorization": "x"}).reached
        assert server.sent[0].headers["authorization"] == coded["ada"]
        monkeypatch.setenv("http_proxy", server.url.replace("//", "//eve:%C3%BC@"))
        assert http().send("POST", "http://receiver.invalid/hook").reached
        assert server.sent[1].headers["proxy-authorization"] == coded["eve"]
        monkeypatch.setenv("no_proxy", "receiver.invalid")
        assert http().send("POST", "http://receiver.invalid/hook").detail == "the host's name can't be resolved"


def test_a_proxy_of_the_environment_leads_to_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for a tunnel to the receiver, and may refuse that."""
    with receiving(Answer(407)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        assert http().send("POST", "https://receiver.invalid/hook").detail == "the proxy refuses"
        assert (proxy.sent[0].method, proxy.sent[0].path) == ("CONNECT", "receiver.invalid:443")


def test_headers_come_from_files_each_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new token counts at once; a file that is gone, or holds two lines, is reported without its content."""
    caplog.set_level(logging.DEBUG, "grpo_watch")
    file = secret_file(tmp_path / "token", "Bearer geheim-1\n")
    with receiving() as server:
        client = http(Authorization=SecretFile(file))
        assert client.send("POST", server.url).result is DELIVERED
        secret_file(file, "Bearer geheim-2")
        assert client.send("POST", server.url).result is DELIVERED
        assert [sent.headers["authorization"] for sent in server.sent] == ["Bearer geheim-1", "Bearer geheim-2"]
        secret_file(file, "Bearer\ngeheim-3")
        two_lines = client.send("POST", server.url)
        file.unlink()
        gone = client.send("POST", server.url)
    assert two_lines.result is gone.result is RETRY
    assert str(file) in gone.detail
    assert "geheim" not in two_lines.detail + gone.detail + caplog.text
