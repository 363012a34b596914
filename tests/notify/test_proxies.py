"""A proxy of the environment: its password is in nothing that is reported, and one that can't be used is an outcome."""

from __future__ import annotations

import logging

import pytest

from grpo_watch.notify.receiver import DeliveryResult
from grpo_watch.notify.receivers.http import HttpAccess, HttpEndpoint
from tests.support.receiving import Answer, receiving


@pytest.fixture
def reported(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    caplog.set_level(logging.DEBUG, "grpo_watch")  # others have no handler when a daemon runs
    return caplog


@pytest.mark.parametrize(
    "proxy",
    [
        "foo://ada:geheim@127.0.0.1:3128",
        "http://ada:ge#heim@127.0.0.1:3128",
        "http://ada:geheim@127.0.0.1:none",
        "http://ada:geheim@[::1",
        "socks5://ada:geheim@127.0.0.1:1",
        "http://ada:ge\u2100heim@127.0.0.1:3128",
        "ada:geheim@127.0.0.1:1",
    ],
)
def test_a_proxy_that_is_none_is_an_outcome(
    proxy: str, reported: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("http_proxy", proxy)
    outcome = HttpEndpoint(HttpAccess({}), lambda: 0.0).send("POST", "http://receiver.example/")
    assert outcome.result is DeliveryResult.RETRY
    assert "proxy" in outcome.detail or "connection is refused" in outcome.detail
    assert "heim" not in outcome.detail + reported.text


def test_an_address_of_ipv6_is_exempt_from_the_proxy(
    reported: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``NO_PROXY`` names it without brackets."""
    with receiving() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        endpoint = HttpEndpoint(HttpAccess({}), lambda: 0.0)
        assert endpoint.send("POST", "http://[::1]:9/").result is DeliveryResult.DELIVERED
        monkeypatch.setenv("no_proxy", "localhost,::1")
        endpoint.send("POST", "http://[::1]:9/")
        assert len(proxy.sent) == 1


def test_a_proxy_that_refuses_and_repeats_the_password(
    reported: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving(Answer(407, {"X-Echo": "geheim"}, b"geheim")) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//ada:geheim@"))
        outcome = HttpEndpoint(HttpAccess({}), lambda: 0.0).send("POST", "http://receiver.example/")
        assert "proxy-authorization" in proxy.sent[0].headers
    assert (outcome.result, outcome.status) == (DeliveryResult.RETRY, 407)
    assert "geheim" not in outcome.detail + reported.text
