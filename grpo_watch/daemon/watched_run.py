"""Watches one run: rebuilds it from the store, reads what it holds by then, and continues with it turn by turn."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from grpo_watch.daemon.run_detail import RunDetail, RunDetailRecorder
from grpo_watch.daemon.run_end import RunEnd
from grpo_watch.daemon.run_reader import SLICE, RunReader, WatchOptions, newest_write
from grpo_watch.daemon.schedule import SECOND, Intervals, Rest
from grpo_watch.daemon.state_writer import StateWriter
from grpo_watch.detectors.watcher.events import RULE_FILES
from grpo_watch.engine.alerts import Alert
from grpo_watch.engine.groups import without_texts
from grpo_watch.engine.records import (
    Activity,
    AlertState,
    ChannelOpened,
    CompletionSummary,
    EventKind,
    Item,
    RunConfig,
    RunEvent,
    Tick,
    Transition,
)
from grpo_watch.engine.snapshot import RunSnapshot, moved_by_time
from grpo_watch.notify.notifications import NotificationContext
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.rules.rule_changes import Key, RuleSet, reconcile
from grpo_watch.sources.deferred import Submit
from grpo_watch.sources.discovery.discover import FoundRun
from grpo_watch.store.codec import encode_item
from grpo_watch.store.state import StoredBatch, StoreError

CURSOR_SECONDS = 5.0
"""How often a cursor is stored that moved without giving an item."""
ACTIVITY_SECONDS = 15.0
"""How often it is noted that a log grows without giving an item."""
JUST_AFTER = 0.1
"""A tick is given so many seconds after a silence became too long, when it is so whatever the rounding."""

log = logging.getLogger("grpo_watch.run")


class WatchedRun:
    """One run that is being read: its channels, its pipeline, and what of it is to be stored and shown.

    ``turn`` works for a slice and is called again at once while it answers True; ``batch`` hands over what is to be
    stored. The first turns rebuild the run from the store and read what its files hold by then (``ready`` after that).
    ``failures`` counts items that could not be judged.

    Args:
        name: the run's name, which never changes.
        found: what discovery found.
        options: the user's settings of the run.
        now: Unix seconds.
        rules: the rules in force.
        state_writer: what is stored.
        submit: runs heavy work elsewhere.
        grown: whether its files were seen to grow since it was read before: then their times count, not those of its
            steps.
    """

    def __init__(  # noqa: PLR0913  what it is connected to
        self,
        name: str,
        found: FoundRun,
        options: WatchOptions,
        now: float,
        *,
        rules: RuleSet,
        state_writer: StateWriter,
        submit: Submit,
        grown: bool = False,
    ) -> None:
        self.name, self.options = name, options
        self.ready, self._grown = False, grown
        self.restored = False
        """Whether it is as it was stored, with nothing new read, and does not look ended."""
        self.failures = 0
        self._rules, self._state_writer = rules, state_writer
        self._looked = self._known = state_writer.looked(name)
        self._restart(now)
        self.reader = RunReader(found, options, lambda: state_writer.cursors(name), submit)
        self.urgent = self._has_news(found)
        """Whether an alert of it fired when the watch began and something was written since; not while it waits."""
        self._cursors_at = self._active_at = now
        self._ticked_at = 0.0
        self._growth: dict[str, float] = {}
        """When logs grew last that gave no item since, by channel (Unix seconds)."""
        self._rest = Rest(now)
        self._safe = True
        self._more = False
        self._rules_problem = ""
        self._work: Iterator[bool] | None = self._begin(now)

    def _restart(self, now: float) -> None:
        """Know nothing of the run."""
        self.recorder, self.end = RunDetailRecorder(), RunEnd()
        labels = self.options.labels
        self.pipeline = Pipeline(self.name, self._rules.rules, self._rules.detectors, labels, self.recorder.observe)
        self._announced: list[Item] = []
        self._batch = StoredBatch(self.name, now, backlog=not self._looked)
        self._snapshot: RunSnapshot | None = None
        self._changes = 0
        self._moved: tuple[int, float | None] | None = None
        self._shown: tuple[int, Mapping[str, str]] | None = None

    # turns

    @property
    def is_due(self) -> bool:
        """Whether it needs a turn at once."""
        return not self.ready or self._more or self.reader.has_more

    def due_at(self, now: float, watched: Collection[Path], apart: Intervals) -> float:
        """When it needs its next turn (Unix seconds), if nothing is written in ``watched`` folders by then."""
        rests = self._rest.until(apart.read, watched=self.reader.lies_in(watched))
        lists = self.reader.lists_at(now, apart.listing)
        return min([rests, *self._alarms(), *([] if lists is None else [lists])])

    def _alarms(self) -> Iterator[float]:
        """When a silence that lasts becomes an alert, which no write tells (Unix seconds)."""
        for monitor in self.pipeline.state.readers(Tick(self._ticked_at)):
            at = monitor.detector.silent_too_long_at(self.pipeline.state)
            if at is not None and at > self._ticked_at:
                yield at + JUST_AFTER

    def turn(self, now: float, listing: float = SECOND) -> bool:
        """Work for a slice; whether there is more to do at once. ``listing``: seconds between listings of folders."""
        if self._work is not None:
            if self._safe:  # what the stored alerts rest on is read whole, however long that takes
                self.reader.hurry(now)
            more = next(self._work, None)
            if more is not None:
                self.urgent = self.urgent and more  # what another process works on holds up no other run
                return more
            self._work, self.ready = None, True
            return True
        taken = self.reader.read(now, self.feed, listing)
        if taken.items:
            self._growth.clear()  # a row says more
        self._growth |= dict.fromkeys(taken.grown, now)
        if taken.items or taken.grown:
            self.end.touch(now)
        self._rest.read(now, gave=taken.items > 0)
        self._more = taken.more
        return self._more

    def tick(self, now: float, *, least: float = 0.0, jumped: bool = False) -> None:
        """Give the pipeline the time (Unix seconds), if that was last done ``least`` seconds ago or more.

        ``jumped``: the clock jumped to it.
        """
        if self.ready and (jumped or abs(now - self._ticked_at) >= least) and not self._over(now):
            self._ticked_at = now
            self._note_growth(now, jumped=jumped)
            self._elect(now)
            self.feed(Tick(now))

    def set_problem(self, problem: str, now: float) -> None:
        """Set the problem of the rule files (empty: they load). Not stored: a replay ends it."""
        if self.ready and problem != self._rules_problem and not (problem and self._over(now)):
            self._rules_problem = problem
            self._changes += 1
            kind = EventKind.RULE_BROKEN if problem else EventKind.RULE_LOADED
            self._collect(self.pipeline.feed(RunEvent(RULE_FILES, kind, text=problem)))

    def feed(self, item: Item) -> None:
        """Take an item; one that raises is passed over."""
        try:
            transitions = self.pipeline.feed(item)
        except Exception:  # one odd item must not end the watch of all runs
            self.failures += 1
            self._changes += 1
            log.exception("skipped an item that could not be judged", extra={"fields": {"run": self.name}})
            return
        self._note(item)
        moved, before = moved_by_time(self.pipeline.state) if isinstance(item, Tick) else None, self._moved
        self._moved = moved or before
        self._changes += moved is None or moved != before
        if transitions or moved is None:
            self._batch.items.append(encode_item(_as_stored(item)))
        self._collect(transitions)

    def update(self, found: FoundRun) -> None:
        """Discovery looked again: open the channels that are new."""
        self.reader.found = found
        if self.ready:
            self._open()

    def batch(self, now: float, *, rows: bool = True) -> StoredBatch | None:
        """What to store since the last call; None when there is nothing, or nothing that agrees yet.

        ``rows``: also rows alone, that change no alert.
        """
        if self._looked and self._rows_only and not rows:
            return None
        moved = any(self.reader.touched()) and now - self._cursors_at >= CURSOR_SECONDS
        news = self._batch.items or self._batch.transitions or (self.ready and not self._looked)
        if not self._safe or not (news or moved):
            return None
        batch = self._batch
        self._batch = StoredBatch(self.name, now, backlog=not self.ready and batch.backlog)
        batch.at, batch.snapshot = now, self.snapshot()
        if self.ready:
            batch.looked = self._looked = True
        batch.cursors |= self.reader.cursors()
        self._cursors_at = now
        self.reader.stored()
        return batch

    @property
    def waits(self) -> bool:
        """Whether something of it is to be stored that ``batch`` did not hand over yet."""
        return bool(self._batch.items or self._batch.transitions or not self._looked or any(self.reader.touched()))

    def remainder(self, now: float) -> StoredBatch | None:
        """The rows that wait to be stored, when the run is let go; None where there is anything else as well."""
        return self.batch(now) if self._looked and self._rows_only else None

    def snapshot(self) -> RunSnapshot:
        """A snapshot of the run now; the same object as before when nothing changed.

        It is made only after something may have changed: at most turns, most of hundreds of runs are as they were.
        """
        now = (self._changes, self.pipeline.state.refused)
        if self._snapshot is None or now != self._shown:
            self._shown, snapshot = now, self.pipeline.snapshot()
            if snapshot != self._snapshot:
                self._snapshot = snapshot
        return self._snapshot

    def over(self, now: float) -> bool:
        """Whether the run has ended."""
        return self.ready and self._over(now)

    def was_live(self, since: float, now: float) -> bool:
        """Whether it continues, or is new to us and was written to after ``since`` (Unix seconds)."""
        return not self._over(now) or (not self._known and (self.end.written or now) >= since)

    @property
    def step(self) -> int:
        """The newest step."""
        return self.pipeline.state.step

    @property
    def detail(self) -> RunDetail:
        """What the run's page shows beyond the snapshot; any thread may ask."""
        return replace(self.recorder.detail(), keys=self.pipeline.assembler.resolver.own_keys)

    def alerts(self, rule: str | None = None) -> dict[Key, Alert]:
        """The run's alerts (of one rule) by rule and key."""
        monitors = (each for each in self.pipeline.state.monitors if rule is None or each.rule.name == rule)
        return {(monitor.rule.name, key): alert for monitor in monitors for key, alert in monitor.alerts.items()}

    def context(self, at: float, page: str, runbook: str) -> NotificationContext:
        """The context of notifications about this run, see there."""
        rules = {rule.name: rule for rule in self.pipeline.rules}
        history, labels = self.recorder.history, self.options.labels
        folder = "" if self.reader.found.remote else str(self.reader.found.root)
        return NotificationContext(self.snapshot(), history, at, labels, page, rules, runbook, folder=folder)

    def finish(self, now: float) -> None:
        """The input has ended: take what sources held back, and steps that only worse channels have."""
        self.reader.finish(self.feed)
        self._elect(now, ended=True)

    def _elect(self, now: float, *, ended: bool = False) -> None:
        """Elect other channels as long as that is due at ``now`` (Unix seconds), or as the run has ended."""
        for election in self.pipeline.elections(now, ended=ended):
            self.feed(election)

    def _over(self, now: float) -> bool:
        return self.options.ended() or self.end.over(now, self.pipeline.state)

    @property
    def _rows_only(self) -> bool:
        """Whether there are only items to store, and no alert changed."""
        batch = self._batch
        return not (batch.transitions or batch.alerts or batch.backlog or batch.fingerprints is not None)

    def _collect(self, transitions: Sequence[Transition]) -> None:
        """Collect changes of alerts to be stored."""
        if transitions:
            alerts = self.alerts()
            self._batch.alerts |= {(each.rule, each.key): alerts[each.rule, each.key] for each in transitions}
            self._batch.transitions += transitions

    def _note(self, item: Item) -> None:
        """Note what a fed item says of the run's channels and its end."""
        self.end.take(item)
        if isinstance(item, (ChannelOpened, RunConfig)):
            self._announced.append(item)

    def _note_growth(self, now: float, *, jumped: bool) -> None:
        """A log that grows without giving an item (an evaluation, a download) lives, and every log after a jump."""
        if jumped:
            self.end.touch(now)
            self._growth |= {source.name: now for source in self.reader.channels if source.kind is not None}
        elif now - self._active_at < ACTIVITY_SECONDS:
            return
        for channel, at in self._growth.items():
            self._active_at = now
            self.feed(Activity(channel, at))
        self._growth.clear()

    # the first turns

    def _has_news(self, found: FoundRun) -> bool:
        """Whether a stored alert fires, and a log has another length than the part of it that was read."""
        alerts = self._state_writer.alerts(self.name).values()
        if not any(alert.state is AlertState.FIRING for alert in alerts):
            return False
        cursors = self._state_writer.cursors(self.name)
        for channel in found.channels:
            cursor = cursors.get(channel.name)
            with suppress(OSError):
                if channel.path.is_file() and (cursor is None or channel.path.stat().st_size != cursor.position):
                    return True
        return False

    def _begin(self, now: float) -> Iterator[bool]:
        try:
            for number, item in enumerate(self.reader.as_set_now(self._state_writer.items(self.name)), 1):
                self._changes += 1
                self.pipeline.feed(item)  # the transitions that it causes are stored, too
                self._note(item)
                if number % SLICE == 0:
                    yield True
        except StoreError:
            log.exception("a stored run is damaged and read again", extra={"fields": {"run": self.name}})
            self._state_writer.forget(self.name)
            self._restart(now)
        if (self.reader.lacks or not self._announced) and self._state_writer.alerts(self.name):
            yield from self._read_again(now)
            return
        self._settle()
        if self._looked and self._state_writer.alerts(self.name):
            self.end.touch(newest_write(self.reader.found))
            self.restored = not self._over(now)
            yield True  # what a receiver missed is queued before anything new is read
        self._open()
        yield from self._first_pass(now)

    def _read_again(self, now: float) -> Iterator[bool]:
        """The stored alerts count until all that they rest on (damaged, archived, shown better elsewhere) was read."""
        self._open()
        for more in self._first_pass(now):
            self._safe = False
            yield more
        self._safe = True
        self._batch.transitions.clear()  # the stored alerts already hold them
        self._batch.alerts.clear()
        self._settle()

    def _settle(self) -> None:
        """Continue from the stored alerts; rules that changed since may make transitions."""
        loaded, fingerprints = self._state_writer.alerts(self.name), self._state_writer.fingerprints(self.name)
        monitors = {monitor.rule.name: monitor for monitor in self.pipeline.state.monitors}
        settled = reconcile(self.name, loaded, self.alerts(), self._rules, self.step)
        for (rule, key), alert in settled.alerts.items():
            if rule in monitors:
                monitors[rule].load(key, alert)
        self._changes += 1
        if fingerprints != self._rules.fingerprints:
            self._batch.fingerprints = self._rules.fingerprints
        self._batch.alerts |= {key: alert for key, alert in settled.alerts.items() if alert != loaded.get(key)}
        self._batch.transitions += settled.transitions

    def _open(self) -> None:
        """Open the channels that are not open yet, and announce those that are news."""
        for item in self.reader.open(self.pipeline):
            if item not in self._announced:
                self.feed(item)

    def _first_pass(self, now: float) -> Iterator[bool]:
        """Read what is there by now. It was written by the time of the newest file, and is taken as seen then."""
        written = self.reader.written()
        self.end.touch(now if written is None else written)
        self.reader.begin(min(now, self.end.written or now), now)
        while not (taken := self.reader.read(now, self.feed)).ended:
            yield taken.more
        if not self._grown:
            self.end.date_by_steps()
        over = self._over(now)
        self._elect(now, ended=over)
        self.feed(Tick(now, live=not over))


def _as_stored(item: Item) -> Item:
    """Texts that the page may show are not stored with the rows."""
    return replace(item, groups=without_texts(item.groups)) if isinstance(item, CompletionSummary) else item
