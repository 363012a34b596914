"""The engine: feeds each record to the rules that read it and turns their readings into transitions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from types import MappingProxyType

from grpo_watch.engine.alerts import Alert, advance, rewind, transition_of
from grpo_watch.engine.detector import QUIET, SILENT, Detector
from grpo_watch.engine.expression import ConditionDetector
from grpo_watch.engine.metric_names import split_label
from grpo_watch.engine.records import (
    Activity,
    AlertState,
    CheckpointDigest,
    CompletionSummary,
    EventKind,
    MetricRow,
    Progress,
    Reading,
    Record,
    RunConfig,
    RunEvent,
    Severity,
    Stream,
    Tick,
    Transition,
    Verdict,
)
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.run_view import RunView


class Engine:
    """One run under some rules.

    ``feed`` takes one record and returns the transitions it caused, in rule order. Nothing else changes ``state``, so
    the same records in the same order give the same transitions. ``labels`` are the run's labels from the settings.
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
            try:
                answer = monitor.ask(record, state)
                if answer is SILENT or answer is monitor.last_no_data or (answer is QUIET and monitor.at_rest):
                    continue
                readings = tuple(answer)
            except Exception as error:  # noqa: BLE001 - one broken rule never stops the others; it is reported as broken
                found += self.feed(monitor.break_by(error, step))
            else:
                found += monitor.take(readings, record, state, step)
        return found

    def _choose_rules(self) -> None:
        """Apply the overrides that fit this run; called again once its framework is known.

        A rule that changes starts with new windows. A rule that is then switched off is dropped unless it has alerts,
        which keep it, unchanged, as long as the run is watched.
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
        """Update the run's state by the record; returns the step that its readings belong to."""
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


AGREE = 3
"""Signs of the trend from which wrong names are no explanation: so many metrics don't turn bad together by mistake."""


WITH_TIME = (MetricRow, RunEvent, Activity)
"""Records that may carry the time at which they were made."""
_IDLE = Alert()


WORSE, CLEARLY = 2.0, 0.5
"""A later reading replaces the episode's worst one if it lies this many times as far beyond the threshold, and differs
by this share of the value."""


def _beyond(reading: Reading) -> float:
    """How far a reading lies beyond its threshold, on either side; 0 without numbers."""
    known = reading.value is not None and reading.threshold is not None and isfinite(reading.value)
    return abs((reading.value or 0.0) - (reading.threshold or 0.0)) if known else 0.0


@dataclass(frozen=True, slots=True)
class Episode:
    """One firing of an alert, kept for the list of findings.

    ``reading`` is the one that fired it or raised its severity, ``worst`` a far worse one, at ``worst_step``.
    """

    key: str
    attempt: int
    first_step: int
    fired_step: int
    resolved_step: int | None
    severity: Severity
    reading: Reading
    worst: Reading | None = None
    worst_step: int = 0

    def worsened_by(self, reading: Reading, step: int) -> Episode:
        """The episode with this reading as its worst, if it is ``WORSE`` times as far beyond the threshold."""
        before = self.worst or self.reading
        far, was, now = _beyond(before), before.value or 0.0, reading.value or 0.0
        if far <= 0.0 or _beyond(reading) < WORSE * far or abs(now - was) < CLEARLY * abs(was):
            return self
        return replace(self, worst=reading, worst_step=step)


def _silent(record: Record, run: RunView) -> Sequence[Reading]:  # noqa: ARG001  called like ``observe``
    return SILENT


