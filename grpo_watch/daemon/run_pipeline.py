"""Feeds one run's pipeline, and collects what of that must be stored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from grpo_watch.daemon.run_detail import RunDetail, RunDetailRecorder
from grpo_watch.engine.alerts import Alert
from grpo_watch.engine.groups import without_texts
from grpo_watch.engine.records import (
    AlertState,
    ChannelOpened,
    CompletionSummary,
    Cursor,
    EventKind,
    Item,
    RawRow,
    RunConfig,
    RunEvent,
    Stream,
    Tick,
    Transition,
)
from grpo_watch.engine.rule_views import RuleViews
from grpo_watch.engine.run_state import RunState
from grpo_watch.engine.snapshot import RunSnapshot, moved_by_time
from grpo_watch.notify.notifications import NotificationContext
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.report.sparklines import Sparkline
from grpo_watch.rules.rule_changes import Key, RuleSet, reconcile
from grpo_watch.store.codec import encode_item
from grpo_watch.store.state import StoredBatch

QUIET_ENDED = 3_600.0
"""Seconds without a write after which a run is over when it reached its last step, or when its end shows nowhere."""
QUIET_STALLED = 86_400.0
"""The same for a run that stopped short of its last step: it is reported as stalled (or crashed) first."""

log = logging.getLogger("grpo_watch.run")


class RunEnd:
    """The end of one run as its items show it; ``finished`` turns true with the end marker of its newest attempt."""

    def __init__(self) -> None:
        self.finished = False
        self.written: float | None = None
        self._marked: RunEvent | None = None
        self._step = -1
        self._logged: float | None = None

    def take(self, item: Item) -> None:
        """Account for one item."""
        if isinstance(item, RunEvent):
            if item.kind is EventKind.FINISHED:
                self.finished, self._marked = True, item
            elif item.kind is EventKind.STARTED:
                self.finished, self._step = False, -1
        elif isinstance(item, RawRow) and item.stream is not Stream.EVAL:
            self.finished = self.finished and not self._goes_on(item)
            self._step = max(self._step, -1 if item.step is None else item.step)
            if item.time is not None:
                self._logged = max(item.time, self._logged or item.time)

    def _goes_on(self, row: RawRow) -> bool:
        """Whether a row after the end marker is of a job that goes on; a slower channel may still bring what was."""
        mark = self._marked
        if mark is None or row.channel == mark.channel or row.segment > mark.segment:
            return True
        return row.step is not None and row.step > self._step

    def touch(self, moment: float) -> None:
        """Something was written at ``moment`` (Unix seconds)."""
        self.written = max(moment, self.written or moment)

    def date_by_steps(self) -> None:
        """Take the time of the newest step for that of the last write: a copy's files are younger than the run."""
        if self._logged is not None and self.written is not None:
            self.written = min(self.written, self._logged)

    def over(self, now: float, *, crashed: bool, short: bool, shows_end: bool) -> bool:
        """Whether the run is over.

        Args:
            now: Unix seconds.
            crashed: whether the crash of the newest attempt was found.
            short: whether the newest step is before the last one planned.
            shows_end: whether the end of the run shows in a channel.
        """
        if self.finished or crashed:
            return True
        limit = QUIET_STALLED if short and shows_end else QUIET_ENDED
        return self.written is not None and now - self.written > limit


