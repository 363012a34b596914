"""Which runs a project's list makes, while it changes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.sources.discovery.discover import Discoverer
from grpo_watch.sources.discovery.wandb_discovery import RemoteDiscoverer, following
from grpo_watch.sources.trackers.wandb_api.process import ClientProcess
from grpo_watch.sources.trackers.wandb_api.remote import RemotePlace, RunInfo
from tests.support.wandb_runs import Reading
from tests.support.wandb_server import ServedRun, WandbServer

NOW = 1_795_270_000.0  # 2026-11-21 14:06:40 UTC


def found(discoverer: RemoteDiscoverer) -> dict[str, list[str]]:
    return {run.name: [channel.name for channel in run.channels] for run in discoverer.discover()}


def test_a_project_is_watched_for_new_runs(server: WandbServer, client: ClientProcess) -> None:
    server.add("ada/grpo", ServedRun("r1", "a", heartbeat="2026-11-21T14:00:00Z"))
    server.add(
        "ada/grpo", ServedRun("old", "b", "finished", heartbeat="2026-11-19T08:00:00Z", created="2026-11-19T07:00:00Z")
    )
    reading = Reading(client)
    discoverer = RemoteDiscoverer(Discoverer(), [RemotePlace("ada", "grpo")], reading.hub, clock=lambda: NOW)
    assert not discoverer.settled, "a restart must not take its runs for lost"
    assert found(discoverer) == {}
    reading.turn(60)
    assert discoverer.settled
    assert found(discoverer) == {"grpo/a": ["wandb/r1"]}
    server.add("ada/grpo", ServedRun("r2", "c", created="2026-11-21T14:01:00Z"))
    reading.turn(60)
    assert found(discoverer) == {"grpo/a": ["wandb/r1"], "grpo/c": ["wandb/r2"]}
    del server.projects["ada/grpo"][0]
    reading.turn(60)
    assert found(discoverer) == {"grpo/c": ["wandb/r2"]}


def test_a_resume_joins_the_run_it_follows(server: WandbServer, client: ClientProcess) -> None:
    first = server.add("ada/verl", ServedRun("v1", "exp", heartbeat="2026-11-21T14:00:00Z"))
    reading = Reading(client)
    discoverer = RemoteDiscoverer(Discoverer(), [RemotePlace("ada", "verl")], reading.hub, clock=lambda: NOW)
    reading.turn(60)
    (before,) = discoverer.discover()
    first.state = "crashed"
    server.add("ada/verl", ServedRun("v2", "exp", created="2026-11-21T14:05:00Z", heartbeat="2026-11-21T14:06:00Z"))
    reading.turn(60)
    (after,) = discoverer.discover()
    assert (after.name, after.remote, after.root) == (before.name, before.remote, before.root)
    assert [(channel.name, channel.segment) for channel in after.channels] == [("wandb/v1", 0), ("wandb/v2", 1)]
    assert after.written == 1_795_269_960.0


def test_a_named_run_is_there_before_the_server_answers(client: ClientProcess) -> None:
    reading = Reading(client)
    discoverer = RemoteDiscoverer(Discoverer(), [RemotePlace("ada", "grpo", "r9")], reading.hub, clock=lambda: NOW)
    assert found(discoverer) == {"grpo/r9": ["wandb/r9"]}
    assert discoverer.settled


infos = st.builds(
    RunInfo,
    id=st.uuids().map(str),
    name=st.sampled_from(["a", "b"]),
    state=st.sampled_from(["running", "finished", "crashed"]),
    created=st.integers(0, 20).map(float),
    heartbeat=st.integers(0, 25).map(float),
)


@given(st.lists(infos, max_size=12, unique_by=lambda info: info.id))
def test_every_run_is_in_one_group_and_groups_never_overlap(runs: list[RunInfo]) -> None:
    groups = following(runs)
    assert sorted(info.id for group in groups for info in group) == sorted(info.id for info in runs)
    for group in groups:
        assert len({info.name for info in group}) == 1
        for earlier, later in pairwise(group):
            assert earlier.heartbeat < later.created
            assert earlier.state != "running"
