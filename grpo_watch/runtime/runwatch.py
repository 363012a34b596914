"""Watches one run: rebuilds it from the store, reads its sources, feeds the pipeline, collects what is to be stored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from grpo_watch.core.records import (
    Activity,
    AlertState,
    ChannelOpened,
    Cursor,
    EventKind,
    Item,
    RunConfig,
    RunEvent,
    Tick,
    Transition,
)
from grpo_watch.core.snapshot import RunSnapshot
from grpo_watch.detectors.rule_broken import RULE_FILES
from grpo_watch.runtime.alert_log import log_alerts
from grpo_watch.runtime.closeup import Lens
from grpo_watch.runtime.guarded import Guarded
from grpo_watch.runtime.keeper import Keeper
from grpo_watch.runtime.lifecycle import Lifecycle
from grpo_watch.runtime.merge import Merge
from grpo_watch.runtime.open import OpenedRun, OpenedSource, open_run
from grpo_watch.runtime.options import Options
from grpo_watch.runtime.parts import Parts
from grpo_watch.runtime.pipeline import Pipeline
from grpo_watch.runtime.reconcile import RuleSet, reconcile
from grpo_watch.sources.deferred import Future, Submit
from grpo_watch.sources.discover import FoundRun
from grpo_watch.store.codec import encode_item
from grpo_watch.store.state import Batch, StoreError

SLICE = 2_000
"""Items per slice: about 0.1 s of work, after which other runs have their turn."""
SLOW_POLL_SECONDS = 1.0
"""How often folders (checkpoints, dumps, configuration) are listed; logs are read at every turn."""
CURSOR_SECONDS = 5.0
"""How often a cursor is stored that moved without giving an item."""
ACTIVITY_SECONDS = 15.0
"""How often it is noted that a log grows without giving an item."""

log = logging.getLogger("grpo_watch.run")


@dataclass(frozen=True, slots=True)
class Means:
    """What a watch works with: the rules in force, what is stored, and where heavy work is done."""

    rules: RuleSet
    keeper: Keeper
    submit: Submit


class RunWatch:
    """One run that is being read.

    ``turn`` works for a slice and is called again at once while it answers True; ``batch`` hands over what is to be
    stored. The first turns rebuild the run from the store and read what its files hold by then (``ready`` after that).

    Args:
        name: the run's name, which never changes.
        found: what discovery found.
        means: what it works with.
        options: what is said of the run from outside.
        now: Unix seconds.
    """

    def __init__(self, name: str, found: FoundRun, means: Means, options: Options, now: float) -> None:
        self.name, self.options = name, options
        self.lens = Lens()
        self.pipeline = Pipeline(means.rules.rules, means.rules.detectors, options.labels, self.lens.see)
        self.lifecycle = Lifecycle()
        self.opened = OpenedRun(name)
        self.snapshot: RunSnapshot | None = None
        self.read_at: dict[str, float] = {}
        self.ready = False
        self.failures = 0
        self._rules, self._keeper, self._submit = means.rules, means.keeper, means.submit
        self._futures: list[Future] = []
        self._announced: list[Item] = []
        self._looked = means.keeper.looked(name)
        self._batch = Batch(name, now, backlog=not self._looked)
        self._iterators: dict[str, Iterator[Item]] = {}
        self._bytes: dict[str, int] = {}
        self._gave: set[str] = set()
        self._cursors_at = self._active_at = now
        self._slow_at = 0.0
        self._safe = True
        self._new, self._parts = found, Parts()
        self._rules_problem = ""
        self._work: Iterator[bool] | None = self._begin(now)

    # turns

    def turn(self, now: float) -> bool:
        """Work for a slice; whether there is more to do at once."""
        if self._work is not None:
            more = next(self._work, None)
            if more is not None:
                return more
            self._work, self.ready = None, True
            return True
        return self._read(now)

    def tick(self, now: float, *, jumped: bool = False) -> None:
        """Tell the pipeline what time it is (Unix seconds), and whether the clock jumped to it."""
        if self.ready:
            self._note_growth(now, jumped=jumped)
            for _, item in self.pipeline.elections(now):
                self._feed(item)
            self._feed(Tick(now))

    def heed(self, problem: str, now: float) -> None:
        """Take what is wrong with the rule files (empty: they load). Not stored: a replay ends it."""
        if self.ready and problem != self._rules_problem and not (problem and self._over(now)):
            self._rules_problem = problem
            kind = EventKind.RULE_BROKEN if problem else EventKind.RULE_LOADED
            self._told(self.pipeline.feed(self.name, RunEvent(RULE_FILES, kind, text=problem)))

    def hear(self, event: RunEvent) -> None:
        """Take what the watcher says of itself."""
        if self.ready:
            self._feed(event)

    def update(self, found: FoundRun) -> None:
        """Discovery looked again: open the channels that are new."""
        self._new = found
        if self.ready and self._open():
            self._slow_at = 0.0

    def batch(self, now: float) -> Batch | None:
        """What is to be stored since the last call; None when there is nothing, or nothing that agrees yet."""
        moved = self._moved() and now - self._cursors_at >= CURSOR_SECONDS
        looks = self.ready and not self._looked
        if not self._safe or not (self._batch.items or self._batch.transitions or moved or looks):
            return None
        batch, self._batch = self._batch, Batch(self.name, now)
        batch.at, batch.snapshot = now, self.picture()
        if self.ready:
            batch.looked = self._looked = True
            batch.cursors |= {source.name: source.source.cursor() for source in self._touched()}
        else:
            self._batch.backlog = batch.backlog
        if not batch.backlog:
            log_alerts(self.name, batch.transitions)
        self._cursors_at = now
        self._bytes = {source.name: source.source.stats.bytes for source in self.opened.sources}
        self._gave.clear()
        return batch

    def picture(self) -> RunSnapshot:
        """A snapshot of the run now; the same object as before when nothing changed."""
        snapshot = self.pipeline.snapshot(self.name)
        if self.snapshot is None or snapshot != self.snapshot:
            self.snapshot = snapshot
        return self.snapshot

    def over(self, now: float) -> bool:
        """Whether the run has ended."""
        return self.ready and self._over(now)

    def _over(self, now: float) -> bool:
        if self.options.ended():
            return True
        state = self.pipeline.engine.run(self.name)
        crashed = any(
            alert.state is AlertState.FIRING and alert.attempt == state.attempt
            for monitor in state.monitors
            if monitor.rule.name == "run-crashed"
            for alert in monitor.alerts.values()
        )
        short = state.max_steps is not None and state.step < state.max_steps
        return self.lifecycle.over(now, crashed=crashed, short=short, shows_end=state.shows_end)

    @property
    def waiting(self) -> bool:
        """Whether work for this run is being done elsewhere."""
        self._futures = [future for future in self._futures if not future.done()]
        return bool(self._futures) or any(getattr(one.source, "behind", False) for one in self.opened.sources)

    def finish(self) -> None:
        """The input has ended: take what sources held back."""
        for source in self.opened.sources:
            for item in source.source.finish():
                self._feed(item)

    def close(self) -> None:
        """Free all file handles."""
        self.opened.close()

    # the first turns

    def _begin(self, now: float) -> Iterator[bool]:
        try:
            yield from self._rebuild()
        except StoreError:
            log.exception("a stored run is damaged and read anew", extra={"fields": {"run": self.name}})
            self._keeper.forget(self.name)
            self.lens = Lens()
            self.pipeline = Pipeline(self._rules.rules, self._rules.detectors, self.options.labels, self.lens.see)
            self.lifecycle, self._announced = Lifecycle(), []
        if not self._announced and self._keeper.alerts(self.name):
            yield from self._read_anew(now)
            return
        self._settle()
        self._open()
        yield from self._first_pass(now)

    def _read_anew(self, now: float) -> Iterator[bool]:
        """What was told is known, what was fed is not (damaged or archived): nothing counts before all is read."""
        self._open()
        for more in self._first_pass(now):
            self._safe = False
            yield more
        self._safe = True
        self._batch.transitions.clear()
        self._batch.alerts.clear()
        self._settle()

    def _rebuild(self) -> Iterator[bool]:
        """Feed what is stored; what that says was told before."""
        for number, item in enumerate(self._keeper.items(self.name), 1):
            self.pipeline.feed(self.name, item)
            self._note(item)
            if number % SLICE == 0:
                yield True

    def _settle(self) -> None:
        """Go on from the alerts as they were told; tell what changed rules change."""
        loaded = self._keeper.alerts(self.name)
        state = self.pipeline.engine.run(self.name)
        monitors = {monitor.rule.name: monitor for monitor in state.monitors}
        reached = {(rule, key): a for rule, monitor in monitors.items() for key, a in monitor.alerts.items()}
        settled = reconcile(self.name, loaded, reached, self._rules, state.step)
        for (rule, key), alert in settled.alerts.items():
            if rule in monitors:
                monitors[rule].load(key, alert)
        state.rouse()
        if self._keeper.fingerprints(self.name) != self._rules.fingerprints:
            self._batch.fingerprints = self._rules.fingerprints
        self._batch.alerts |= {key: alert for key, alert in settled.alerts.items() if alert != loaded.get(key)}
        self._batch.transitions += settled.transitions

    def _first_pass(self, now: float) -> Iterator[bool]:
        """Read what is there by now. It was written by the time of the newest file, and is taken as seen then."""
        self.lifecycle.touch(max((modified for _, modified in self._modified()), default=now))
        merge = Merge(self.opened.sources, min(now, self.lifecycle.written or now), lambda _: self.waiting)
        taken = 0
        for item in merge.items():
            self._safe = merge.safe
            if item is not None:
                self._feed(item)
                taken += 1
            if item is None or (taken >= SLICE and merge.safe):
                self._batch.cursors = merge.cursors() if merge.safe else {}
                taken = 0
                yield item is not None
        self._safe = True
        self._batch.cursors = merge.cursors()
        self.read_at |= {source.name: now for source in self.opened.sources}
        self._feed(Tick(now, live=not self._over(now)))

    # reading on

    def _open(self) -> bool:
        """Open the channels that are not open yet; whether there were any."""
        known = {source.name for source in self.opened.sources}
        fresh = tuple(channel for channel in self._new.channels if channel.name not in known)
        fresh = tuple(channel for channel in fresh if not self._parts.holds(channel, self._cursors()))
        if known and not fresh:
            return False
        opened = open_run(
            replace(self._new, name=self.name, channels=fresh),
            self.pipeline,
            None if known else self.options.settings,
            self._keeper.cursors(self.name),
            self._tracked,
            examples=self.options.examples,
            columns=self.options.columns,
            care=self.options.care,
        )
        for source in opened.sources:
            source.source = Guarded(source.source)
        self.opened.sources = sorted([*self.opened.sources, *opened.sources], key=_reading_order)
        for item in opened.announcements:
            if item not in self._announced:
                self._feed(item)
        return bool(fresh)

    def _cursors(self) -> Mapping[str, Cursor]:
        """Where each channel is read now; where it was read last if it is not open yet."""
        stored = {} if self.opened.sources else self._keeper.cursors(self.name)
        return stored or {source.name: source.source.cursor() for source in self.opened.sources}

    def _modified(self) -> Iterator[tuple[str, float]]:
        """When each source's file or folder was last written (Unix seconds), or its server last heard of it."""
        if self._new.written:
            yield self._new.remote, self._new.written
        for source in self.opened.sources:
            with suppress(OSError):
                yield source.name, source.path.stat().st_mtime

    def _tracked(self, function: Callable[..., Any], *arguments: Any) -> Future:
        future = self._submit(function, *arguments)
        self._futures.append(future)
        return future

    def _read(self, now: float) -> bool:
        slow = now - self._slow_at >= SLOW_POLL_SECONDS
        if slow:
            self._slow_at = now
        more = False
        for source in self.opened.sources:
            if source.kind is not None or slow or source.name in self._iterators:
                more = self._poll(source, now) or more
        return more

    def _poll(self, source: OpenedSource, now: float) -> bool:
        """Read a slice of one source; whether there is more."""
        items = self._iterators.pop(source.name, None) or source.source.poll(now)
        taken = 0
        for item in islice(items, SLICE):
            self._feed(item)
            taken += 1
        if taken:
            self._gave.add(source.name)
            self.lifecycle.touch(now)
        if taken == SLICE:
            self._iterators[source.name] = items
            return True
        self.read_at[source.name] = now
        return False

    def _feed(self, item: Item) -> None:
        try:
            transitions = self.pipeline.feed(self.name, item)
        except Exception:  # one odd item must not end the watch of all runs
            self.failures += 1
            log.exception("an item could not be judged and is passed over", extra={"fields": {"run": self.name}})
            return
        self._note(item)
        if transitions or not isinstance(item, Tick):
            self._batch.items.append(encode_item(item))
        self._told(transitions)

    def _told(self, transitions: Sequence[Transition]) -> None:
        """Collect changes of alerts to be stored."""
        if transitions:
            monitors = {monitor.rule.name: monitor for monitor in self.pipeline.engine.run(self.name).monitors}
            for transition in transitions:
                place = (transition.rule, transition.key)
                self._batch.alerts[place] = monitors[transition.rule].alerts[transition.key]
            self._batch.transitions += transitions

    def _note(self, item: Item) -> None:
        """Keep what a fed item says of the run's progress."""
        self.lifecycle.take(item)
        if isinstance(item, (ChannelOpened, RunConfig)):
            self._announced.append(item)

    def _moved(self) -> bool:
        return any(True for _ in self._touched())

    def _touched(self) -> Iterator[OpenedSource]:
        """Sources that read something since the last batch."""
        for source in self.opened.sources:
            if source.name in self._gave or source.source.stats.bytes != self._bytes.get(source.name, 0):
                yield source

    def _note_growth(self, now: float, *, jumped: bool) -> None:
        """A log that grows without giving an item (an evaluation, a download) lives, and every log after a jump."""
        if not jumped and (now - self._active_at < ACTIVITY_SECONDS or self._batch.items):
            return
        for source in self.opened.sources if jumped else self._touched():
            if source.kind is not None:
                self._active_at = now
                self.lifecycle.touch(now)
                self._feed(Activity(source.name, now))


def _reading_order(source: OpenedSource) -> tuple[bool, bool, int, int, str]:
    """Configuration first, then rows by rank and segment, then the rest."""
    return (not source.early, source.kind is None, source.kind or 0, source.segment, source.name)
