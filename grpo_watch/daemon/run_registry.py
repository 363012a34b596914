"""The runs of the daemon: they appear, are watched, end, and may continue."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from grpo_watch.daemon.run_detail import pack
from grpo_watch.daemon.run_end import RunLife
from grpo_watch.daemon.run_reader import WatchOptions, newest_write
from grpo_watch.daemon.run_status import (
    NOTHING,
    TrackedRun,
    counts_of,
    identity_of,
    newest_past,
    statuses,
    swallowed,
)
from grpo_watch.daemon.state_writer import StateWriter
from grpo_watch.daemon.turn_order import TurnOrder
from grpo_watch.daemon.watched_run import WatchedRun
from grpo_watch.engine.snapshot import WORST_FIRST, RunSnapshot, RunVerdict
from grpo_watch.metrics.daemon_snapshot import RunOverview
from grpo_watch.rules.rule_changes import RuleSet
from grpo_watch.sources.deferred import Submit
from grpo_watch.sources.discovery.discover import FoundRun
from grpo_watch.store.state import StoredBatch

SETTLE_SECONDS = 60.0
"""An ended run is read for this long after its last write (a last checkpoint, a model card), then let go."""
SHOWN_GONE = 10
"""Runs that are not there any more and that are named; a share that is unmounted takes all with it."""
WHOLE_LOOKS = 10
"""Every so many looks, the settings of all runs are read again; in between, only those of runs that changed."""
QUIET_LOOKS = 2
"""All is over when discovery looked so many times without finding anything new."""
MISSED = WORST_FIRST.index(RunVerdict.WARNING)
"""What is known to be wrong with a lost run stays its verdict."""

log = logging.getLogger("grpo_watch.daemon")


class RunRegistry:
    """All runs by name, those that are being read with their ``WatchedRun``.

    ``look`` and ``get`` may be called by any thread, the rest by the engine's only.

    Args:
        state_writer: the state.
        submit: runs heavy work elsewhere.
        rules: the rules in force.
        options: the user's settings of a found run.
        linger: for how many seconds an ended run is shown to sinks.
        report: called once for each run when it was first read.
    """

    def __init__(
        self,
        state_writer: StateWriter,
        submit: Submit,
        rules: RuleSet,
        *,
        options: Callable[[FoundRun], WatchOptions],
        linger: float,
        report: Callable[[RunSnapshot], None],
    ) -> None:
        self._state_writer, self._submit, self._rules = state_writer, submit, rules
        self._options, self._linger, self._report = options, linger, report
        self._runs: dict[str, TrackedRun] = {}
        self._reading: dict[WatchedRun, TrackedRun] = {}
        self.order = TurnOrder()
        """Which of those that are being read need a turn."""
        self._views: dict[str, RunOverview] = {}
        self._past_views: dict[str, RunOverview] = {}
        self._by_identity: dict[str, TrackedRun] = {}
        self._found: Sequence[FoundRun] | None = None
        self._looks = self._busy_look = 0
        self.taken: Sequence[FoundRun] | None = None
        """What discovery found when it was taken last."""
        self.records: Counter[str] = Counter()
        """Records by kind of channel, since the start …"""
        self.errors: Counter[tuple[str, str]] = Counter()
        """… and errors by kind and reason."""
        self._unread: tuple[str, ...] = ()
        self.problems: tuple[str, ...] = ()
        """What discovery could not read and concerns no run, and which runs are not there any more; one line each."""

    def __iter__(self) -> Iterator[TrackedRun]:
        return iter(list(self._runs.values()))

    def get(self, run: str) -> TrackedRun:
        """The run of this name; an empty one where there is none."""
        return self._runs.get(run, TrackedRun(run))

    @property
    def watches(self) -> Collection[WatchedRun]:
        """The runs that are being read."""
        return self._reading.keys()

    @property
    def ready(self) -> bool:
        """Whether discovery looked and every run it found was read once."""
        return self._looks > 0 and self._found is None and self.order.ready

    def count(self, watch: WatchedRun) -> None:
        """Take what its sources counted by now."""
        tracked = self._reading[watch]
        (records, errors), tracked.counted = tracked.counted, counts_of(watch)
        self.records.update(tracked.counted[0])
        self.records.subtract(records)
        self.errors.update(tracked.counted[1])
        self.errors.subtract(errors)

    @property
    def ended(self) -> bool:
        """Whether all runs have ended."""
        return all(run.life.ended is not None for run in self)

    def over(self) -> bool:
        """Whether everything has ended and was read, and nothing new was found since; asked once a turn."""
        waiting = any(watch.reader.waiting for watch in self._reading)
        if not self._runs or waiting or self._found is not None or not self.ended:
            self._busy_look = self._looks
        return self._looks >= self._busy_look + QUIET_LOOKS

    def overviews(self) -> tuple[RunOverview, ...]:
        """The runs that are shown to receivers and on ``/metrics``, in the order of their first sight."""
        return tuple(self._views.values())

    def past_overviews(self) -> tuple[RunOverview, ...]:
        """Runs that ended too long ago for these, and are still shown to people, the newest end first."""
        return tuple(self._past_views.values())

    # they come

    def restore(self, now: float) -> None:
        """Show what is stored at once, before anything is read."""
        for stored in self._state_writer.runs():
            tracked = self._track(stored.name)
            tracked.life = RunLife(stored.ended, stored.noted)
            tracked.past = not self._lingers(tracked, now)
        for tracked in [*newest_past(self), *(one for one in self if not one.past)]:
            tracked.snapshot = self._state_writer.snapshot(tracked.name)
            tracked.history = self._state_writer.history(tracked.name) if tracked.life.ended is not None else None
        self._view_all()

    def _track(self, name: str) -> TrackedRun:
        return self._runs.setdefault(name, TrackedRun(name, number=len(self._runs)))

    def look(self, found: Sequence[FoundRun], problems: Sequence[str] = ()) -> None:
        """Discovery looked: these are the runs now, all of them; ``take_found`` takes them."""
        for problem in problems:
            if problem not in self._unread:
                log.warning("not read", extra={"fields": {"problem": problem}})
        self._unread = tuple(problems)
        self._found = found

    def take_found(self, now: float) -> None:
        """Take what discovery found last, if that is news."""
        if self._found is None:
            return
        self.taken = found = self._found
        self._found = None
        whole = self._looks % WHOLE_LOOKS == 0
        names: set[str] = set()
        for run in found:
            identity = identity_of(run)
            same = self._by_identity.get(identity)
            if not whole and same is not None and same.is_as(run):
                names.add(same.name)
                continue
            options = self._options(run)
            wanted = options.name.replace("{folder}", run.name).encode("utf-8", "replace").decode()
            name = self._state_writer.register(identity, wanted, now)
            names.add(name)
            tracked = self._by_identity[identity] = self._track(name)
            self._take(tracked, run, options, now)
        missing = [tracked for tracked in self if tracked.name not in names and tracked.life.ended is None]
        files = _inodes(found) if missing else frozenset()
        for name in names:
            self._runs[name].life.find()
        for tracked in missing:
            self._miss(tracked, found, files, now)
        self._looks += 1
        self._view_all()

    def renew(self, now: float, rules: RuleSet | None) -> None:
        """Take the settings of all runs again; those with others, and all where there are other rules, begin again."""
        self._rules = rules or self._rules
        for tracked in self:
            if tracked.found is not None:
                before, tracked.options = tracked.options, self._options(tracked.found)
                if rules is not None or tracked.options.judges_unlike(before):
                    self._begin_again(tracked, tracked.found, now)

    def show(self, watches: Iterable[WatchedRun]) -> None:
        """Show how these runs are, if they were read."""
        for watch in watches:
            tracked = self._reading.get(watch)
            if tracked is not None and watch.ready:
                tracked.snapshot = watch.snapshot()
                self._report_once(tracked)
                self._view(tracked)

    def _view(self, tracked: TrackedRun) -> None:
        overview = None if tracked.past else tracked.overview()
        if overview is None:
            self._views.pop(tracked.name, None)
        elif self._views.get(tracked.name) is not overview:
            last = self._runs[next(reversed(self._views))].number if self._views else -1
            new = tracked.name not in self._views
            self._views[tracked.name] = overview
            if new and tracked.number < last:
                self._views = dict(sorted(self._views.items(), key=lambda one: self._runs[one[0]].number))

    def _view_all(self) -> None:
        """Show all runs, where more may have changed than how those are that had a turn."""
        for tracked in self:
            self._view(tracked)
        past = ((tracked.name, tracked.overview()) for tracked in newest_past(self))
        self._past_views = {name: overview for name, overview in past if overview is not None}
        self.problems = (*self._unread, *self._absences())

    def _absences(self) -> Iterator[str]:
        known = [run for run in self if run.found and run.snapshot and not run.past]
        gone = [run.name for run in known if run.life.lost]
        missing = [run.name for run in known if run.life.absence is not None and run.watch is not None]
        lines = (
            ("Not found any more, and not watched", gone),
            ("Not found at present; their open files are read on", missing),
        )
        yield from (f"{what}: {_named(names)}" for what, names in lines if names)

    def _take(self, tracked: TrackedRun, run: FoundRun, options: WatchOptions, now: float) -> None:
        tracked.found, tracked.options = run, options
        watch = tracked.watch
        if watch is not None and (watch.reader.found.roots != run.roots or watch.reader.reads_unlike(run)):
            self._begin_again(tracked, run, now)  # the watched path leads elsewhere by now, or other channels show more
        elif watch is not None:
            watch.update(run)
            self.order.hurry(watch, now)
        elif (
            (ended := tracked.life.ended) is None
            or tracked.life.lost
            or newest_write(run) > max(ended, tracked.written)
        ):
            self._wake(tracked, run, now, grown=tracked.written > 0.0)
        else:
            self._report_once(tracked)

    def _wake(self, tracked: TrackedRun, run: FoundRun, now: float, *, grown: bool = False) -> None:
        tracked.watch = WatchedRun(
            tracked.name,
            run,
            tracked.options,
            now,
            rules=self._rules,
            state_writer=self._state_writer,
            submit=self._submit,
            grown=grown,
        )
        self._reading[tracked.watch] = tracked
        self.order.add(tracked.watch, tracked.number)

    def _close(self, tracked: TrackedRun, watch: WatchedRun, now: float) -> None:
        """Store what waits to be stored of a run, and read it no more."""
        left = watch.remainder(now)
        self._state_writer.commit([left] if left is not None else [], now)
        self.order.remove(watch)
        del self._reading[watch]
        tracked.counted = NOTHING
        watch.reader.close()

    def _begin_again(self, tracked: TrackedRun, run: FoundRun, now: float) -> None:
        """Rebuild a run that is being read from the state, and read on from there."""
        if tracked.watch is not None:
            self._close(tracked, tracked.watch, now)
            self._wake(tracked, run, now)

    def _report_once(self, tracked: TrackedRun) -> None:
        """Report a run if that was not done yet."""
        if not tracked.reported and tracked.snapshot is not None:
            tracked.reported = True
            self._report(tracked.snapshot)

    # they end and continue

    def end(self, now: float, due: Iterable[WatchedRun]) -> None:
        """Note which of these runs ended, let go of those that ended a while ago, and take up those that continue."""
        for watch in [*due]:  # they may be all of ``watches``, which gets shorter
            tracked = self._reading.get(watch)
            if tracked is None:
                continue
            if watch.over(now):
                self._end(tracked, watch, now)
            elif watch.ready and tracked.life.ended is not None:
                tracked.life.go_on()
                tracked.past = False
                self._state_writer.reopen(tracked.name)
            self._view(tracked)

    def pass_by(self, now: float) -> None:
        """Show those that ended long enough ago to people alone, and end those whose input did; asked each second."""
        for watch, tracked in self._reading.items():
            if tracked.life.ended is None and tracked.options.ended():  # no write says so
                self.order.hurry(watch, now)
        before = [tracked for tracked in self if tracked.watch is None and not tracked.past]
        for tracked in before:
            tracked.past = not self._lingers(tracked, now)
        if any(tracked.past for tracked in before):
            self._view_all()

    def close(self) -> None:
        """Free all file handles."""
        for watch in self._reading:
            watch.reader.close()

    def _lingers(self, tracked: TrackedRun, now: float) -> bool:
        noted = tracked.life.noted
        return noted is None or now - noted <= self._linger

    def _miss(self, tracked: TrackedRun, found: Sequence[FoundRun], files: Collection[int], now: float) -> None:
        """A run was not found; once it is lost, what is known of it is shown for a while, unless another one has it."""
        reader = tracked.watch.reader if tracked.watch is not None else None
        held = reader.held() if reader is not None else frozenset()
        known = tracked.found is not None
        if tracked.life.absence is None and known:
            log.info(
                "a run is not found at present; its open files are read on", extra={"fields": {"run": tracked.name}}
            )
        part = tracked.found is not None and swallowed(tracked.found, found)
        moved = part or bool(held & set(files))
        if not tracked.life.miss(now, reader.bytes if reader is not None else 0, held=bool(held), moved=moved):
            return
        if part:
            tracked.snapshot = None
        elif known:
            log.warning("a run is not found any more", extra={"fields": {"run": tracked.name}})
        self._let_go(tracked, now)
        if tracked.snapshot is not None and WORST_FIRST.index(tracked.snapshot.verdict) > MISSED:
            tracked.snapshot = replace(tracked.snapshot, verdict=RunVerdict.LOST)
            self._state_writer.commit([StoredBatch(tracked.name, now, snapshot=tracked.snapshot)], now)

    def _end(self, tracked: TrackedRun, watch: WatchedRun, now: float) -> None:
        written, life = min(watch.end.written or now, now), tracked.life
        if life.ended is None:
            life.end(written, now)
            self._keep_end(tracked, watch, now)
            log.info("a run ended", extra={"fields": {"run": tracked.name}})
        elif not watch.reader.waiting and now - self._newest_write(tracked, written) > SETTLE_SECONDS:
            life.ended = max(life.ended, written)
            self._let_go(tracked, now)

    @staticmethod
    def _newest_write(tracked: TrackedRun, written: float) -> float:
        """A copy is written long after the run that it is of ended."""
        return written if tracked.found is None else max(written, newest_write(tracked.found))

    def _let_go(self, tracked: TrackedRun, now: float) -> None:
        """Close a run's files and drop its windows; discovery wakes it when a file changes."""
        watch, tracked.watch = tracked.watch, None
        if watch is not None:
            tracked.written = newest_write(tracked.found) if tracked.found is not None else 0.0
            tracked.channels = tuple(replace(status, read_at=None) for status in statuses(watch.reader))
            self._close(tracked, watch, now)
            self._keep_end(tracked, watch, now)

    def _keep_end(self, tracked: TrackedRun, watch: WatchedRun, now: float) -> None:
        tracked.history = pack(watch.detail)
        self._state_writer.commit(
            [StoredBatch(tracked.name, now, history=tracked.history, ended=tracked.life.ended)], now
        )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_GONE} more" if len(names) > SHOWN_GONE else ""
    return ", ".join(names[:SHOWN_GONE]) + more


def _inodes(found: Iterable[FoundRun]) -> frozenset[int]:
    """The files that the channels of these runs lie in."""
    nodes = set()
    for channel in (channel for run in found for channel in run.channels):
        with suppress(OSError):
            nodes.add(channel.path.stat().st_ino)
    return frozenset(nodes)
