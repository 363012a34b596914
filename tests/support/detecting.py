"""One shipped rule, fed with records: what it said and when."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.diagnosis import diagnose
from grpo_watch.engine.engine import Engine, Monitor
from grpo_watch.engine.records import Record, RunConfig, Scalar, Setting, Transition
from grpo_watch.rules.packs import load_rules

DETECTORS = catalogue()
SHIPPED = {rule.name: rule for rule in load_rules(detectors=DETECTORS)}


class Watched:
    """A run under one shipped rule."""

    def __init__(self, rule: str, *, shows_end: bool = True, in_folder: bool = True, **settings: Scalar) -> None:
        self.engine = Engine("run", [SHIPPED[rule]], DETECTORS)
        self.state = self.engine.state
        self.state.shows_end, self.state.in_folder = shows_end, in_folder
        self.said: list[Transition] = []
        known = {name: Setting(value, "test") for name, value in settings.items()}
        self.feed(RunConfig(None, None, known))

    def feed(self, *records: Record) -> Watched:
        """Feed records in order; a detector that breaks fails the test."""
        for record in records:
            self.said += self.engine.feed(record)
        assert self.monitor.broken is None, self.monitor.broken
        return self

    def feed_all(self, records: Iterable[Record]) -> Watched:
        """The same for an iterable."""
        return self.feed(*records)

    @property
    def monitor(self) -> Monitor:
        """The rule's monitor."""
        return self.state.monitors[0]

    @property
    def changes(self) -> list[tuple[str, int, str]]:
        """State, step and severity of each firing and resolving."""
        kept = [t for t in self.said if t.to_state.value in {"firing", "resolved"}]
        return [(t.to_state.value, t.step, t.severity.value) for t in kept]

    @property
    def headline(self) -> str:
        """What its finding is called in plain words; empty where the summary is."""
        (finding,) = diagnose([self.monitor])
        return finding.headline

    @property
    def blind_reason(self) -> str:
        """Why the newest record could not be judged."""
        return self.monitor.reason
