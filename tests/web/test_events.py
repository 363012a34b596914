"""Server-sent events over real connections: what is sent, how many may listen, and that a stop waits for no stream."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from grpo_watch.config.secrets import SecretFile
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, RunOverview
from grpo_watch.web import change_counter, events
from grpo_watch.web import server as module
from grpo_watch.web.access import AccessKeys
from grpo_watch.web.app import make_app
from grpo_watch.web.change_counter import ChangeCounter
from grpo_watch.web.events import STREAMS
from grpo_watch.web.limits import MAX_CONNECTIONS, SlowClientLimit
from grpo_watch.web.server import Server, address, bind
from tests.support.bundles import unpack
from tests.support.process import until, watching
from tests.support.receiving import secret_file
from tests.support.serving import web
from tests.web.test_app import SNAPSHOT, Fake

EVENTS = "/api/v1/events"
LONG = 120
"""Seconds that nothing takes."""
FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"


class Moving(Fake):
    """A daemon whose run takes a step on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.now = DaemonSnapshot(runs=(RunOverview(SNAPSHOT, "v0-run", active=True),))

    def snapshot(self) -> DaemonSnapshot:
        return self.now

    def step(self) -> None:
        (run,) = self.now.runs
        snapshot = replace(run.snapshot, step=run.snapshot.step + 1)
        self.now = replace(self.now, runs=(replace(run, snapshot=snapshot),))


@contextmanager
def listening(place: str, **headers: str) -> Iterator[Iterator[str]]:
    """The lines of a stream."""
    with httpx.stream("GET", f"http://{place}{EVENTS}", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        yield answer.iter_lines()


def event(lines: Iterator[str]) -> tuple[str, list[str] | None]:
    """The next event: its id and the runs that it names."""
    shown: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if name in {"event", "id", "data"}:
            shown[name] = value
        if not line and "data" in shown:
            break
    assert shown["event"] == "change"
    return shown["id"], json.loads(shown["data"])["runs"]


def test_each_change_is_reported_and_a_reconnect_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.01)
    watch = Moving()
    with web(watch) as place:
        with listening(place) as lines:
            first, runs = event(lines)
            assert runs is None  # a new client fetches everything
            watch.step()
            second, runs = event(lines)
            assert (runs, second != first) == (["v0-run"], True)
        watch.step()
        with listening(place, **{"Last-Event-ID": second}) as lines:
            third, runs = event(lines)
            assert runs == ["v0-run"]
        with listening(place, **{"Last-Event-ID": third}) as lines:
            watch.step()
            assert event(lines)[1] == ["v0-run"]  # nothing was sent before it
        with listening(place, **{"Last-Event-ID": "0000-1"}) as lines:
            assert event(lines)[1] is None  # of another life of the daemon


def test_a_silent_stream_has_heartbeats_and_outlives_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection with an answer that lasts is not taken for one that drips."""
    monkeypatch.setattr(SlowClientLimit, "patience", 0.1)
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 0.2)

    def listened() -> Iterator[str] | None:
        with suppress(httpx.TransportError):  # a busy machine took longer to ask than the patience is here
            return stack.enter_context(listening(place))
        return None

    with web(Moving()) as place, ExitStack() as stack:
        lines = until(listened)
        event(lines)
        beats = 0
        for line in lines:
            beats += line.startswith(": ")
            if beats == 5:
                break
        assert beats == 5


def test_a_stream_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(events, "LIFE_SECONDS", 1.0)
    with web(Moving()) as place, listening(place) as lines:
        assert len(list(lines)) > 2


@pytest.mark.slow
def test_listeners_are_bounded_and_leave_room_for_others() -> None:
    """One too many is refused with Retry-After; others are answered, and a freed place is reused."""
    assert STREAMS * 2 <= MAX_CONNECTIONS
    with web(Moving()) as place:
        with ExitStack() as stack:
            open_ones = [stack.enter_context(listening(place)) for _ in range(STREAMS)]
            for lines in open_ones:
                event(lines)
            refused = httpx.get(f"http://{place}{EVENTS}")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
            assert httpx.get(f"http://{place}/api/v1/runs").status_code == 200
            assert httpx.get(f"http://{place}/metrics").status_code == 200

        def again() -> bool:
            with httpx.stream("GET", f"http://{place}{EVENTS}") as answer:
                return answer.status_code == 200

        assert until(again)


def test_a_stop_waits_for_no_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even as long as it would wait for an answer under way, which is long here."""
    monkeypatch.setattr(module, "STOP_SECONDS", LONG)
    listener, stopping = bind("127.0.0.1", 0), threading.Event()
    server = Server(make_app(Moving(), lambda: 0.0, stopping=stopping.is_set), listener, stopping=stopping)
    server.start()
    with ExitStack() as stack:
        lines = [stack.enter_context(listening(address(listener))) for _ in range(5)]
        for each in lines:
            event(each)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < LONG
        assert not server.thread.is_alive()
        assert [[line for line in each if line.startswith("data")] for each in lines] == [[]] * 5


@pytest.mark.slow
def test_a_daemon_that_is_listened_to_stops_cleanly(tmp_path: Path) -> None:
    """Within how many seconds is a matter of its deadline, which has tests of its own."""
    with watching(unpack(FROZEN, tmp_path / "runs"), state=tmp_path / "state") as daemon, ExitStack() as stack:
        lines = [stack.enter_context(listening(daemon.url.removeprefix("http://"))) for _ in range(8)]
        for each in lines:
            event(each)
        daemon.child.send_signal(signal.SIGTERM)
        assert daemon.ends() == 0
        assert "Traceback" not in daemon.said()


def test_no_client_listens_without_the_token_or_from_another_site(tmp_path: Path) -> None:
    token = SecretFile(secret_file(tmp_path / "token", "geheim\n"))
    with web(Moving(), AccessKeys(token)) as place:
        assert httpx.get(f"http://{place}{EVENTS}").status_code == 401
        with listening(place, Authorization="Bearer geheim") as lines:
            event(lines)
    with web(Moving()) as place:
        for site in ("cross-site", "same-site"):
            assert httpx.get(f"http://{place}{EVENTS}", headers={"Sec-Fetch-Site": site}).status_code == 403
        assert httpx.get(f"http://{place}{EVENTS}", headers={"Host": "evil.example"}).status_code == 421
        assert httpx.get(f"http://{place}{EVENTS}", headers={"X-Forwarded-For": "10.0.0.1"}).status_code == 403


def test_only_what_changed_counts() -> None:
    watch = Moving()
    shown = ChangeCounter(watch.snapshot)
    first = shown.mark()
    watch.now = replace(watch.now, state_bytes=5)  # a new snapshot in which every run is as it was
    assert shown.mark() == first
    assert shown.since(first) == frozenset()
    watch.now = replace(watch.now, runs=(*watch.now.runs, RunOverview(replace(SNAPSHOT, run="b"), "b", active=True)))
    assert shown.since(first) == {"b"}
    second = shown.mark()
    watch.now = replace(watch.now, runs=watch.now.runs[:1], problems=("x",))
    assert shown.since(second) == {"b"}
    for _ in range(change_counter.REMEMBERED + 1):
        watch.step()
        shown.mark()
    assert shown.since(second) is None
    assert shown.since("nonsense") is None
