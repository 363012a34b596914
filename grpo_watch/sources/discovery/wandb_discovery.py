"""Turns ``wandb://entity/project[/run]`` into runs and their channels, next to the local ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from grpo_watch.sources.discovery.discover import ChannelContent, Discoverer, FoundChannel, FoundRun
from grpo_watch.sources.discovery.look import Look
from grpo_watch.sources.trackers.wandb_api.hub import Hub
from grpo_watch.sources.trackers.wandb_api.remote import OVER, RemotePlace, RunInfo
from grpo_watch.sources.trackers.wandb_api.source import WandbApiSource

FRESH_SECONDS = 86_400.0
"""A run of a watched project that ended more seconds ago is not read, unless a following run continues it."""
PATIENCE = 30.0
"""Seconds that the daemon waits for a project's first list, so that a restart does not count its runs as lost."""
MOST_CHECKED = 50
"""Newest runs of a project that ``check`` reads."""


class RemoteDiscoverer:
    """Adds the runs of wandb servers to local discovery; has the methods of ``Discoverer`` that drivers use.

    Runs of one name that follow each other (verl starts a new one at every resume) are one run with several segments;
    simultaneous runs of one name (ranks, two jobs) are separate, distinguished by their id.

    Args:
        local: finds runs in folders.
        places: the remote places.
        hub: lists and reads them.
        pause: sleeps for seconds; if given, listing and reading wait for the server. None: a thread steps the hub.
        clock: Unix seconds; given, ended runs of a project are left out once they are a day old.
    """

    def __init__(
        self,
        local: Discoverer,
        places: Sequence[RemotePlace],
        hub: Hub,
        *,
        pause: Callable[[float], object] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._local, self._places, self._hub = local, tuple(dict.fromkeys(places)), hub
        self._pause, self._clock = pause, clock
        self._began = clock() if clock is not None else 0.0
        self.problems: tuple[str, ...] = ()
        for place in self._places:
            hub.watch(place)

    @property
    def settled(self) -> bool:
        """Whether every project was listed once, or took too long."""
        if not self._local.settled:
            return False
        if self._clock is None or self._clock() - self._began > PATIENCE:
            return True
        return all(place.run or self._known(place) for place in self._places)

    @property
    def look(self) -> Look:
        """The state of the local look."""
        return self._local.look

    def discover(self, *paths: Path) -> list[FoundRun]:
        """Return the runs at all local ``paths`` and at the remote places."""
        found = self._local.discover(*paths) if paths else []
        self.problems = self._local.problems if paths else ()
        remote: dict[RemotePlace, FoundRun] = {}
        for place in self._places:
            for run in self._at(place):
                remote.setdefault(_first(run), run)
        taken = {run.name for run in found}
        return [*found, *(_renamed(run, taken) for run in remote.values())]

    def _at(self, place: RemotePlace) -> Iterator[FoundRun]:
        if self._pause is not None:
            self._hub.until(lambda: self._known(place), self._pause)
        listed = self._hub.listed(place)
        if listed.problem:
            self.problems = (*self.problems, listed.problem)
        runs = listed.runs or ()
        if place.run:
            known = runs or ((RunInfo(place.run, place.run, "", 0.0, 0.0),) if self._pause is None else ())
            yield from (self._run(place, [info._replace(name=place.run)]) for info in known)
            return
        groups = [group for group in following(runs) if self._is_wanted(group)]
        if self._clock is None and len(groups) > MOST_CHECKED:
            self.problems = (*self.problems, f"{place}: {len(groups)} runs, the newest {MOST_CHECKED} are read")
            groups = groups[-MOST_CHECKED:]
        names = Counter(group[0].name for group in groups)
        for group in groups:
            yield self._run(place, group, alone=names[group[0].name] == 1)

    def _known(self, place: RemotePlace) -> bool:
        listed = self._hub.listed(place)
        return listed.runs is not None or bool(listed.problem)

    def _is_wanted(self, group: Sequence[RunInfo]) -> bool:
        newest = group[-1]
        if self._clock is None or newest.state not in OVER:
            return True
        return self._clock() - max(newest.heartbeat, newest.created) < FRESH_SECONDS

    def _run(self, place: RemotePlace, group: Sequence[RunInfo], *, alone: bool = True) -> FoundRun:
        first = group[0]
        root = Path("/wandb:", place.entity, place.project, first.id)
        name = first.name if alone else f"{first.name}-{first.id}"
        channels = [
            self._channel(RemotePlace(place.entity, place.project, info.id), at) for at, info in enumerate(group)
        ]
        return FoundRun(
            root=root,
            name=f"{place.project}/{name}",
            framework=None,
            channels=tuple(sorted(channels, key=lambda channel: channel.name)),
            remote=str(RemotePlace(place.entity, place.project, first.id)),
            written=max(max(info.heartbeat, info.created) for info in group),
        )

    def _channel(self, place: RemotePlace, segment: int) -> FoundChannel:
        opens = partial(WandbApiSource, place=place, hub=self._hub, pause=self._pause)
        path = Path("/wandb:", place.entity, place.project, place.run)
        return FoundChannel(f"wandb/{place.run}", ChannelContent.WANDB_API, path, segment, shows_end=True, opens=opens)


def following(runs: Sequence[RunInfo]) -> list[list[RunInfo]]:
    """Group successive runs of one name; oldest group first, oldest run of a group first.

    A run follows another if it was created after the other's last heartbeat.
    """
    groups: list[list[RunInfo]] = []
    open_groups: dict[str, list[list[RunInfo]]] = {}
    for info in sorted(runs, key=lambda info: (info.created, info.id)):
        same = open_groups.setdefault(info.name, [])
        ended = [group for group in same if group[-1].state in OVER and group[-1].heartbeat < info.created]
        if len(same) == 1 and ended and info.created > 0:
            ended[0].append(info)
            continue
        group = [info]
        same.append(group)
        groups.append(group)
    return groups


def _first(run: FoundRun) -> RemotePlace:
    entity, project, identifier = run.root.parts[-3:]
    return RemotePlace(entity, project, identifier)


def _renamed(run: FoundRun, taken: set[str]) -> FoundRun:
    if run.name not in taken:
        return run
    return replace(run, name=run.remote)
