"""The pipeline of a run, fed by both drivers: items in, transitions out. Pure and single-threaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from grpo_watch.advisories.judge import AdvisoryLedger, Setup
from grpo_watch.detectors.shared.batch_plan import predicted_max_steps
from grpo_watch.engine.detector import Detector
from grpo_watch.engine.engine import Engine, RunState
from grpo_watch.engine.records import ChannelElected, ChannelOpened, Item, Record, RunConfig, Transition
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.snapshot import RunSnapshot, take_snapshot
from grpo_watch.pipeline.assembler import Assembler


class Pipeline:
    """Assembler and engine of one run.

    The same items in the same order give the same transitions, so a replay of stored items rebuilds every window.
    ``state`` is the engine's state of the run, ``rules`` are those that may be enabled for it, ``assembler`` merges its
    channels.

    Args:
        run: the run's name.
        rules: the rules to judge by.
        detectors: the catalogue.
        labels: the user's labels of the run.
        observe: called with every record before it is judged.
    """

    def __init__(
        self,
        run: str,
        rules: Sequence[Rule],
        detectors: Mapping[str, type[Detector]],
        labels: Mapping[str, str] = MappingProxyType({}),
        observe: Callable[[Record], None] | None = None,
    ) -> None:
        self._observe = observe
        self._engine, self.assembler = Engine(run, rules, detectors, labels), Assembler(run)
        self._advisories = AdvisoryLedger()
        self.rules = self._engine.rules
        self.state: RunState = self._engine.state

    @property
    def setup(self) -> Setup:
        """The run's versions and settings, for advisories."""
        return self._advisories.setup

    def feed(self, item: Item) -> list[Transition]:
        """Take one item; returns the transitions that it caused."""
        transitions: list[Transition] = []
        for record in self.assembler.feed(item):
            transitions += self._judge(record)
            if isinstance(record, RunConfig):  # advisories of these versions and settings
                for advisory in self._advisories.add_config(record):
                    transitions += self._judge(advisory)
        if isinstance(item, ChannelOpened):
            self.state.shows_end, self.state.in_folder = self.assembler.shows_end, self.assembler.in_folder
        return transitions

    def _judge(self, record: Record) -> list[Transition]:
        if self._observe is not None:
            self._observe(record)
        return self._engine.feed(record)

    def elections(self, now: float, *, ended: bool = False) -> Iterator[ChannelElected]:
        """Elections due at ``now`` (Unix seconds), or because the run ended; the driver feeds and stores them."""
        made: set[ChannelElected] = set()
        while (due := self.assembler.election(now, ended=ended)) is not None and due not in made:
            yield due
            made.add(due)

    def snapshot(self) -> RunSnapshot:
        """Return an immutable snapshot of the run."""
        return take_snapshot(self.state, predicted_max_steps(self.state))
