"""One run of the daemon: read turn by turn, stored and shown, and closed once it is over."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from grpo_watch.daemon.run_detail import (
    NOTHING,
    RunDetail,
    RunDetailRecorder,
    pack,
    statuses,
    unpack,
    unpack_sparks,
)
from grpo_watch.daemon.run_end import RunEnd, RunLife
from grpo_watch.daemon.run_reader import RunReader, WatchOptions
from grpo_watch.daemon.schedule import SECOND, Intervals, Rest
from grpo_watch.daemon.state_writer import StateWriter
from grpo_watch.detectors.watcher.events import RULE_FILES
from grpo_watch.engine.alerts import Alert
from grpo_watch.engine.record_parts import without_texts
from grpo_watch.engine.records import (
    Activity,
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
from grpo_watch.metrics.daemon_snapshot import ChannelStatus, RunOverview
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.report.charts import Sparkline
from grpo_watch.rules.rule_changes import Key, RuleSet
from grpo_watch.sources.base import Submit
from grpo_watch.sources.discovery.discover import FoundRun, newest_write
from grpo_watch.store.codec import encode_item
from grpo_watch.store.state import StoredBatch, slug

CURSOR_SECONDS = 5.0
"""Seconds between two stores of a cursor that moved without giving an item."""
ACTIVITY_SECONDS = 15.0
"""Seconds between two notes that a log grows without giving an item."""
JUST_AFTER = 0.1
"""Seconds between a silence becoming too long and the tick that notices it, to be safe from rounding."""

log = logging.getLogger("grpo_watch.run")


class WatchedRun:
    """One run of the daemon from its first sight on; while its files are read, with its channels and its pipeline.

    ``turn`` works for a slice and is called again at once while it returns True; ``batch`` returns the changes to
    store. The first turns rebuild the run from the store and read its files to their current end; then it is ``ready``.

    Args:
        name: the run's name, which never changes.
        number: its place in the order of first sight.
        state_writer: access to the store.
        submit: runs heavy work in another process.
    """

    reader: RunReader
    pipeline: Pipeline
    end: RunEnd

    def __init__(self, name: str, number: int, state_writer: StateWriter, submit: Submit) -> None:
        self.name, self.number, self.state_writer, self._submit = name, number, state_writer, submit
        self.found: FoundRun | None = None
        self.options = WatchOptions()
        self.life = RunLife()
        self.shown: RunSnapshot | None = None
        """The snapshot on show; None if nothing is shown (any more)."""
        self.history: bytes | None = None
        """A packed run detail, made when the run ended …"""
        self.past = False
        """… and whether that was so long ago that only the page shows it."""
        self.written, self.channels = 0.0, tuple[ChannelStatus, ...]()
        """The newest write (Unix seconds) and the channels' status when the run began to be read or was closed."""
        self.begun = 0
        """How often reading began."""
        self.is_read = self.ready = self.reported = False
        """Whether its files are being read; whether their first content was read; whether it was reported."""
        self.counted = NOTHING
        self.recorder = RunDetailRecorder()
        self._overview: RunOverview | None = None
        self._seen: tuple[object, ...] = ()

    # reading and closing

    def begin(self, found: FoundRun, rules: RuleSet, now: float, work: Iterator[bool], *, urgent: bool = False) -> None:
        """Begin to read its files, from its stored state on (see ``first_turns.begin``).

        ``work`` are the first turns, each of which yields whether there is more to do at once. ``urgent``: a stored
        alert fires and the run was written to since.
        """
        self.found, self.rules, self.urgent = found, rules, urgent
        self.written = newest_write(found)
        self.begun += 1
        self.ready = self.restored = False
        """``restored``: the run is as stored, with nothing new read, and does not look ended."""
        self.failures = 0
        """Items that raised an error when judged."""
        self.looked = self._known = self.state_writer.looked(self.name)
        self.forget(now)
        self.reader = RunReader(found, self.options, lambda: self.state_writer.cursors(self.name), self._submit)
        self._cursors_at = self._active_at = now
        self._ticked_at = 0.0
        self._growth: dict[str, float] = {}
        """When logs last grew without giving an item since, by channel (Unix seconds)."""
        self.rest = Rest(now)
        self.safe = True
        """False while the run is re-read and its alerts rest on less than the stored ones."""
        self._more = False
        self._rules_problem = ""
        self._work: Iterator[bool] | None = work
        self.is_read = True

    def forget(self, now: float) -> None:
        """Reset the run to its state before anything was read."""
        self.end, self.recorder = RunEnd(), RunDetailRecorder()
        labels = self.options.labels
        self.pipeline = Pipeline(self.name, self.rules.rules, self.rules.detectors, labels, self.recorder.observe)
        self.recorder.resolver = self.pipeline.assembler.resolver
        self.announced: list[Item] = []
        self.unstored = StoredBatch(self.name, now, backlog=not self.looked)
        self._snapshot: RunSnapshot | None = None
        self._changes = 0
        self._moved: tuple[int, float | None] | None = None
        self._snapshot_of: tuple[int, Mapping[str, str]] | None = None

    def let_go(self, now: float) -> None:
        """Stop reading: store waiting changes, close the files and drop the windows."""
        self.written = newest_write(self.found) if self.found is not None else 0.0
        self.channels = tuple(replace(status, read_at=None) for status in statuses(self.reader))
        self.close(now)
        self.keep_end(now)
        self.is_read = self.ready = False
        self.recorder = RunDetailRecorder()
        del self.reader, self.pipeline, self.end, self._work

    def close(self, now: float) -> None:
        """Close the files; stores waiting rows, but no changes of alerts."""
        left = self.batch(now) if self.looked and self._rows_only else None
        self.state_writer.commit([left] if left is not None else [], now)
        self.counted = NOTHING
        self.reader.close()

    def keep_end(self, now: float) -> None:
        """Store the end of the run and its detail; if the run was not read completely, the detail already stored."""
        stored = None if self.ready else self.state_writer.history(self.name)
        self.history = stored or pack(self.detail())
        self.state_writer.commit([StoredBatch(self.name, now, history=self.history, ended=self.life.ended)], now)

    # showing

    def detail(self) -> RunDetail:
        """The current detail, or the one stored at its end if the run is no longer read."""
        recorder = self.recorder  # the engine may close the run meanwhile
        return recorder.detail() if self.is_read else unpack(self.history)

    def sparks(self) -> Mapping[str, Sparkline]:
        """Its sparklines."""
        recorder = self.recorder
        return recorder.sparks() if self.is_read else unpack_sparks(self.history)

    def overview(self) -> RunOverview | None:
        """The run as receivers and pages see it, the same object while nothing changed; None if it is not shown."""
        if self.shown is None:
            return None
        reads = self.reader.reads if self.is_read else -1
        seen = (self.begun, reads, self.life.ended, self.channels, self.options.labels)
        if self._overview is None or self._overview.snapshot is not self.shown or self._seen != seen:
            self._seen = seen
            local = self.found if self.found is not None and not self.found.remote else None
            self._overview = RunOverview(
                snapshot=self.shown,
                slug=slug(self.name),
                active=self.life.ended is None,
                ended=self.life.ended,
                lost=self.life.lost,
                labels=self.options.labels,
                channels=statuses(self.reader) if self.is_read else self.channels,
                folder=None if local is None else local.home or local.root,
            )
        return self._overview

    # turns

    @property
    def is_due(self) -> bool:
        """Whether it needs a turn at once."""
        return not self.ready or self._more or self.reader.has_more

    def due_at(self, now: float, watched: Collection[Path], apart: Intervals) -> float:
        """When it needs its next turn (Unix seconds) if nothing is written in ``watched`` folders by then."""
        rests = self.rest.until(apart.read, watched=self.reader.lies_in(watched))
        lists = self.reader.lists_at(now, apart.listing)
        return min([rests, *self._alarms(), *([] if lists is None else [lists])])

    def _alarms(self) -> Iterator[float]:
        """When a lasting silence becomes an alert, which no write announces (Unix seconds)."""
        for monitor in self.pipeline.state.readers(Tick(self._ticked_at)):
            at = monitor.detector.silent_too_long_at(self.pipeline.state)
            if at is not None and at > self._ticked_at:
                yield at + JUST_AFTER

    def turn(self, now: float, listing: float = SECOND) -> bool:
        """Work for a slice; returns whether there is more to do. ``listing``: seconds between listings of folders."""
        if self._work is not None:
            if self.safe:  # the basis of the stored alerts is read completely, however long that takes
                self.reader.hurry(now)
            more = next(self._work, None)
            if more is not None:
                self.urgent = self.urgent and more  # work in another process must not hold up other runs
                return more
            self._work, self.ready = None, True
            return True
        taken = self.reader.read(now, self.feed, listing)
        if taken.items:
            self._growth.clear()  # a row is better evidence
        self._growth |= dict.fromkeys(taken.grown, now)
        if taken.items or taken.grown:
            self.end.touch(now)
        self.rest.read(now, gave=taken.items > 0)
        self._more = taken.more
        return self._more

    def tick(self, now: float, *, least: float = 0.0, jumped: bool = False) -> None:
        """Feed the pipeline a tick (Unix seconds), if the last one is at least ``least`` seconds old.

        ``jumped``: the clock jumped to it.
        """
        if self.ready and (jumped or abs(now - self._ticked_at) >= least) and not self.is_over(now):
            self._ticked_at = now
            self._note_growth(now, jumped=jumped)
            self.elect(now)
            self.feed(Tick(now))

    def set_problem(self, problem: str, now: float) -> None:
        """Set the problem of the rule files (empty: they load). It is not stored: a replay ends it."""
        if self.ready and problem != self._rules_problem and not (problem and self.is_over(now)):
            self._rules_problem = problem
            self._changes += 1
            kind = EventKind.RULE_BROKEN if problem else EventKind.RULE_LOADED
            self._collect(self.pipeline.feed(RunEvent(RULE_FILES, kind, text=problem)))

    def feed(self, item: Item) -> None:
        """Feed an item to the pipeline; logs and skips an item that raises."""
        try:
            transitions = self.pipeline.feed(item)
        except Exception:  # one odd item must not end the monitoring of all runs
            self.failures += 1
            self._changes += 1
            log.exception("skipped an item that could not be judged", extra={"fields": {"run": self.name}})
            return
        self._note(item)
        moved, before = moved_by_time(self.pipeline.state) if isinstance(item, Tick) else None, self._moved
        self._moved = moved or before
        self._changes += moved is None or moved != before
        if transitions or moved is None:
            self.unstored.items.append(encode_item(_as_stored(item)))
        self._collect(transitions)

    def replay(self, item: Item) -> None:
        """Feed a stored item; the transitions it causes are stored already."""
        self._changes += 1
        self.pipeline.feed(item)
        self._note(item)

    def load(self, alerts: Mapping[Key, Alert]) -> None:
        """Load stored alerts."""
        self._changes += 1
        monitors = {monitor.rule.name: monitor for monitor in self.pipeline.state.monitors}
        for (rule, key), alert in alerts.items():
            if rule in monitors:
                monitors[rule].load(key, alert)

    def update(self, found: FoundRun) -> None:
        """Take a new result of discovery and open the new channels."""
        self.found = self.reader.found = found
        if self.ready:
            self.open()
        else:
            self.written = newest_write(found)

    def open(self) -> None:
        """Open the channels that are not open yet, and feed the announcements that are new."""
        for item in self.reader.open(self.pipeline):
            if item not in self.announced:
                self.feed(item)

    def batch(self, now: float, *, rows: bool = True) -> StoredBatch | None:
        """The changes to store since the last call; None if there are none, or alerts rest on incomplete data.

        ``rows``: also return rows that changed no alert.
        """
        if self.looked and self._rows_only and not rows:
            return None
        moved = any(self.reader.touched()) and now - self._cursors_at >= CURSOR_SECONDS
        news = self.unstored.items or self.unstored.transitions or (self.ready and not self.looked)
        if not self.safe or not (news or moved):
            return None
        batch = self.unstored
        self.unstored = StoredBatch(self.name, now, backlog=not self.ready and batch.backlog)
        batch.at, batch.snapshot = now, self.snapshot()
        if self.ready:
            batch.looked = self.looked = True
        batch.cursors |= self.reader.cursors()
        self._cursors_at = now
        self.reader.stored()
        return batch

    @property
    def waits(self) -> bool:
        """Whether changes wait that ``batch`` has not returned yet."""
        return bool(self.unstored.items or self.unstored.transitions or not self.looked or any(self.reader.touched()))

    def snapshot(self) -> RunSnapshot:
        """The current snapshot; the same object as before if nothing changed.

        It is made only after a possible change: in most turns most of hundreds of runs are unchanged.
        """
        now = (self._changes, self.pipeline.state.refused)
        if self._snapshot is None or now != self._snapshot_of:
            self._snapshot_of, snapshot = now, self.pipeline.snapshot()
            if snapshot != self._snapshot:
                self._snapshot = snapshot
        return self._snapshot

    def was_live(self, since: float, now: float) -> bool:
        """Whether it continues, or is new to this state and was written to after ``since`` (Unix seconds)."""
        return not self.is_over(now) or (not self._known and (self.end.written or now) >= since)

    @property
    def step(self) -> int:
        """The newest step."""
        return self.pipeline.state.step

    def alerts(self, rule: str | None = None) -> dict[Key, Alert]:
        """The run's alerts, or those of one rule, by rule and key."""
        monitors = (each for each in self.pipeline.state.monitors if rule is None or each.rule.name == rule)
        return {(monitor.rule.name, key): alert for monitor in monitors for key, alert in monitor.alerts.items()}

    def finish(self, now: float) -> None:
        """At the end of the input, feed held-back items, and steps that only less trusted channels have."""
        self.reader.finish(self.feed)
        self.elect(now, ended=True)

    def elect(self, now: float, *, ended: bool = False) -> None:
        """Elect other channels if that is due at ``now`` (Unix seconds), or because the run has ended."""
        for election in self.pipeline.elections(now, ended=ended):
            self.feed(election)

    def is_over(self, now: float) -> bool:
        """Whether it looks ended; before it is ready that may change."""
        return self.options.ended() or self.end.over(now, self.pipeline.state)

    @property
    def _rows_only(self) -> bool:
        """Whether only items, and no changes of alerts, are to be stored."""
        batch = self.unstored
        return not (batch.transitions or batch.alerts or batch.backlog or batch.fingerprints is not None)

    def _collect(self, transitions: Sequence[Transition]) -> None:
        if transitions:
            alerts = self.alerts()
            self.unstored.alerts |= {(each.rule, each.key): alerts[each.rule, each.key] for each in transitions}
            self.unstored.transitions += transitions

    def _note(self, item: Item) -> None:
        """Note what a fed item shows about the run's channels and end."""
        self.end.take(item)
        if isinstance(item, (ChannelOpened, RunConfig)):
            self.announced.append(item)

    def _note_growth(self, now: float, *, jumped: bool) -> None:
        """Feed ``Activity`` for logs that grow without giving an item (an evaluation), for all logs after a jump."""
        if jumped:
            self.end.touch(now)
            self._growth |= {source.name: now for source in self.reader.channels if source.kind is not None}
        elif now - self._active_at < ACTIVITY_SECONDS:
            return
        for channel, at in self._growth.items():
            self._active_at = now
            self.feed(Activity(channel, at))
        self._growth.clear()


def _as_stored(item: Item) -> Item:
    """The item without the texts that the page may show, which are not stored."""
    return replace(item, groups=without_texts(item.groups)) if isinstance(item, CompletionSummary) else item
