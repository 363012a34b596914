"""The one pipeline that both drivers feed: items of a run in, transitions out. Pure and single-threaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from grpo_watch.detectors.run.planned_steps import predicted_max_steps
from grpo_watch.engine.detector import Detector
from grpo_watch.engine.engine import Engine
from grpo_watch.engine.records import ChannelElected, ChannelOpened, Item, Record, Transition
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.rule_views import RuleViews
from grpo_watch.engine.run_state import RunState
from grpo_watch.engine.snapshot import RunSnapshot, take_snapshot
from grpo_watch.pipeline.assembler import Assembler, ChannelNotes


class MakeEngine(Protocol):
    """Makes the engine of a pipeline."""

    def __call__(
        self, rules: Sequence[Rule], detectors: Mapping[str, type[Detector]], *, labels: Mapping[str, str]
    ) -> Engine:
        """An engine without runs."""


class Pipeline:
    """Assembler and engine for any number of runs.

    The same items in the same order give the same transitions, so a replay of stored items rebuilds every window.

    Args:
        rules: the rules to judge by.
        detectors: the catalogue.
        labels: the user's, of all runs.
        observe: called with every record before it is judged.
        make_engine: another engine than the usual one.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        detectors: Mapping[str, type[Detector]],
        labels: Mapping[str, str] = MappingProxyType({}),
        observe: Callable[[Record], None] | None = None,
        make_engine: MakeEngine = Engine,
    ) -> None:
        self._observe = observe
        self._engine = make_engine(rules, detectors, labels=labels)
        self._assemblers: dict[str, Assembler] = {}

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that are enabled for any run."""
        return self._engine.rules

    def state(self, run: str) -> RunState:
        """The run as the engine sees it; begun on first sight."""
        return self._engine.run(run)

    def channels(self, run: str) -> ChannelNotes:
        """Facts about the run's channels besides their rows."""
        return self._assembler(run).notes()

    def own_keys(self, run: str) -> Mapping[str, str]:
        """What the run's rows call each metric; any thread may ask."""
        return self._assembler(run).own_keys

    def trusts(self, run: str, channel: str) -> bool:
        """Whether a channel may give rows: not where it contradicts the others as another job's would."""
        return self._assembler(run).trusts(channel)

    def _assembler(self, run: str) -> Assembler:
        found = self._assemblers.get(run)
        if found is None:
            found = self._assemblers[run] = Assembler(run)
        return found

    def feed(self, run: str, item: Item) -> list[Transition]:
        """Take one item of one run; returns the transitions that it caused."""
        assembler = self._assembler(run)
        transitions: list[Transition] = []
        for record in assembler.feed(item):
            if self._observe is not None:
                self._observe(record)
            transitions += self._engine.feed(run, record)
        if isinstance(item, ChannelOpened):
            state = self._engine.run(run)
            state.shows_end, state.in_folder = assembler.shows_end, assembler.in_folder
        return transitions

    def elections(self, now: float, *, ended: bool = False) -> Iterator[tuple[str, ChannelElected]]:
        """Elections due at ``now`` (Unix seconds), or because the run ended; the driver feeds and stores them."""
        for run, assembler in self._assemblers.items():
            before: ChannelElected | None = None
            while (due := assembler.election(now, ended=ended)) not in {None, before} and due is not None:
                yield run, due
                before = due

    def snapshot(self, run: str, views: RuleViews | None = None) -> RunSnapshot:
        """The run now, immutable; ``views`` are the views of its rules as they were, where they are kept."""
        state = self._engine.run(run)
        return take_snapshot(state, predicted_max_steps(state), views)

    @property
    def runs(self) -> tuple[str, ...]:
        """All runs seen, in order of first sight."""
        return tuple(self._engine.runs)