class Monitor:
    """A rule applied to one run.

    ``active`` says whether any alert is pending or firing; ``evaluated`` turns true at the first OK or BREACH;
    ``at_rest`` means evaluated and not active, so that a quiet row costs nothing. ``reason`` is that of the last
    NO_DATA and ``last_no_data`` the answer itself, which is skipped if it repeats. ``changes`` counts changes to
    anything shown of the monitor; ``lacks`` is the evidence missing when it was last shown, with what that was computed
    from. A detector that raises makes the monitor ``broken``: its alerts freeze and the other rules continue.
    """

    __slots__ = (
        "active",
        "alerts",
        "ask",
        "at_rest",
        "broken",
        "changes",
        "detector",
        "detectors",
        "episodes",
        "evaluated",
        "lacks",
        "last_no_data",
        "reason",
        "rule",
    )

    def __init__(self, rule: Rule, detectors: Mapping[str, type[Detector]]) -> None:
        self.rule = rule
        self.detectors = detectors
        self.broken: str | None = None
        self.renew()
        self.alerts: dict[str, Alert] = {}
        self.episodes: list[Episode] = []
        self.active = False
        self.at_rest = False
        self.evaluated = False
        self.reason = ""
        self.last_no_data: object = None
        self.changes = 0

    def renew(self) -> None:
        """Start with new windows. ``ask`` is the detector's ``observe``, looked up once instead of at every row."""
        self.detector = self._build()
        self.lacks: tuple[object, str] | None = None
        self.ask = self.detector.observe if self.broken is None else _silent

    def _build(self) -> Detector:
        if self.rule.when is not None:
            return ConditionDetector(self.rule)
        return self.detectors[self.rule.detector or self.rule.name](self.rule.params)

    def adopt(self, rule: Rule) -> Monitor:
        """Continue under a changed rule: new windows, the same alerts."""
        self.rule = rule
        self.renew()
        return self

    def begin_attempt(self, step: int) -> None:
        """Renew the windows; drop pending alerts; firing ones wait for a reading that clears them."""
        self.changes += 1
        if not self.detector.survives_attempts:
            self.renew()
        self.alerts = {key: rewind(alert, step) for key, alert in self.alerts.items()}
        self._settle()

    def load(self, key: str, alert: Alert) -> None:
        """Continue from a stored alert."""
        self.changes += 1
        self.alerts[key] = alert
        self._settle()

    def _settle(self) -> None:
        self.active = any(alert.state not in _AT_REST for alert in self.alerts.values())
        self.at_rest = self.evaluated and not self.active

    def break_by(self, error: Exception, step: int) -> RunEvent:
        """Stop asking a detector that raised, and return the event that reports it."""
        self.broken = f"{type(error).__name__}: {error}"
        self.ask = _silent
        self.changes += 1
        return RunEvent(self.rule.name, EventKind.RULE_BROKEN, step, self.broken)

    def take(self, readings: Sequence[Reading], record: Record, run: RunView, step: int) -> Sequence[Transition]:
        """Apply the detector's readings of a record; returns each change of an alert, in order."""
        if self.at_rest and all(reading.verdict is Verdict.OK for reading in readings):
            return ()
        blind = len(readings) == 1 and readings[0].verdict is Verdict.NO_DATA
        self.last_no_data = readings if blind else None
        time = record.time if isinstance(record, WITH_TIME) else None
        return [change for reading in readings for change in self._judge(reading, run, step, time)]

    def _judge(self, reading: Reading, run: RunView, step: int, time: float | None) -> Iterator[Transition]:
        if reading.verdict is Verdict.NO_DATA:
            self.changes += self.reason != reading.message
            self.reason = reading.message
            return
        if run.guesses.metrics:
            reading = self._capped(reading, run)
        self.changes += not self.evaluated
        self.evaluated = True
        self.at_rest = not self.active
        key = reading.key
        before = self.alerts.get(key, _IDLE)
        if reading.verdict is Verdict.OK and before.state in _AT_REST:
            return
        at = step if reading.step is None else reading.step
        after, changed = advance(before, reading, at, self.rule, reading.attempt or run.attempt)
        over = reading.attempt is not None and reading.attempt < run.attempt
        self.changes += over or after != before
        self.alerts[key] = rewind(after, step) if over else after
        if not changed and reading.verdict is Verdict.BREACH and after.state is AlertState.FIRING:
            index = self._newest(key)
            if index is not None:
                self.episodes[index] = self.episodes[index].worsened_by(reading, at)
        if changed:  # the episode of an unchanged alert is up to date
            self._keep(key, after, begins=before.state is not AlertState.FIRING)
            self._settle()
            yield transition_of(run.run, (self.rule.name, key), after, before.state, at, time)

    def _capped(self, reading: Reading, run: RunView) -> Reading:
        """The reading, at most a warning if it rests on a guessed metric and too few other metrics agree."""
        critical = (reading.severity or self.rule.severity) is Severity.CRITICAL and reading.verdict is Verdict.BREACH
        if not critical or self.detector.holds_under_any_name or len(run.trend.signs()) >= AGREE:
            return reading
        needed = {metric for alternative in self.detector.needs for metric in alternative}
        named = {split_label(name)[0] for name in reading.evidence}
        sure = run.guesses.metrics.isdisjoint(needed | named)
        return reading if sure else replace(reading, severity=Severity.WARNING)

    def _keep(self, key: str, alert: Alert, *, begins: bool) -> None:
        """Copy a fired alert into its episode."""
        if alert.fired_step is None:
            return
        fields = (alert.attempt, alert.first_step, alert.fired_step, alert.resolved_step, alert.severity, alert.reading)
        episode, index = Episode(key, *fields), self._newest(key)
        if begins and alert.state is AlertState.FIRING:
            self.episodes.append(episode)
        elif index is not None:
            before = self.episodes[index]
            episode = episode.worsened_by(before.reading, before.fired_step)
            self.episodes[index] = episode.worsened_by(before.worst or before.reading, before.worst_step)

    def _newest(self, key: str) -> int | None:
        """The index of an alert's newest episode, or None."""
        places = range(len(self.episodes) - 1, -1, -1)
        return next((place for place in places if self.episodes[place].key == key), None)

    @property
    def firing(self) -> bool:
        """Whether any alert of this rule fires."""
        return self.active and any(alert.state is AlertState.FIRING for alert in self.alerts.values())


_AT_REST = (AlertState.INACTIVE, AlertState.RESOLVED)


class RunState(RunView):
    """One run and its monitors."""

    def __init__(self, run: str, monitors: tuple[Monitor, ...]) -> None:
        super().__init__(run)
        self.watch_by(monitors)

    def watch_by(self, monitors: tuple[Monitor, ...]) -> None:
        """Replace the monitors that watch this run."""
        self.monitors = monitors
        self._readers: dict[tuple[type, bool], tuple[Monitor, ...]] = {}

    def readers(self, record: Record) -> tuple[Monitor, ...]:
        """The monitors that read records of this type and stream."""
        stream = record.stream if isinstance(record, (MetricRow, CompletionSummary)) else None
        key = (type(record), stream is Stream.EVAL)
        found = self._readers.get(key)
        if found is None:
            found = self._readers[key] = tuple(
                monitor
                for monitor in self.monitors
                if type(record) in monitor.detector.reads and (stream is None or monitor.detector.stream is stream)
            )
        return found

    def begin_attempt(self, attempt: int, step: int) -> None:
        """Begin a new attempt at ``step``: every monitor rewinds."""
        super().begin_attempt(attempt, step)
        for monitor in self.monitors:
            monitor.begin_attempt(step)
