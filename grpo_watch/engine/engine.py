"""The engine: feeds each record to the rules that read it and turns their readings into transitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from grpo_watch.engine.detector import Detector
from grpo_watch.engine.monitor import Monitor, RunState
from grpo_watch.engine.records import (
    Activity,
    CheckpointDigest,
    CompletionSummary,
    EventKind,
    MetricRow,
    Progress,
    Record,
    RunConfig,
    RunEvent,
    Stream,
    Tick,
    Transition,
)
from grpo_watch.engine.rule import Rule


class Engine:
    """One run under some rules.

    ``feed`` takes one record and returns the transitions it caused, in rule order. Nothing else changes ``state``, so
    that the same records in the same order give the same transitions. ``labels`` are the user's, of the run.
    """

    def __init__(
        self,
        run: str,
        rules: Sequence[Rule],
        detectors: Mapping[str, type[Detector]],
        labels: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.rules = tuple(rule for rule in rules if rule.anywhere)
        self._detectors, self._labels = detectors, labels
        self._varied = any(rule.overrides for rule in self.rules)
        self.state = RunState(run, ())
        self._choose_rules()

    def feed(self, record: Record) -> list[Transition]:
        """Judge one record by every rule that reads its type."""
        state, found = self.state, list[Transition]()
        if isinstance(record, CompletionSummary) and state.knows_batch(record):
            return found
        step = self._account(record)
        for monitor in state.readers(record):
            changes = monitor.observe(record, state, step)
            if changes:
                found += changes
            elif changes is None:
                broken = RunEvent(monitor.rule.name, EventKind.RULE_BROKEN, step, monitor.broken or "")
                found += self.feed(broken)
        return found

    def _choose_rules(self) -> None:
        """Put in force what the overlays say of this run; called again when its framework becomes known.

        A rule that changes then begins with new windows. One that is switched off then is dropped, unless it has
        alerts: it stays, as it was, for as long as the run is watched.
        """
        state = self.state
        known = {monitor.rule.name: monitor for monitor in state.monitors}
        chosen = []
        for original in self.rules:
            monitor, rule = known.get(original.name), original.on(state.run, state.framework, self._labels)
            if monitor is not None and (monitor.rule == rule or (not rule.enabled and monitor.alerts)):
                chosen.append(monitor)
            elif rule.enabled:
                chosen.append(monitor.adopt(rule) if monitor is not None else Monitor(rule, self._detectors))
        state.watch_by(tuple(chosen))

    def _account(self, record: Record) -> int:
        """Take what the record says of the run itself; returns the step that its readings belong to."""
        state = self.state
        if isinstance(record, MetricRow):
            if record.stream is Stream.TRAIN:
                state.take_row(record)
            else:
                state.take_evaluation(record)
            return record.step
        if isinstance(record, RunConfig):
            before = state.framework
            state.take_config(record)
            if state.framework != before and self._varied:
                self._choose_rules()
        elif isinstance(record, Progress):
            state.take_progress(record)
        elif isinstance(record, (Tick, Activity)):
            state.take_time(record)
        elif isinstance(record, (CompletionSummary, CheckpointDigest)):
            state.last_seen = record.seen or state.last_seen
            if isinstance(record, CheckpointDigest):
                state.take_weights(record)
            else:
                state.take_batch(record)
            return record.step
        elif isinstance(record, RunEvent):
            return state.take_event(record)
        return state.step
