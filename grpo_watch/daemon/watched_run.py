"""Watches one run: rebuilds it from the store, reads what it holds by then, and continues with it turn by turn."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grpo_watch.daemon.run_detail import RunDetail
from grpo_watch.daemon.run_pipeline import RunPipeline
from grpo_watch.daemon.run_reader import SLICE, RunReader, WatchOptions, newest_write
from grpo_watch.daemon.schedule import SECOND, Rest
from grpo_watch.daemon.state_writer import StateWriter
from grpo_watch.detectors.watcher.rule_broken import RULE_FILES
from grpo_watch.engine.alerts import Alert
from grpo_watch.engine.records import Activity, AlertState, Cursor, EventKind, RunEvent, Tick, Transition
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.notify.notifications import NotificationContext
from grpo_watch.report.sparklines import Sparkline
from grpo_watch.rules.rule_changes import Key, RuleSet
from grpo_watch.sources.deferred import Submit
from grpo_watch.sources.discovery.discover import FoundChannel, FoundRun
from grpo_watch.store.state import StoredBatch, StoreError

CURSOR_SECONDS = 5.0
"""How often a cursor is stored that moved without giving an item."""
ACTIVITY_SECONDS = 15.0
"""How often it is noted that a log grows without giving an item."""

log = logging.getLogger("grpo_watch.run")


@dataclass(frozen=True, slots=True)
class RunDependencies:
    """What a watch works with: the rules in force, what is stored, and where heavy work is done."""

    rules: RuleSet
    state_writer: StateWriter
    submit: Submit


class WatchedRun:
    """One run that is being read.

    ``turn`` works for a slice and is called again at once while it answers True; ``batch`` hands over what is to be
    stored. The first turns rebuild the run from the store and read what its files hold by then (``ready`` after that).

    Args:
        name: the run's name, which never changes.
        found: what discovery found.
        dependencies: what it works with.
        options: the user's settings of the run.
        now: Unix seconds.
        grown: whether its files were seen to grow since it was read before: then their times count, not those of its
            steps.
    """

    def __init__(
        self,
        name: str,
        found: FoundRun,
        dependencies: RunDependencies,
        options: WatchOptions,
        now: float,
        *,
        grown: bool = False,
    ) -> None:
        self.name, self.options = name, options
        self.ready, self._grown = False, grown
        self.restored = False
        """Whether it is as it was stored, with nothing new read, and does not look ended."""
        self._rules, self._state_writer = dependencies.rules, dependencies.state_writer
        self._looked = self._known = dependencies.state_writer.looked(name)
        self._run_pipeline = self._new_pipeline(now)
        self.reader = RunReader(
            name, found, options, lambda: dependencies.state_writer.cursors(name), dependencies.submit
        )
        self.urgent = self._has_news(found)
        """Whether an alert of it fired when the watch began and something was written since; not while it waits."""
        self._cursors_at = self._active_at = now
        self._rest = Rest(now)
        self._safe = True
        self._awaits = True  # only reading begins what is awaited
        self._rules_problem = ""
        self._work: Iterator[bool] | None = self._begin(now)

    # turns

    def due(self, now: float, changed: Collection[Path], *, ticks: bool, least: float = 0.0) -> bool:
        """Whether it needs a turn: a run that has given nothing for a while gets fewer, unless its folder changed.

        ``least`` are seconds between two reads.
        """
        if not self.ready or self._rest.due(now, ticks=ticks, least=least) or (self._awaits and self.waiting):
            return True
        if changed:
            self.reader.note_changed(changed)
        return self.reader.lists_soon or (
            bool(changed) and any(source.path.parent in changed for source in self.reader.channels)
        )

    def turn(self, now: float, listing: float = SECOND) -> bool:
        """Work for a slice; whether there is more to do at once. ``listing``: seconds between listings of folders."""
        if self._work is not None:
            more = next(self._work, None)
            if more is not None:
                self.urgent = self.urgent and more  # what another process works on holds up no other run
                return more
            self._work, self.ready, self._awaits = None, True, True
            return True
        taken = self.reader.read(now, self._run_pipeline.feed, listing)
        if taken.items:
            self._run_pipeline.touch(now)
        self._rest.read(now, gave=taken.items > 0)
        self._awaits = self.waiting
        return taken.more

    def tick(self, now: float, *, jumped: bool = False) -> None:
        """Give the pipeline the time (Unix seconds); ``jumped``: the clock jumped to it."""
        if self.ready:
            self._note_growth(now, jumped=jumped)
            self._run_pipeline.tick(Tick(now))

    def set_problem(self, problem: str, now: float) -> None:
        """Set the problem of the rule files (empty: they load). Not stored: a replay ends it."""
        if self.ready and problem != self._rules_problem and not (problem and self._over(now)):
            self._rules_problem = problem
            kind = EventKind.RULE_BROKEN if problem else EventKind.RULE_LOADED
            self._run_pipeline.feed_event(RunEvent(RULE_FILES, kind, text=problem))

    def feed_event(self, event: RunEvent) -> None:
        """Take an event of the watcher itself."""
        if self.ready:
            self._run_pipeline.feed(event)

    def update(self, found: FoundRun) -> None:
        """Discovery looked again: open the channels that are new."""
        self.reader.found = found
        if self.ready:
            self._open()

    def batch(self, now: float, apart: float = 0.0) -> StoredBatch | None:
        """What to store since the last call; None when there is nothing, or nothing that agrees yet.

        Rows that change no alert may wait for ``apart`` seconds: after a crash they would be read again.
        """
        if self._looked and self._run_pipeline.has_rows_only and 0.0 <= now - self._cursors_at < apart:
            return None
        moved = any(self.reader.touched()) and now - self._cursors_at >= CURSOR_SECONDS
        looks = self.ready and not self._looked
        if not self._safe or not (self._run_pipeline.has_news or moved or looks):
            return None
        batch = self._run_pipeline.hand_over(now, first_pass=not self.ready)
        if self.ready:
            batch.looked = self._looked = True
            batch.cursors |= self.reader.cursors()
        if not batch.backlog:
            _log_alerts(self.name, batch.transitions)
        self._cursors_at = now
        self.reader.stored()
        return batch

    def remainder(self, now: float) -> StoredBatch | None:
        """The rows that wait to be stored, when the run is let go; None where there is anything else as well."""
        return self.batch(now) if self._looked and self._run_pipeline.has_rows_only else None

    def snapshot(self) -> RunSnapshot:
        """A snapshot of the run now; the same object as before when nothing changed."""
        return self._run_pipeline.snapshot()

    def over(self, now: float) -> bool:
        """Whether the run has ended."""
        return self.ready and self._over(now)

    def was_live(self, since: float, now: float) -> bool:
        """Whether it continues, or is new to us and was written to after ``since`` (Unix seconds)."""
        return not self._over(now) or (not self._known and (self.written or now) >= since)

    @property
    def waiting(self) -> bool:
        """Whether something of this run is still to be read: it is being read elsewhere, or has to keep still first."""
        return self.reader.waiting or self.reader.settling

    @property
    def step(self) -> int:
        """The newest step."""
        return self._run_pipeline.state.step

    @property
    def written(self) -> float | None:
        """When the run was last written to, as far as is known (Unix seconds)."""
        return self._run_pipeline.written

    @property
    def conflicts(self) -> Mapping[str, int]:
        """How many values of each channel contradict a better channel's."""
        return self._run_pipeline.conflicts

    @property
    def failures(self) -> int:
        """How many items could not be judged."""
        return self._run_pipeline.failures

    @property
    def detail(self) -> RunDetail:
        """What the run's page shows beyond the snapshot; any thread may ask."""
        return self._run_pipeline.detail

    @property
    def sparks(self) -> Mapping[str, Sparkline]:
        """The run's sparklines; any thread may ask."""
        return self._run_pipeline.sparks

    def alerts(self, rule: str | None = None) -> Mapping[Key, Alert]:
        """The run's alerts (of one rule) by rule and key."""
        return self._run_pipeline.alerts(rule)

    def context(self, at: float, page: str, runbook: str) -> NotificationContext:
        """The context of notifications about this run, see there."""
        return self._run_pipeline.context(at, page, runbook)

    def finish(self, now: float) -> None:
        """The input has ended: take what sources held back, and steps that only worse channels have."""
        self.reader.finish(self._run_pipeline.feed)
        self._run_pipeline.elect(now, ended=True)

    def close(self) -> None:
        """Free all file handles."""
        self.reader.close()

    def _over(self, now: float) -> bool:
        return self.options.ended() or self._run_pipeline.over(now)

    def _note_growth(self, now: float, *, jumped: bool) -> None:
        """A log that grows without giving an item (an evaluation, a download) lives, and every log after a jump."""
        if not jumped and (now - self._active_at < ACTIVITY_SECONDS or self._run_pipeline.has_items):
            return
        for source in self.reader.channels if jumped else self.reader.touched():
            if source.kind is not None:
                self._active_at = now
                self._run_pipeline.touch(now)
                self._run_pipeline.feed(Activity(source.name, now))

    # the first turns

    def _has_news(self, found: FoundRun) -> bool:
        """Whether a stored alert fires, and a log has another length than the part of it that was read."""
        alerts = self._state_writer.alerts(self.name).values()
        if not any(alert.state is AlertState.FIRING for alert in alerts):
            return False
        cursors = self._state_writer.cursors(self.name)
        return any(_grew(channel, cursors.get(channel.name)) for channel in found.channels if channel.path.is_file())

    def _new_pipeline(self, now: float) -> RunPipeline:
        return RunPipeline(self.name, self._rules, self.options.labels, now, backlog=not self._looked)

    def _begin(self, now: float) -> Iterator[bool]:
        try:
            for number, item in enumerate(self._state_writer.items(self.name), 1):
                self._run_pipeline.rebuild(item)
                if number % SLICE == 0:
                    yield True
        except StoreError:
            log.exception("a stored run is damaged and read again", extra={"fields": {"run": self.name}})
            self._state_writer.forget(self.name)
            self._run_pipeline = self._new_pipeline(now)
        if not self._run_pipeline.announced and self._state_writer.alerts(self.name):
            yield from self._read_again(now)
            return
        self._settle()
        if self._looked and self._state_writer.alerts(self.name):
            self._run_pipeline.touch(newest_write(self.reader.found))
            self.restored = not self._over(now)
            yield True  # what a receiver missed is queued before anything new is read
        self._open()
        yield from self._first_pass(now)

    def _read_again(self, now: float) -> Iterator[bool]:
        """The stored alerts are known, the stored items are not (damaged or archived): read all before it counts."""
        self._open()
        for more in self._first_pass(now):
            self._safe = False
            yield more
        self._safe = True
        self._run_pipeline.discard_transitions()
        self._settle()

    def _settle(self) -> None:
        self._run_pipeline.settle(self._state_writer.alerts(self.name), self._state_writer.fingerprints(self.name))

    def _open(self) -> None:
        """Open the channels that are not open yet, and announce them."""
        self._run_pipeline.announce(self.reader.open)

    def _first_pass(self, now: float) -> Iterator[bool]:
        """Read what is there by now. It was written by the time of the newest file, and is taken as seen then."""
        written = self.reader.written()
        self._run_pipeline.touch(now if written is None else written)
        merge = self.reader.merge(min(now, self.written or now), now, self._run_pipeline.trusts)
        taken = 0
        for item in merge.items():
            self._safe = merge.safe
            if item is not None:
                self._run_pipeline.feed(item)
                taken += 1
            if item is None or (taken >= SLICE and merge.safe):
                self._run_pipeline.set_cursors(merge.cursors() if merge.safe else {})
                taken = 0
                yield item is not None or self.reader.unread
        self._safe = True
        self._run_pipeline.set_cursors(merge.cursors())
        self.reader.note_read(now)
        if not self._grown:
            self._run_pipeline.date_by_steps()
        over = self._over(now)
        self._run_pipeline.tick(Tick(now, live=not over), ended=over)


def _grew(channel: FoundChannel, cursor: Cursor | None) -> bool:
    with suppress(OSError):
        return cursor is None or channel.path.stat().st_size != cursor.position
    return False


def _log_alerts(run: str, transitions: Iterable[Transition]) -> None:
    """One warning per alert that fires, gets worse or resolves; a pending one is no news yet."""
    for transition in transitions:
        if transition.to_state in {AlertState.FIRING, AlertState.RESOLVED}:
            fields = {
                "run": run,
                "rule": transition.rule,
                "severity": transition.severity.value,
                "step": transition.step,
                "summary": transition.reading.message,
            }
            log.warning("alert %s", transition.to_state.value, extra={"fields": fields})
