"""The runs of the daemon: they appear, are watched, end, and may continue."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from grpo_watch.daemon import first_turns
from grpo_watch.daemon.run_detail import counts_of
from grpo_watch.daemon.run_end import RunLife
from grpo_watch.daemon.run_reader import WatchOptions
from grpo_watch.daemon.state_writer import StateWriter
from grpo_watch.daemon.turn_order import TurnOrder
from grpo_watch.daemon.watched_run import WatchedRun
from grpo_watch.engine.snapshot import WORST_FIRST, RunSnapshot, RunVerdict
from grpo_watch.metrics.daemon_snapshot import RunOverview
from grpo_watch.rules.rule_changes import RuleSet
from grpo_watch.sources.base import Submit
from grpo_watch.sources.discovery.discover import FoundRun, newest_write
from grpo_watch.sources.rows.layouts import MARK
from grpo_watch.store.state import StoredBatch

SETTLE_SECONDS = 60.0
"""Seconds after its last write that an ended run is still read (a last checkpoint, a model card)."""
SHOWN_GONE = 10
"""Most missing runs named in a problem: an unmounted share takes many at once."""
WHOLE_LOOKS = 10
"""Every so many looks the settings of all runs are read again; in between, only those of changed runs."""
QUIET_LOOKS = 2
"""Everything is over after so many looks without anything new."""
PAST = 100
"""Most runs that have left ``/metrics`` and stay on the page; each takes some 50 KB."""
MISSED = WORST_FIRST.index(RunVerdict.WARNING)
"""A lost run keeps its verdict if it is at least this bad."""

log = logging.getLogger("grpo_watch.daemon")


class RunRegistry:
    """All runs by name, whether they are being read or not.

    Any thread may call ``look`` and ``get``; the rest is for the engine's thread only.

    Args:
        state_writer: the state.
        submit: runs heavy work in another process.
        rules: the rules in force.
        options: the user's settings of a found run.
        linger: for how many seconds an ended run is shown to sinks.
        report: called once for each run after its first read.
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
        self._runs: dict[str, WatchedRun] = {}
        self.order = TurnOrder()
        """Schedules the turns of the runs that are being read."""
        self.views: dict[str, RunOverview] = {}
        """The runs shown to receivers and on ``/metrics``, in the order of first sight …"""
        self.past_views: dict[str, RunOverview] = {}
        """… and those that ended too long ago for these and are only on the page, newest end first."""
        self._by_identity: dict[str, WatchedRun] = {}
        self._found: Sequence[FoundRun] | None = None
        self._looks = self._busy_look = 0
        self.taken: Sequence[FoundRun] | None = None
        """The result of discovery that was last taken."""
        self.records: Counter[str] = Counter()
        """Records by kind of channel, since the start …"""
        self.errors: Counter[tuple[str, str]] = Counter()
        """… and errors by kind and reason."""
        self._unread: tuple[str, ...] = ()
        self.problems: tuple[str, ...] = ()
        """Discovery problems that concern no run, and runs that are missing; one line each."""

    def __iter__(self) -> Iterator[WatchedRun]:
        return iter(list(self._runs.values()))

    def get(self, run: str) -> WatchedRun | None:
        """The run of this name; None if unknown."""
        return self._runs.get(run)

    @property
    def ready(self) -> bool:
        """Whether every run that discovery found was read once."""
        return self.read_since(-math.inf)

    def read_since(self, moment: float) -> bool:
        """Whether every run written to since ``moment`` (Unix seconds) was read once."""
        return self._looks > 0 and self._found is None and self.order.read_since(moment)

    def count(self, run: WatchedRun) -> None:
        """Update the totals with the run's current counts."""
        records, errors = run.counted
        run.counted = counts_of(run.reader, run.pipeline.assembler.agreement.conflicts, run.failures)
        self.records.update(run.counted[0])
        self.records.subtract(records)
        self.errors.update(run.counted[1])
        self.errors.subtract(errors)

    @property
    def ended(self) -> bool:
        """Whether all runs have ended."""
        return all(run.life.ended is not None for run in self)

    def over(self) -> bool:
        """Whether all runs have ended and were read, and ``QUIET_LOOKS`` looks found no more; called once a turn."""
        waiting = any(watch.reader.waiting for watch in self.order.watches)
        if not self._runs or waiting or self._found is not None or not self.ended:
            self._busy_look = self._looks
        return self._looks >= self._busy_look + QUIET_LOOKS

    # appearing

    def restore(self, now: float) -> None:
        """Show the stored runs at once, before anything is read."""
        for stored in self._state_writer.store.runs():
            run = self._known(stored.name)
            run.life = RunLife(stored.ended, stored.noted)
            run.past = not self._lingers(run, now)
        for run in [*self._newest_past(), *(one for one in self if not one.past)]:
            run.shown = self._state_writer.snapshot(run.name)
            run.history = self._state_writer.history(run.name) if run.life.ended is not None else None
        self._view_all()

    def _known(self, name: str) -> WatchedRun:
        known = self._runs.get(name)
        if known is None:
            known = self._runs[name] = WatchedRun(name, len(self._runs), self._state_writer, self._submit)
        return known

    def _newest_past(self) -> list[WatchedRun]:
        """The newest past runs, newest end first; frees the data of older ones."""
        past = sorted((run for run in self if run.past), key=lambda run: run.life.noted or 0.0, reverse=True)
        for run in past[PAST:]:
            run.shown = run.history = None
        return past[:PAST]

    def look(self, found: Sequence[FoundRun], problems: Sequence[str] = ()) -> None:
        """Store the result of discovery, which ``take_found`` processes, and log its new problems."""
        for problem in problems:
            if problem not in self._unread:
                log.warning("not read", extra={"fields": {"problem": problem}})
        self._unread = tuple(problems)
        self._found = found

    def take_found(self, now: float) -> None:
        """Process the newest result of discovery, if there is one."""
        if self._found is None:
            return
        self.taken = found = self._found
        self._found = None
        whole = self._looks % WHOLE_LOOKS == 0
        names: set[str] = set()
        for run, identity in zip(found, _identities_of(found, self._state_writer.name_of), strict=True):
            same = self._by_identity.get(identity)
            if not whole and same is not None and same.is_read and same.reader.has_all(run):
                names.add(same.name)
                continue
            options = self._options(run)
            wanted = options.name.replace("{folder}", run.name).encode("utf-8", "replace").decode()
            name = self._state_writer.register(identity, wanted, now)
            names.add(name)
            known = self._by_identity[identity] = self._known(name)
            known.options = options
            self._take(known, run, now)
        missing = [known for known in self if known.name not in names and known.life.ended is None]
        files = _inodes(found) if missing else frozenset()
        for name in names:
            self._runs[name].life.find()
        for known in missing:
            self._miss(known, found, files, now)
        self._looks += 1
        self._view_all()

    def renew(self, now: float, rules: RuleSet | None) -> None:
        """Read the settings of all runs again; restarts runs whose settings changed, or all if ``rules`` are given."""
        self._rules = rules or self._rules
        for run in self:
            if run.found is not None:
                before, run.options = run.options, self._options(run.found)
                if run.is_read and (rules is not None or run.options.judges_unlike(before)):
                    self._begin(run, run.found, now)

    def show(self, runs: Iterable[WatchedRun]) -> None:
        """Show the current state of these runs, if they have been read."""
        for run in runs:
            if run.ready:
                run.shown = run.snapshot()
                self._report_once(run)
                self._view(run)

    def _view(self, run: WatchedRun) -> None:
        overview = None if run.past else run.overview()
        if overview is None:
            self.views.pop(run.name, None)
        elif self.views.get(run.name) is not overview:
            last = self._runs[next(reversed(self.views))].number if self.views else -1
            new = run.name not in self.views
            self.views[run.name] = overview
            if new and run.number < last:
                self.views = dict(sorted(self.views.items(), key=lambda one: self._runs[one[0]].number))

    def _view_all(self) -> None:
        """Show all runs, after changes beyond the runs that had a turn."""
        for run in self:
            self._view(run)
        past = ((run.name, run.overview()) for run in self._newest_past())
        self.past_views = {name: overview for name, overview in past if overview is not None}
        self.problems = (*self._unread, *self._absences())

    def _absences(self) -> Iterator[str]:
        known = [run for run in self if run.found and run.shown and not run.past]
        gone = [run.name for run in known if run.life.lost]
        missing = [run.name for run in known if run.life.missed and run.is_read]
        lines = (
            ("Not found any more, and not watched", gone),
            ("Not found at present; their open files are read on", missing),
        )
        yield from (f"{what}: {_named(names)}" for what, names in lines if names)

    def _take(self, run: WatchedRun, found: FoundRun, now: float) -> None:
        if run.is_read and (run.reader.found.roots != found.roots or run.reader.reads_unlike(found)):
            self._begin(run, found, now)  # the watched path now leads elsewhere, or other channels have better data
        elif run.is_read:
            news = not run.reader.has_all(found)
            run.update(found)
            if news:
                self.order.hurry(run, now)
        elif (ended := run.life.ended) is None or run.life.lost or newest_write(found) > max(ended, run.written):
            self._begin(run, found, now, grown=run.written > 0.0)
        else:
            run.found = found
            self._report_once(run)

    def _begin(self, run: WatchedRun, found: FoundRun, now: float, *, grown: bool = False) -> None:
        first_turns.begin(run, found, self._rules, now, grown=grown)
        self.order.add(run)

    def _report_once(self, run: WatchedRun) -> None:
        if not run.reported and run.shown is not None:
            run.reported = True
            self._report(run.shown)

    # ending and continuing

    def end(self, now: float, due: Iterable[WatchedRun]) -> None:
        """Note which of these runs ended, close those that ended a while ago, and reopen those that continue."""
        for run in [*due]:  # a copy: ``_end`` shortens ``watches``, which they may be
            if run.ready and run.is_over(now):
                self._end(run, now)
            elif run.ready and run.life.ended is not None:
                run.life.go_on()
                run.past = False
                self._state_writer.reopen(run.name)
            self._view(run)

    def pass_by(self, now: float) -> None:
        """Keep runs that ended long ago on the page only, and hurry those whose input closed; called each second."""
        for run in self.order.watches:
            if run.life.ended is None and run.options.ended():  # no write announces it
                self.order.hurry(run, now)
        before = [run for run in self if not run.is_read and not run.past]
        for run in before:
            run.past = not self._lingers(run, now)
        if any(run.past for run in before):
            self._view_all()

    def close(self) -> None:
        """Free all file handles."""
        for run in self.order.watches:
            run.reader.close()

    def _lingers(self, run: WatchedRun, now: float) -> bool:
        noted = run.life.noted
        return noted is None or now - noted <= self._linger

    def _miss(self, run: WatchedRun, found: Sequence[FoundRun], files: Collection[int], now: float) -> None:
        """Handle a run that was not found; a lost run stays on show for a while, unless it is part of another run."""
        held, read = (run.reader.held(), run.reader.bytes) if run.is_read else (frozenset[int](), 0)
        known = run.found is not None
        if not run.life.missed and known:
            log.info("a run is not found at present; its open files are read on", extra={"fields": {"run": run.name}})
        part = run.found is not None and any(other.root in run.found.root.parents for other in found)
        if not run.life.miss(now, read, held=bool(held), moved=part or bool(held & set(files))):
            return
        if part:
            run.shown = None
        elif known:
            log.warning("a run is not found any more", extra={"fields": {"run": run.name}})
        self._let_go(run, now)
        if run.shown is not None and WORST_FIRST.index(run.shown.verdict) > MISSED:
            run.shown = replace(run.shown, verdict=RunVerdict.LOST)
            self._state_writer.commit([StoredBatch(run.name, now, snapshot=run.shown)], now)

    def _end(self, run: WatchedRun, now: float) -> None:
        written = min(run.end.written or now, now)
        if run.life.ended is None:
            run.life.end(written, now)
            run.keep_end(now)
            log.info("a run ended", extra={"fields": {"run": run.name}})
            return
        newest = written if run.found is None else max(written, newest_write(run.found))  # a copy's files are younger
        if not run.reader.waiting and now - newest > SETTLE_SECONDS:
            run.life.ended = max(run.life.ended, written)
            self._let_go(run, now)

    def _let_go(self, run: WatchedRun, now: float) -> None:
        """Close a run's files and drop its windows; discovery wakes it when a file changes."""
        if run.is_read:
            self.order.remove(run)
            run.let_go(now)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_GONE} more" if len(names) > SHOWN_GONE else ""
    return ", ".join(names[:SHOWN_GONE]) + more


