"""How often a server is asked, and what a hub does with failures, without a server."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.engine.records import EventKind, RunEvent
from grpo_watch.sources.base import KeptTexts
from grpo_watch.sources.trackers.wandb_api.hub import BURST, LONGEST_PAUSE, Feed, Hub, RequestBudget
from grpo_watch.sources.trackers.wandb_api.process import ClientProcess
from grpo_watch.sources.trackers.wandb_api.remote import (
    LoggedCalls,
    RemoteError,
    RemotePlace,
    RunDetails,
    RunInfo,
    RunNews,
    ServerTrouble,
)
from tests.support.process import PATIENCE
from tests.support.wandb_runs import PLACE, Reading


class Failing(ClientProcess):
    """A client that fails for chosen runs, and has nothing new of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.trouble: dict[str, ServerTrouble] = {}

    def ask(self, question: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
        place, *_others = arguments
        self.asked.append(place.run)
        if place.run in self.trouble:
            raise RemoteError(self.trouble[place.run])
        info = RunInfo(place.run, "n", "running", 0, 0)
        details = RunDetails(info, None, one_per_prompt=False)
        answers: dict[str, object] = {"runs": (), "details": details, "news": RunNews(details, LoggedCalls((), 0, -1))}
        return answers[question.__name__], 1


@given(
    per_minute=st.floats(1, 600),
    delivery_settings=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 8)), min_size=1, max_size=60),
)
def test_no_stretch_of_time_sees_more_than_the_budget(
    per_minute: float, delivery_settings: list[tuple[float, int]]
) -> None:
    budget, now, spent = RequestBudget(per_minute, 0.0), 0.0, []
    for idle, requests in delivery_settings:
        now += idle
        now += budget.wait(now)
        budget.spend(requests, now)
        spent.append((now, requests))
    for begin in range(len(spent)):
        for end in range(begin, len(spent)):
            seconds = spent[end][0] - spent[begin][0]
            # The bucket may be full at the beginning, and the last question may cost more than was left.
            most = min(BURST, max(1.0, per_minute)) + seconds * per_minute / 60 + spent[end][1]
            assert sum(requests for _, requests in spent[begin : end + 1]) <= most + 1e-6


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_pauses_grow_to_a_limit_and_differ(seed: int, failures: int) -> None:
    feed = Feed(RemotePlace("ada", "grpo", "r1"), 0, random.Random(seed), examples=KeptTexts.NOTHING, due=0.0)
    for number in range(failures):
        feed.failed(RemoteError(ServerTrouble.FAILED), 100.0)
        full = min(LONGEST_PAUSE, 5.0 * 2**number)
        assert full / 2 <= feed.due - 100.0 <= full


def test_a_failing_run_is_reported_at_the_third_time_and_others_go_on() -> None:
    client = Failing()
    reading = Reading(client)
    bad, good = reading.source(), reading.source(place=RemotePlace("ada", "grpo", "r2"))
    client.trouble["r1"] = ServerTrouble.FAILED
    reported = []
    for _ in range(30):
        reading.turn(1.0)
        reported += [item for item in bad.poll(None) if isinstance(item, RunEvent)]
        if reported:
            break
    assert [event.kind for event in reported] == [EventKind.SOURCE_PROBLEM]
    assert client.asked.count("r1") == 3
    assert good.stats.problem == ""
    assert client.asked.count("r2") == 1
    assert not bad.behind, "a run that can't be read holds nothing up"


def test_a_rate_limit_pauses_all_runs() -> None:
    client = Failing()
    reading = Reading(client)
    sources = [reading.source(place=RemotePlace("ada", "grpo", run)) for run in ("r1", "r2")]
    client.trouble["r1"] = ServerTrouble.LIMITED
    assert reading.hub.step() == 0.0
    assert client.asked == ["r1"]
    reading.turn(2.4)
    assert client.asked == ["r1"], "the first pause is 2.5 s at least"
    reading.turn(3.0)
    assert "r2" in client.asked
    assert len(sources) == 2


def test_a_run_that_is_left_is_asked_for_no_more() -> None:
    client = Failing()
    reading = Reading(client)
    source = reading.source()
    reading.turn()
    before = len(client.asked)
    source.close()
    reading.turn(600)
    assert len(client.asked) == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_mistake_in_the_thread_ends_it_so_that_the_daemon_ends() -> None:
    class Broken(Failing):
        def ask(self, *_: Any, **__: Any) -> Any:
            raise ZeroDivisionError

    hub = Hub(Broken(), timer=lambda: 0.0, chance=random.Random(1))
    hub.follow(PLACE, 0, examples=False)
    hub.start()
    hub.thread.join(PATIENCE)
    assert not hub.thread.is_alive()
    hub.close()