class RunPipeline:
    """The judgement of one run: its pipeline, what its page shows, and whether it continues.

    ``failures`` counts items that could not be judged; ``announced`` are the channels and settings known so far.

    Args:
        name: the run's name.
        rules: the rules in force.
        labels: the user's, by which rules may differ.
        now: Unix seconds.
        backlog: whether the first transitions happened before the watch began.
    """

    def __init__(self, name: str, rules: RuleSet, labels: Mapping[str, str], now: float, *, backlog: bool) -> None:
        self.name = name
        self._recorder = RunDetailRecorder()
        self._pipeline = Pipeline(name, rules.rules, rules.detectors, labels, self._recorder.observe)
        self._end = RunEnd()
        self.failures = 0
        self.announced: list[Item] = []
        self._batch = StoredBatch(name, now, backlog=backlog)
        self._rules, self._labels = rules, labels
        self._snapshot: RunSnapshot | None = None
        self._views = RuleViews()
        self._changes = 0
        self._shown: tuple[int, Mapping[str, str]] | None = None

    @property
    def state(self) -> RunState:
        """The run as the engine sees it."""
        return self._pipeline.state

    @property
    def conflicts(self) -> Mapping[str, int]:
        """How many values of each channel contradict a better channel's."""
        return self._pipeline.channels.conflicts

    @property
    def detail(self) -> RunDetail:
        """What the run's page shows beyond the snapshot; any thread may ask."""
        return replace(self._recorder.detail(), keys=self._pipeline.own_keys)

    @property
    def sparks(self) -> Mapping[str, Sparkline]:
        """The run's sparklines; any thread may ask."""
        return self._recorder.sparks()

    @property
    def written(self) -> float | None:
        """When the run was last written to, as far as is known (Unix seconds)."""
        return self._end.written

    @property
    def has_news(self) -> bool:
        """Whether there is anything to store."""
        return bool(self._batch.items or self._batch.transitions)

    @property
    def has_items(self) -> bool:
        """Whether there are items to store."""
        return bool(self._batch.items)

    @property
    def has_rows_only(self) -> bool:
        """Whether there are only items to store, and no alert changed."""
        batch = self._batch
        return not (batch.transitions or batch.alerts or batch.backlog or batch.fingerprints is not None)

    def alerts(self, rule: str | None = None) -> dict[Key, Alert]:
        """The run's alerts (of one rule) by rule and key."""
        monitors = (monitor for monitor in self.state.monitors if rule is None or monitor.rule.name == rule)
        return {(monitor.rule.name, key): alert for monitor in monitors for key, alert in monitor.alerts.items()}

    def context(self, at: float, page: str, runbook: str) -> NotificationContext:
        """The context of notifications about this run, see there."""
        summaries = {rule.name: rule.summary for rule in self._pipeline.rules}
        return NotificationContext(self.snapshot(), self._recorder.history, at, self._labels, page, summaries, runbook)

    def announce(self, open_channels: Callable[[Pipeline], Iterable[Item]]) -> None:
        """Feed the items that announce channels being opened, where they are news."""
        for item in open_channels(self._pipeline):
            if item not in self.announced:
                self.feed(item)

    def touch(self, moment: float) -> None:
        """The run was written to at ``moment`` (Unix seconds)."""
        self._end.touch(moment)

    def date_by_steps(self) -> None:
        """See ``RunEnd``."""
        self._end.date_by_steps()

    def trusts(self, channel: str) -> bool:
        """Whether a channel may give rows: not where it contradicts the others as another job's would."""
        return self._pipeline.trusts(channel)

    def elect(self, now: float, *, ended: bool = False) -> None:
        """Elect other channels as long as that is due at ``now`` (Unix seconds), or as the run has ended."""
        for election in self._pipeline.elections(now, ended=ended):
            self.feed(election)

    def tick(self, tick: Tick, *, ended: bool = False) -> None:
        """Elect another channel where that is due, then take the time."""
        self.elect(tick.now, ended=ended)
        self.feed(tick)

    def feed(self, item: Item) -> None:
        """Take an item; one that raises is passed over."""
        before = moved_by_time(self.state) if isinstance(item, Tick) else None
        try:
            transitions = self._pipeline.feed(item)
        except Exception:  # one odd item must not end the watch of all runs
            self.failures += 1
            self._changes += 1
            log.exception("skipped an item that could not be judged", extra={"fields": {"run": self.name}})
            return
        self._note(item)
        self._changes += before is None or moved_by_time(self.state) != before
        if transitions or not isinstance(item, Tick):
            self._batch.items.append(encode_item(_as_stored(item)))
        self._collect(transitions)

    def feed_event(self, event: RunEvent) -> None:
        """Take an event that is not stored; the transitions that it causes are."""
        self._changes += 1
        self._collect(self._pipeline.feed(event))

    def rebuild(self, item: Item) -> None:
        """Take an item that is stored; the transitions that it causes are stored, too."""
        self._changes += 1
        self._pipeline.feed(item)
        self._note(item)

    def settle(self, loaded: Mapping[Key, Alert], fingerprints: Mapping[str, str]) -> None:
        """Continue from the stored alerts of rules with these fingerprints; changed rules may make transitions."""
        state = self.state
        monitors = {monitor.rule.name: monitor for monitor in state.monitors}
        settled = reconcile(self.name, loaded, self.alerts(), self._rules, state.step)
        for (rule, key), alert in settled.alerts.items():
            if rule in monitors:
                monitors[rule].load(key, alert)
        self._changes += 1
        if fingerprints != self._rules.fingerprints:
            self._batch.fingerprints = self._rules.fingerprints
        self._batch.alerts |= {key: alert for key, alert in settled.alerts.items() if alert != loaded.get(key)}
        self._batch.transitions += settled.transitions

    def set_cursors(self, cursors: Mapping[str, Cursor]) -> None:
        """Store these cursors with the batch; they cover exactly the items fed so far."""
        self._batch.cursors = dict(cursors)

    def discard_transitions(self) -> None:
        """Store no transition of the items fed since the last batch: the stored alerts already hold them."""
        self._batch.transitions.clear()
        self._batch.alerts.clear()

    def hand_over(self, now: float, *, first_pass: bool = False) -> StoredBatch:
        """What to store since the last call, with a snapshot. In the first pass the next is backlog too."""
        batch = self._batch
        self._batch = StoredBatch(self.name, now, backlog=first_pass and batch.backlog)
        batch.at, batch.snapshot = now, self.snapshot()
        return batch

    def snapshot(self) -> RunSnapshot:
        """A snapshot of the run now; the same object as before when nothing changed.

        It is made only after something may have changed: at most turns, most of hundreds of runs are as they were.
        """
        now = (self._changes, self.state.refused)
        if self._snapshot is None or now != self._shown:
            self._shown, snapshot = now, self._pipeline.snapshot(self._views)
            if snapshot != self._snapshot:
                self._snapshot = snapshot
        return self._snapshot

    def over(self, now: float) -> bool:
        """Whether the run has ended, as far as it shows."""
        state = self.state
        crashed = any(
            alert.state is AlertState.FIRING and alert.attempt == state.attempt
            for monitor in state.monitors
            if monitor.alerts and monitor.detector.ends_run
            for alert in monitor.alerts.values()
        )
        short = state.max_steps is not None and state.step < state.max_steps
        return self._end.over(now, crashed=crashed, short=short, shows_end=state.shows_end)

    def _collect(self, transitions: Sequence[Transition]) -> None:
        """Collect changes of alerts to be stored."""
        if transitions:
            alerts = self.alerts()
            self._batch.alerts |= {(each.rule, each.key): alerts[each.rule, each.key] for each in transitions}
            self._batch.transitions += transitions

    def _note(self, item: Item) -> None:
        """Note what a fed item says of the run's channels and its end."""
        self._end.take(item)
        if isinstance(item, (ChannelOpened, RunConfig)):
            self.announced.append(item)


def _as_stored(item: Item) -> Item:
    """Texts that the page may show are not stored with the rows."""
    if isinstance(item, CompletionSummary):
        groups = without_texts(item.groups)
        return item if groups is item.groups else replace(item, groups=groups)
    return item