def _inodes(found: Iterable[FoundRun]) -> frozenset[int]:
    nodes = set()
    for channel in (channel for run in found for channel in run.channels):
        with suppress(OSError):
            nodes.add(channel.path.stat().st_ino)
    return frozenset(nodes)


def _identities_of(found: Sequence[FoundRun], name_of: Callable[[str], str | None]) -> list[str]:
    """A key of each run that survives renaming: its folder, its address, or its log file and its name there.

    Of several runs in one file, one inherits the key from when the file held one run: the run of that name, else the
    first.
    """
    identities = list(map(_identity_of, found))
    taken = set(identities)
    held: dict[Path, list[int]] = {}
    for at, run in enumerate(found):
        if _is_part(run):
            held.setdefault(run.channels[0].path, []).append(at)
    for path, places in held.items():
        first = found[places[0]]
        for before in (_text(path), _text(first.root)):
            name = None if before in taken else name_of(before)
            heirs = [at for at in places if found[at].name == name]
            if name is not None and (heirs or first.channels[0].what.tracker is None):
                identities[(heirs or places)[0]] = before
                taken.add(before)
                break
    return identities


def _identity_of(run: FoundRun) -> str:
    if run.remote:
        return run.remote
    lone = bool(run.channels) and not run.channels[0].in_folder
    path = _text(run.channels[0].path if lone else run.root)
    return f"{path}{MARK}{run.channels[0].run}" if _is_part(run) else path


def _is_part(run: FoundRun) -> bool:
    """Whether the run is one of several in a file."""
    return bool(run.channels) and not run.channels[0].in_folder and bool(run.channels[0].run)


def _text(path: Path) -> str:
    return str(path.absolute()).encode("utf-8", "backslashreplace").decode()
