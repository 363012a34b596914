"""What the sources of a bundled run give, lane by lane, and ways to feed it to a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.records import Item, Tick, Transition
from grpo_watch.pipeline.offline import replay
from grpo_watch.pipeline.open_run import OpenedRun, open_run
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.discovery.discover import Discoverer
from tests.support.bundles import RECORDED, unpack

DETECTORS = catalogue()
RULES = tuple(load_rules(detectors=DETECTORS))
RUN = "run"
END = Tick(RECORDED, live=False)
"""The clock at the moment of recording: nothing is stalled yet."""


@dataclass(slots=True)
class Recording:
    """One run: what is fed before all else (announcements, configuration), and each source's items in their order.

    The folders of a run's attempts (``v0-…``, ``v1-…``) are one lane: the second begins when the first is over.
    """

    first: list[Item]
    lanes: dict[str, list[Item]] = field(default_factory=dict)

    def in_turn(self) -> list[Item]:
        """Source after source."""
        return [*self.first, *(item for lane in self.lanes.values() for item in lane)]

    def merged(self, order: Iterable[int]) -> list[Item]:
        """The sources' items shuffled together: each number picks a source that has items left; the rest in turn."""
        left = [list(reversed(lane)) for lane in self.lanes.values()]
        items = list(self.first)
        for number in order:
            open_lanes = [lane for lane in left if lane]
            if open_lanes:
                items.append(open_lanes[number % len(open_lanes)].pop())
        return items + [item for lane in left for item in reversed(lane)]


def a_pipeline() -> Pipeline:
    """A fresh pipeline under the shipped rules."""
    return Pipeline(RUN, RULES, DETECTORS)


def fed(items: Iterable[Item], pipeline: Pipeline | None = None) -> list[Transition]:
    """All transitions of these items."""
    target = pipeline or a_pipeline()
    return [transition for item in items for transition in target.feed(item)]


def opened(path: Path, pipeline: Pipeline) -> OpenedRun:
    """The one run under a folder, opened."""
    (found,) = Discoverer().discover(path)
    return open_run(found, pipeline)


@lru_cache(maxsize=32)
def recorded(name: str) -> Recording:
    """The items of a bundled run (read once; items are immutable, the lists are to be left alone)."""
    with TemporaryDirectory() as folder:
        pipeline = a_pipeline()
        run = opened(unpack(name, Path(folder)), pipeline)
        made = Recording(list(run.announcements))
        for source in sorted(run.sources, key=lambda source: (not source.early, source.segment)):
            items = [*source.source.poll(None), *source.source.finish()]
            for item in items:
                pipeline.feed(item)
            if source.early:
                made.first += items
            else:
                made.lanes.setdefault(source.what, []).extend(items)
        run.close()
        return made


def replayed(name: str) -> list[Transition]:
    """What the offline driver says of a bundled run."""
    with TemporaryDirectory() as folder:
        pipeline = a_pipeline()
        run = opened(unpack(name, Path(folder)), pipeline)
        transitions = list(replay(run, pipeline, END))
        run.close()
        return transitions


def short(transitions: Sequence[Transition]) -> set[tuple[object, ...]]:
    """What must not depend on the order of arrival: which alert changed to what, in which attempt, at which steps."""
    return {
        (t.rule, t.key, t.attempt, t.episode, t.to_state.value, t.severity.value, t.first_step, t.step)
        for t in transitions
    }
