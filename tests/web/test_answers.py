"""Answers are made once per change, and sent to a client only if it lacks them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest

from grpo_watch.daemon.run_detail import RunDetail
from grpo_watch.metrics.daemon_snapshot import ChannelStatus, DaemonSnapshot, RunOverview
from grpo_watch.web import answers
from tests.support.serving import web
from tests.web.test_app import SNAPSHOT, Fake


class Moving(Fake):
    """A daemon whose run takes a step on demand; counts how often a chart's rows are asked for."""

    def __init__(self) -> None:
        super().__init__()
        channels = (ChannelStatus("console", True, 991.0),)
        self.now = DaemonSnapshot(runs=(RunOverview(SNAPSHOT, "v0-run", active=True, channels=channels),))
        self.drawn = 0

    def snapshot(self) -> DaemonSnapshot:
        return self.now

    def detail(self, run: str) -> RunDetail:
        self.drawn += 1
        return super().detail(run)

    def step(self) -> None:
        (run,) = self.now.runs
        self.change(snapshot=replace(run.snapshot, step=run.snapshot.step + 1))

    def change(self, **changes: object) -> None:
        (run,) = self.now.runs
        self.now = replace(self.now, runs=(replace(run, **changes),))


CHARTS = "/api/v1/runs/v0-run/charts"
ASKED = ["/api/v1/runs", "/api/v1/overview", "/api/v1/alerts", "/api/v1/compare", "/api/v1/runs/v0-run"]


@pytest.mark.parametrize("path", [*ASKED, "/api/v1/runbooks", CHARTS])
def test_a_client_that_has_the_answer_gets_no_second_one(path: str) -> None:
    watch = Moving()
    with web(watch) as place, httpx.Client(base_url=f"http://{place}") as client:
        first = client.get(path)
        assert first.status_code == 200
        known = {"If-None-Match": first.headers["etag"]}
        again = client.get(path, headers=known)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
        assert client.get(path).json() == first.json()  # one that has nothing gets all of it


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("/api/v1/runs", [True, True, False, True]),
        ("/api/v1/overview", [True, True, True, True]),
        ("/api/v1/alerts", [False, False, False, False]),
        ("/api/v1/compare", [True, False, False, False]),
        ("/api/v1/runs/v0-run", [True, True, True, True]),
    ],
)
def test_what_changed_is_sent(path: str, changed: list[bool]) -> None:
    """A step, an end, a source that fails, a label: those of them that the answer shows."""
    watch = Moving()
    moves: list[Callable[[], None]] = [
        watch.step,
        lambda: watch.change(active=False, ended=999.0),
        lambda: watch.change(channels=(ChannelStatus("console", False, 991.0, "gone"),)),
        lambda: watch.change(labels={"team": "code"}),
    ]
    sent = []
    with web(watch) as place, httpx.Client(base_url=f"http://{place}") as client:
        tag = client.get(path).headers["etag"]
        for move in moves:
            move()
            answer = client.get(path, headers={"If-None-Match": tag})
            sent.append(answer.status_code == 200)
            tag = answer.headers["etag"]
    assert sent == changed


def test_rows_are_drawn_once_per_change() -> None:
    """However many pages ask; that its files were read again is no change."""
    watch = Moving()
    with web(watch) as place, httpx.Client(base_url=f"http://{place}") as client:
        for _ in range(3):
            client.get(CHARTS)
        watch.change(channels=(ChannelStatus("console", True, 992.0),))
        client.get(CHARTS)
        assert watch.drawn == 1
        watch.step()
        client.get(CHARTS)
        assert watch.drawn == 2


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may ask under any query; the answer made longest ago makes room."""
    monkeypatch.setattr(answers, "MOST_KEPT", 2)
    watch = Moving()
    with web(watch) as place, httpx.Client(base_url=f"http://{place}") as client:
        for query in ("", "?a", "", "?b"):
            client.get(f"{CHARTS}{query}")
        assert watch.drawn == 3
        client.get(CHARTS)
        assert watch.drawn == 4


def test_an_answer_larger_than_the_bound_is_given_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_BYTES", 1)
    with web(Moving()) as place, httpx.Client(base_url=f"http://{place}") as client:
        assert [client.get(path).status_code for path in (*ASKED, CHARTS)] == [200] * 6


def test_the_run_that_was_replaced_by_an_equal_one_is_asked_for_again() -> None:
    """Equal snapshots may stand beside different batches, which are not part of them."""
    watch = Moving()
    with web(watch) as place, httpx.Client(base_url=f"http://{place}") as client:
        client.get(CHARTS)
        (run,) = watch.now.runs
        watch.change(snapshot=replace(run.snapshot))
        client.get(CHARTS)
        assert watch.drawn == 2
