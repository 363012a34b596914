"""One rule watching one run: the detector, its alerts by key, and whether it can see at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from grpo_watch.engine.alerts import Alert, advance, going_on, rewind, transition_id
from grpo_watch.engine.block import Block
from grpo_watch.engine.detector import QUIET, SILENT, Bounds, Detector, RunView
from grpo_watch.engine.expression import ConditionDetector
from grpo_watch.engine.guessed_names import GuessedNames
from grpo_watch.engine.records import (
    Activity,
    AlertState,
    MetricRow,
    Reading,
    Record,
    RunEvent,
    Severity,
    Stream,
    Transition,
    Verdict,
)
from grpo_watch.engine.rule import Rule

WITH_TIME = (MetricRow, RunEvent, Activity)
"""Records that may know when they were made."""
_IDLE = Alert()


class MonitoredRun(RunView, Protocol):
    """A monitor's view of the run: the detector's, and which metrics were read under a guessed name."""

    guesses: GuessedNames


@dataclass(frozen=True, slots=True)
class Episode:
    """One firing of an alert, kept for the list of findings."""

    key: str
    attempt: int
    first_step: int
    fired_step: int
    resolved_step: int | None
    severity: Severity
    reading: Reading
    time: float | None = None


class Monitor:
    """A rule applied to one run.

    ``active`` says whether any alert is pending or firing; ``evaluated`` turns true at the first OK or BREACH;
    ``at_rest`` means evaluated and not active, so that a quiet row costs nothing; ``reason`` is the last NO_DATA's and
    ``unseeing`` that answer itself, which says nothing new when it is given again; ``quiet_rows`` counts rows with
    nothing to say, until it may sleep; ``behind`` is the row up to which a detector that looks back was shown rows,
    once it has slept, and ``promised`` the metrics of its promise; ``changes`` counts what records changed of what is
    shown of it. A detector that raises makes the monitor ``broken``: its alerts freeze and the other rules continue.
    """

    __slots__ = (
        "active",
        "alerts",
        "ask",
        "at_rest",
        "behind",
        "broken",
        "changes",
        "detector",
        "detectors",
        "episodes",
        "evaluated",
        "looks_ahead",
        "promised",
        "quiet_rows",
        "reason",
        "rule",
        "takes_blocks",
        "unseeing",
    )

    def __init__(self, rule: Rule, detectors: Mapping[str, type[Detector]]) -> None:
        self.rule = rule
        self.detectors = detectors
        self.renew()
        self.alerts: dict[str, Alert] = {}
        self.episodes: list[Episode] = []
        self.active = False
        self.at_rest = False
        self.evaluated = False
        self.reason = ""
        self.unseeing: object = None
        self.broken: str | None = None
        self.quiet_rows = 0
        self.changes = 0

    def renew(self) -> None:
        """Begin with new windows. ``ask`` is the detector's ``observe``, found once instead of at every row."""
        self.behind: int | None = None
        self.promised: frozenset[str] = frozenset()
        self.detector = self._build()
        self.ask = self.detector.observe
        self.looks_ahead = type(self.detector).could_speak is not Detector.could_speak
        self.takes_blocks = self.looks_ahead and not self.detector.loops_alone

    def _build(self) -> Detector:
        if self.rule.when is not None:
            return ConditionDetector(self.rule)
        return self.detectors[self.rule.detector or self.rule.name](self.rule.params)

    def adopt(self, rule: Rule) -> Monitor:
        """Continue under a changed rule, with new windows and the alerts as they are."""
        self.rule = rule
        self.renew()
        return self

    def sleep(self, row: int) -> None:
        """Note what was shown last, for a detector that looks back."""
        if self.detector.looks_back:
            self.behind, self.promised = row, frozenset(self.detector.quiet_while or ())

    def begin_attempt(self, step: int) -> None:
        """Rewind the windows; pending alerts drop, firing ones wait for a reading that clears them."""
        self.changes += 1
        if not self.detector.survives_attempts:
            self.renew()
        self.alerts = {key: rewind(alert, step) for key, alert in self.alerts.items()}
        self.active = self.firing
        self.at_rest = self.evaluated and not self.active

    def load(self, key: str, alert: Alert) -> None:
        """Continue from an alert as it was stored."""
        self.changes += 1
        self.alerts[key] = alert
        self.active = any(alert.state not in _AT_REST for alert in self.alerts.values())
        self.at_rest = self.evaluated and not self.active

    def observe(self, record: Record, run: MonitoredRun, step: int) -> Sequence[Transition] | None:
        """Let the detector judge the record; gives each change of an alert, in order. None: the record broke it."""
        if self.broken is not None:
            return ()
        try:
            if self.behind is not None:
                row = record if isinstance(record, MetricRow) else None
                here = row is not None and row.stream is Stream.TRAIN and not row.supplement
                self._catch_up(run, here=here)
            answer = self.ask(record, run)
            if answer is SILENT or answer is self.unseeing or (answer is QUIET and self.at_rest):
                self.quiet_rows += 1
                return ()
            self.quiet_rows = 0
            readings = tuple(answer)
        except Exception as error:  # noqa: BLE001 - one broken rule never stops the others; it is reported as broken
            self._break(error)
            return None
        blind = len(readings) == 1 and readings[0].verdict is Verdict.NO_DATA
        self.unseeing = answer if blind else None
        time = record.time if isinstance(record, WITH_TIME) else None
        return [change for reading in readings for change in self._judge(reading, run, step, time)]

    def _break(self, error: Exception) -> None:
        self.broken = f"{type(error).__name__}: {error}"
        self.changes += 1

    @property
    def takes_now(self) -> bool:
        """Whether rows of a block may be taken by the run before this one was shown them."""
        if self.broken is not None or self.detector.loops_alone:
            return True
        return self._fires_as_declared if self.active else self.takes_blocks

    @property
    def _fires_as_declared(self) -> bool:
        """Whether one alert fires, the one without a key, at the rule's severity (a warning at least) or above."""
        if type(self.detector).still_fires is Detector.still_fires:
            return False
        alert = self.alerts.get("", _IDLE)
        open_alerts = sum(each.state not in _AT_REST for each in self.alerts.values())
        least = max(self.rule.severity.rank, Severity.WARNING.rank)
        firing = alert.state is AlertState.FIRING and alert.severity.rank >= least
        return firing and open_alerts == 1

    def reach(self, block: Block, run: RunView) -> int:
        """How many rows of a block, from its first one on, need not be shown to the detector one by one."""
        if self.broken is not None or self.detector.loops_alone:
            return len(block)
        if self.behind not in {None, run.rows}:
            return 0
        try:
            return (self.detector.still_fires if self.active else self.detector.could_speak)(block, run)
        except Exception:  # noqa: BLE001 - it breaks at the row that it is shown then
            return 0

    def shown_alone(self, block: Block, run: RunView) -> bool:
        """Whether the detector is shown the rows of a block, one by one, while the run takes all of them at once."""
        if self.broken is not None or not self.detector.loops_alone:
            return False
        try:
            return self.active or not self.looks_ahead or self.detector.could_speak(block, run) < len(block)
        except Exception:  # noqa: BLE001 - it breaks at the row that it is shown then
            return True

    def absorb(self, block: Block, run: RunView) -> bool:
        """Let the detector take the rows of a block that ``reach`` allowed; False: they broke it."""
        self.quiet_rows = 0
        self.behind = None if self.behind is None else run.rows + len(block)
        try:
            answer = self.detector.absorb(block, run)
        except Exception as error:  # noqa: BLE001 - as in ``observe``
            self._break(error)
            return False
        self.detector.quiet_while = None  # what it promised was about the rows before
        if self.active:
            self.alerts[""] = going_on(self.alerts[""], block.steps[-1], len(block))
            self.changes += 1
        elif answer is QUIET:
            self.changes += not self.evaluated
            self.evaluated = self.at_rest = True
        return True

    def look_back(self, run: RunView) -> Bounds | None:
        """Show the sleeping detector what it slept through; its promise from now on (None: it must wake)."""
        try:
            self._catch_up(run, here=False)
        except Exception:  # noqa: BLE001 - it breaks at the row that it is shown next
            self.behind = 0
            return None
        if self.detector.quiet_while is not None:
            self.promised = frozenset(self.detector.quiet_while)
        return self.detector.quiet_while

    def _catch_up(self, run: RunView, *, here: bool) -> None:
        """Show the detector the rows that it slept through; ``here``: the run's newest row is not one of them."""
        missed = run.rows - here - (self.behind or 0)
        self.behind = run.rows
        if missed:
            telling = run.recent.carrying(self.promised, here, here + missed)
            for row in reversed(list(islice(telling, self.detector.looks_back))):
                self.ask(row, run)

    def _judge(self, reading: Reading, run: MonitoredRun, step: int, time: float | None) -> Iterator[Transition]:
        if reading.verdict is Verdict.NO_DATA:
            self.changes += self.reason != reading.message
            self.reason = reading.message
            return
        if run.guesses.metrics:
            reading = run.guesses.capped(reading, self.rule.severity, self.detector, run.trend)
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
        if changed:  # else its episode shows what it did
            self._keep(key, after, begins=before.state is not AlertState.FIRING)
        if changed:
            self.active = any(alert.state not in _AT_REST for alert in self.alerts.values())
            self.at_rest = not self.active
            yield self._transition(run.run, key, before.state, after, at, time)

    def _transition(
        self, run: str, key: str, before: AlertState, alert: Alert, step: int, time: float | None
    ) -> Transition:
        return Transition(
            id=transition_id(run, self.rule.name, key, alert, alert.state),
            run=run,
            attempt=alert.attempt,
            rule=self.rule.name,
            key=key,
            episode=alert.episode,
            from_state=before,
            to_state=alert.state,
            step=step,
            first_step=alert.first_step,
            severity=alert.severity,
            time=time,
            reading=alert.reading,
        )

    def _keep(self, key: str, alert: Alert, *, begins: bool) -> None:
        """Mirror an alert that fires, or fired, into its episode."""
        if alert.fired_step is None:
            return
        episode = Episode(
            key, alert.attempt, alert.first_step, alert.fired_step, alert.resolved_step, alert.severity, alert.reading
        )
        if begins and alert.state is AlertState.FIRING:
            self.episodes.append(episode)
            return
        for index in range(len(self.episodes) - 1, -1, -1):
            if self.episodes[index].key == key:
                self.episodes[index] = episode
                return

    @property
    def firing(self) -> bool:
        """Whether any alert of this rule fires."""
        return self.active and any(alert.state is AlertState.FIRING for alert in self.alerts.values())


_AT_REST = (AlertState.INACTIVE, AlertState.RESOLVED)
