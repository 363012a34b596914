"""The runs of the daemon: they appear, are watched, end, and may continue."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from grpo_watch.daemon.run_detail import pack
from grpo_watch.daemon.run_end import RunLife
from grpo_watch.daemon.run_reader import WatchOptions, newest_write
from grpo_watch.daemon.run_status import TrackedRun, count, identity_of, newest_past, statuses, swallowed
from grpo_watch.daemon.state_writer import StateWriter
from grpo_watch.daemon.watched_run import WatchedRun
from grpo_watch.engine.snapshot import WORST_FIRST, RunSnapshot, RunVerdict
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

    ``look``, ``get`` and ``folders`` may be called by any thread, the rest by the engine's only.

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
        self._by_identity: dict[str, TrackedRun] = {}
        self._found: Sequence[FoundRun] | None = None
        self._looks = self._busy_look = 0
        self.taken: Sequence[FoundRun] | None = None
        """What discovery found when it was taken last."""
        self._past: Counter[str] = Counter()
        self._past_errors: Counter[tuple[str, str]] = Counter()
        self._unread: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[TrackedRun]:
        return iter(list(self._runs.values()))

    @property
    def problems(self) -> tuple[str, ...]:
        """What discovery could not read and concerns no run, and which runs are not there any more; one line each."""
        known = [run for run in self if run.found and run.snapshot and not run.past]
        gone = [run.name for run in known if run.life.lost]
        missing = [run.name for run in known if run.life.absence is not None and run.watch is not None]
        lines = (
            ("Not found any more, and not watched", gone),
            ("Not found at present; their open files are read on", missing),
        )
        return (*self._unread, *(f"{what}: {_named(names)}" for what, names in lines if names))

    def get(self, run: str) -> TrackedRun:
        """The run of this name; an empty one where there is none."""
        return self._runs.get(run, TrackedRun(run))

    def watches(self) -> list[WatchedRun]:
        """The runs that are being read."""
        return [tracked.watch for tracked in self if tracked.watch is not None]

    @property
    def ready(self) -> bool:
        """Whether discovery looked and every run it found was read once."""
        return self._looks > 0 and self._found is None and all(watch.ready for watch in self.watches())

    @property
    def ended(self) -> bool:
        """Whether all runs have ended."""
        return all(run.life.ended is not None for run in self)

    def over(self) -> bool:
        """Whether everything has ended and was read, and nothing new was found since; asked once a turn."""
        waiting = any(watch.reader.waiting for watch in self.watches())
        if not self._runs or waiting or self._found is not None or not self.ended:
            self._busy_look = self._looks
        return self._looks >= self._busy_look + QUIET_LOOKS

    def folders(self) -> list[Path]:
        """The folders of the logs of runs that continue, newest runs first: where a write should be seen at once."""
        going_on = [
            t.watch for t in reversed(list(self)) if t.watch is not None and t.life.ended is None and t.is_local
        ]
        sources = [source for watch in going_on for source in watch.reader.channels]
        return list(dict.fromkeys(source.path.parent for source in sources if source.kind is not None))

    def past(self) -> list[TrackedRun]:
        """Runs that ended too long ago for sinks, and are still shown to people."""
        return newest_past(self)

    def counted(self) -> tuple[Counter[str], Counter[tuple[str, str]]]:
        """Records by kind of channel, and errors by kind and reason, since the start."""
        records, errors = Counter(self._past), Counter(self._past_errors)
        for tracked in self:
            mine = tracked.counted()
            if mine is not None:
                records.update(mine[0])
                errors.update(mine[1])
        return records, errors

    # they come

    def restore(self, now: float) -> None:
        """Show what is stored at once, before anything is read."""
        for stored in self._state_writer.runs():
            tracked = TrackedRun(stored.name, life=RunLife(stored.ended, stored.noted))
            self._runs[stored.name] = tracked
            tracked.past = not self._lingers(tracked, now)
        for tracked in [*self.past(), *(one for one in self if not one.past)]:
            tracked.snapshot = self._state_writer.snapshot(tracked.name)
            tracked.history = self._state_writer.history(tracked.name) if tracked.life.ended is not None else None

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
            tracked = self._by_identity[identity] = self._runs.setdefault(name, TrackedRun(name))
            self._take(tracked, run, options, now)
        missing = [tracked for tracked in self if tracked.name not in names and tracked.life.ended is None]
        files = _inodes(found) if missing else frozenset()
        for name in names:
            self._runs[name].life.find()
        for tracked in missing:
            self._miss(tracked, found, files, now)
        self._looks += 1

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
            tracked = self._runs[watch.name]
            if tracked.watch is watch and watch.ready:
                tracked.snapshot = watch.snapshot()
                self._report_once(tracked)

    def _take(self, tracked: TrackedRun, run: FoundRun, options: WatchOptions, now: float) -> None:
        tracked.found, tracked.options = run, options
        watch = tracked.watch
        if watch is not None and watch.reader.found.roots != run.roots:  # the watched path leads elsewhere by now
            self._begin_again(tracked, run, now)
        elif watch is not None:
            watch.update(run)
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

    def _begin_again(self, tracked: TrackedRun, run: FoundRun, now: float) -> None:
        """Rebuild a run that is being read from the state, and read on from there."""
        if tracked.watch is not None:
            left = tracked.watch.remainder(now)
            self._state_writer.commit([left] if left is not None else [], now)
            count(tracked.watch, self._past, self._past_errors)
            tracked.watch.reader.close()
            self._wake(tracked, run, now)

    def _report_once(self, tracked: TrackedRun) -> None:
        """Report a run if that was not done yet."""
        if not tracked.reported and tracked.snapshot is not None:
            tracked.reported = True
            self._report(tracked.snapshot)

    # they end and continue

    def end(self, now: float, due: Collection[WatchedRun]) -> None:
        """Note which runs ended, let go of those that ended a while ago, and take up those that continue.

        Runs that are not ``due`` are as they were.
        """
        for tracked in self:
            watch = tracked.watch
            if watch is None:
                tracked.past = not self._lingers(tracked, now)
            elif watch not in due:
                continue
            elif watch.over(now):
                self._end(tracked, watch, now)
            elif watch.ready and tracked.life.ended is not None:
                tracked.life.go_on()
                tracked.past = False
                self._state_writer.reopen(tracked.name)

    def close(self) -> None:
        """Free all file handles."""
        for watch in self.watches():
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
            left = watch.remainder(now)
            self._state_writer.commit([left] if left is not None else [], now)
            tracked.written = newest_write(tracked.found) if tracked.found is not None else 0.0
            count(watch, self._past, self._past_errors)
            tracked.channels = tuple(replace(status, read_at=None) for status in statuses(watch.reader))
            self._keep_end(tracked, watch, now)
            watch.reader.close()

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
