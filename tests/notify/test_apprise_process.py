"""apprise in its own process: an answer that drips or never ends is waited for no longer than allowed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_watch.notify.receivers import apprise as module
from grpo_watch.notify.receivers.apprise import AppriseMessage, AppriseProcess, posted
from tests.support.dripping import dripping
from tests.support.receiving import receiving, secret_file

pytestmark = pytest.mark.filterwarnings("ignore:.*imghdr.*:DeprecationWarning")  # imported by apprise itself


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[AppriseProcess]:
    """A busy machine may take long to start it."""
    monkeypatch.setattr(module, "START_SECONDS", 600.0)
    monkeypatch.setattr(module, "TOTAL_SECONDS", 600.0)
    made = AppriseProcess()
    yield made
    made.close()


def letter(url: str) -> AppriseMessage:
    return AppriseMessage(f"json://{url.removeprefix('http://')}/", "title", "text", "info")


def test_what_is_slow_to_read_is_read_before_a_message_is_timed() -> None:
    """Or each message would be given up, and its process with it, where the services take longer than a message may."""
    script = (
        "import sys; from grpo_watch.notify.receivers.apprise import serve; "
        "send = lambda _, word: print(word, 'apprise.plugins.custom_json' in sys.modules); "
        "serve(type('Pipe', (), {'send': send, 'poll': lambda *_: False})())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "ready True\n"


@pytest.mark.slow
def test_an_answer_that_drips_is_given_up_and_the_next_message_goes(
    process: AppriseProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as server, dripping(b"X") as slow:
        assert process.post(letter(server.url)) == ""
        with monkeypatch.context() as hurried:
            hurried.setattr(module, "TOTAL_SECONDS", 0.5)
            assert process.post(letter(slow)) == "no answer in time"
        assert process.post(letter(server.url)) == ""
        assert len(server.sent) == 2


def test_passwords_of_netrc_are_sent_to_nobody(
    process: AppriseProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client under apprise would add them by itself, those of ``default`` for every service."""
    secret_file(tmp_path / ".netrc", "default login me password geheim\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    with receiving() as server:
        assert process.post(letter(server.url)) == ""
        assert "authorization" not in server.sent[0].headers


def test_an_address_that_apprise_does_not_know_is_reported_without_it(tmp_path: Path) -> None:
    problem = posted(AppriseMessage("nosuchservice://geheim", "title", "text", "info"))
    assert problem == "unsupported or incomplete apprise URL"
