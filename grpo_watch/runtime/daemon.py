"""The live driver: finds runs, gives each its turns, stores what they say, publishes one immutable picture."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_watch.core.snapshot import RunSnapshot
from grpo_watch.errors import GrpoWatchError
from grpo_watch.runtime.census import Tracked, count, identity_of, newest_past, newest_write, statuses, swallowed
from grpo_watch.runtime.clock import Jumps
from grpo_watch.runtime.closeup import Closeup, pack
from grpo_watch.runtime.delivery.desk import Desk
from grpo_watch.runtime.keeper import Keeper
from grpo_watch.runtime.options import Options
from grpo_watch.runtime.reconcile import RuleSet
from grpo_watch.runtime.runwatch import Means, RunWatch
from grpo_watch.runtime.sparks import Spark
from grpo_watch.sinks.base import Histogram, Picture
from grpo_watch.sources.deferred import Submit
from grpo_watch.sources.discover import FoundRun
from grpo_watch.store.state import Batch

POLL_SECONDS = 0.2
"""Longest time between a write and its reading, without inotify."""
TICK_SECONDS = 1.0
STORE_SECONDS = 0.5
"""Where the turns of many runs take longer (a start), what was sent and read by then is stored between them."""
HOUSEKEEPING_SECONDS = 60.0
LATE_SECONDS = 10.0
"""An engine that did not begin a turn for so long is ill (``/healthz``)."""
DRAIN_SECONDS = 60.0
"""A daemon that ends because all is done waits so long for its messages to be delivered."""
SETTLE_SECONDS = 60.0
"""An ended run is read for so long after its last write (a last checkpoint, a model card), then let go."""

log = logging.getLogger("grpo_watch.daemon")


@dataclass(frozen=True, slots=True)
class Plan:
    """How the daemon behaves. ``linger`` is how many seconds an ended run stays on ``/metrics``."""

    linger: float = 3_600.0
    retention_days: float = 14.0
    retention_bytes: float = 500e6
    exit_when_done: bool = False


DEFAULT = Plan()


class Daemon:
    """Everything but threads: ``turn`` does what is to be done now and says how long to wait.

    Args:
        keeper: the state.
        rules: loads the rules in force; asked at the start and at each reload. May raise ``GrpoWatchError``.
        submit: runs heavy work elsewhere.
        options: what is said of a found run from outside.
        clock: Unix seconds.
        timer: monotonic seconds.
        plan: how to behave.
        report: told once of each run when it was first read (for people at a terminal).
        desk: takes what is to be sent.
    """

    def __init__(  # noqa: PLR0913  what it is connected to
        self,
        keeper: Keeper,
        rules: Callable[[], RuleSet],
        submit: Submit,
        *,
        options: Callable[[FoundRun], Options] = lambda _: Options(),
        clock: Callable[[], float],
        timer: Callable[[], float],
        plan: Plan = DEFAULT,
        report: Callable[[RunSnapshot], None] = lambda _: None,
        desk: Desk | None = None,
    ) -> None:
        self._keeper, self._load, self._submit, self._options = keeper, rules, submit, options
        self._clock, self._timer, self._plan, self._report = clock, timer, plan, report
        self._desk = desk or Desk()
        self._desk.load(keeper.messages())
        self._rules = rules()
        self._runs: dict[str, Tracked] = {}
        self._found: Sequence[FoundRun] | None = None
        self._problems: tuple[str, ...] = ()
        self._looks = 0
        self._reload_wanted = False
        self._reload_ok = True
        self._rules_problem = ""
        self._turns = Histogram()
        self._past: Counter[str] = Counter()
        self._past_errors: Counter[tuple[str, str]] = Counter()
        self._ticked_at, self._jumps = 0.0, Jumps()
        self._kept_at = self._clock()
        self._state_bytes = keeper.size()
        self._beat = self._stored_at = timer()
        self._busy_look = 0
        self._drain_until: float | None = None
        self.done = False
        self._restore()
        self._picture = self._paint()

    # what other threads may call

    def picture(self) -> Picture:
        """The newest picture."""
        return self._picture

    def closeup(self, run: str) -> Closeup:
        """What the page of a run shows beyond the picture."""
        return self._runs.get(run, Tracked(run)).closeup()

    def sparks(self, run: str) -> Mapping[str, Spark]:
        """The sparklines of a run."""
        return self._runs.get(run, Tracked(run)).sparks()

    def rules(self) -> RuleSet:
        """The rules in force."""
        return self._rules

    def late(self) -> float | None:
        """By how many seconds the engine is late; None when it is not."""
        silent = self._timer() - self._beat
        return silent if silent > LATE_SECONDS else None

    def ready(self) -> bool:
        """Whether discovery looked and every run it found was read once."""
        return (
            self._looks > 0 and self._found is None and all(t.watch is None or t.watch.ready for t in self._tracked())
        )

    def look(self, found: Sequence[FoundRun], problems: Sequence[str] = ()) -> None:
        """Discovery looked: these are the runs now, all of them; ``problems`` concern none of them, one line each."""
        for problem in problems:
            if problem not in self._problems:
                log.warning("not read", extra={"fields": {"problem": problem}})
        self._problems = tuple(problems)
        self._found = found

    def folders(self) -> list[Path]:
        """The folders of the logs of runs that go on, newest runs first: where a write should be seen at once."""
        going_on = [t for t in reversed(self._tracked()) if t.watch is not None and t.ended is None and t.is_local]
        sources = [source for tracked in going_on if tracked.watch for source in tracked.watch.opened.sources]
        return list(dict.fromkeys(source.path.parent for source in sources if source.kind is not None))

    def folder_of(self, run: str) -> Path | None:
        """The folder of a run; None where it is not known, or on a server."""
        tracked = self._runs.get(run)
        return tracked.found.root if tracked and tracked.found and tracked.is_local else None

    def reload(self) -> None:
        """Load the rules anew at the next turn."""
        self._reload_wanted = True

    # the engine

    def turn(self) -> float:
        """Do what is to be done now; returns for how many seconds the engine may wait (0: there is more to do)."""
        started = self._beat = self._timer()
        now = self._clock()
        if self._reload_wanted:
            self._reload(now)
        if self._found is not None:
            self._take_found(now)
        more = self._give_turns(now)
        self._store(now)
        self._end_runs(now)
        self._keep_house(now)
        self._picture = self._paint()
        self._beat = self._timer()
        self._turns = self._turns.plus(self._beat - started)
        return 0.0 if more else POLL_SECONDS

    def close(self) -> None:
        """Store what there is to store, and let go of everything."""
        now = self._clock()
        self._store(now)
        for tracked in self._tracked():
            if tracked.watch is not None:
                tracked.watch.close()
        self._keeper.close(now)

    def _give_turns(self, now: float) -> bool:
        ticks = now - self._ticked_at >= TICK_SECONDS
        if ticks:
            self._ticked_at = now
        jumped = ticks and self._jumps.seen(now, self._timer())
        more = False
        for tracked in self._tracked():
            watch = tracked.watch
            if watch is None:
                continue
            more = watch.turn(now) or more
            watch.heed(self._rules_problem, now)
            if ticks and not watch.over(now):
                watch.tick(now, jumped=jumped)
            self._beat = self._timer()
            if self._beat - self._stored_at >= STORE_SECONDS:
                self._store(now)
        self._desk.tell(tracked.watch for tracked in self._tracked() if tracked.watch is not None)
        return more

    def _store(self, now: float) -> None:
        batches = []
        for watch in [tracked.watch for tracked in self._tracked() if tracked.watch is not None]:
            batch = watch.batch(now)
            if batch is not None:
                self._desk.take(watch, batch, now)
                batches.append(batch)
            self._desk.arrive(watch, now)
        self._desk.turn(now, self._timer(), ready=self.ready())
        sent = self._desk.changes()
        if batches or sent or not self._keeper.ok:
            self._keeper.commit(batches, now, sent)
        self._desk.committed()
        self._stored_at = self._timer()
        for tracked in self._tracked():
            if tracked.watch is not None and tracked.watch.ready:
                tracked.snapshot = tracked.watch.picture()
                self._tell(tracked)

    # runs that come, end and go on

    def _restore(self) -> None:
        """Show what is stored at once, before anything is read."""
        for stored in self._keeper.runs():
            tracked = Tracked(stored.name, ended=stored.ended, noted=stored.noted)
            self._runs[stored.name] = tracked
            tracked.past = not self._is_shown(tracked, self._clock())
        for tracked in [*newest_past(self._tracked()), *(one for one in self._tracked() if not one.past)]:
            tracked.snapshot = self._keeper.snapshot(tracked.name)
            tracked.history = self._keeper.history(tracked.name) if tracked.ended is not None else None

    def _is_shown(self, tracked: Tracked, now: float) -> bool:
        return tracked.noted is None or now - tracked.noted <= self._plan.linger

    def _take_found(self, now: float) -> None:
        found, self._found = self._found or (), None
        names: set[str] = set()
        for run in found:
            options = self._options(run)
            wanted = options.name.replace("{folder}", run.name).encode("utf-8", "replace").decode()
            name = self._keeper.register(identity_of(run), wanted, now)
            names.add(name)
            self._take(self._runs.setdefault(name, Tracked(name)), run, options, now)
        for tracked in self._tracked():
            if tracked.name not in names and tracked.ended is None:
                self._lose(tracked, found, now)
        self._looks += 1

    def _take(self, tracked: Tracked, run: FoundRun, options: Options, now: float) -> None:
        tracked.found, tracked.options = run, options
        if tracked.watch is not None:
            tracked.watch.update(run)
        elif tracked.ended is None or tracked.lost or newest_write(run) > tracked.ended:
            tracked.lost = False
            self._wake(tracked, run, now)
        else:
            self._tell(tracked)

    def _tell(self, tracked: Tracked) -> None:
        """Report a run, once."""
        if not tracked.told and tracked.snapshot is not None:
            tracked.told = True
            self._report(tracked.snapshot)

    def _wake(self, tracked: Tracked, run: FoundRun, now: float) -> None:
        means = Means(self._rules, self._keeper, self._submit)
        tracked.watch = RunWatch(tracked.name, run, means, tracked.options, now)

    def _lose(self, tracked: Tracked, found: Sequence[FoundRun], now: float) -> None:
        """A run is not found any more: what is known of it is shown for a while, unless it belongs to another one."""
        if tracked.found is not None and swallowed(tracked.found, found):
            tracked.snapshot = None
        tracked.lost, tracked.ended, tracked.noted = True, now, now
        self._let_go(tracked, now)

    def _end_runs(self, now: float) -> None:
        for tracked in self._tracked():
            watch = tracked.watch
            if watch is None:
                tracked.past = not self._is_shown(tracked, now)
            elif watch.over(now):
                self._end(tracked, watch, now)
            elif watch.ready and tracked.ended is not None:
                tracked.ended, tracked.noted, tracked.past = None, None, False
                self._keeper.reopen(tracked.name)
        if self._plan.exit_when_done:
            self._maybe_done()

    def _end(self, tracked: Tracked, watch: RunWatch, now: float) -> None:
        written = min(watch.lifecycle.written or now, now)
        if tracked.ended is None:
            tracked.ended, tracked.noted = written, now
            self._keep_end(tracked, watch, now)
            log.info("a run ended", extra={"fields": {"run": tracked.name}})
        elif not watch.waiting and now - written > SETTLE_SECONDS:
            tracked.ended = max(tracked.ended, written)
            self._let_go(tracked, now)

    def _let_go(self, tracked: Tracked, now: float) -> None:
        """Close a run's files and drop its windows; discovery wakes it when a file changes."""
        watch, tracked.watch = tracked.watch, None
        if watch is not None:
            count(watch, self._past, self._past_errors)
            tracked.channels = tuple(replace(status, read_at=None) for status in statuses(watch))
            self._keep_end(tracked, watch, now)
            watch.close()

    def _keep_end(self, tracked: Tracked, watch: RunWatch, now: float) -> None:
        tracked.history = pack(watch.lens.closeup())
        self._keeper.commit([Batch(tracked.name, now, history=tracked.history, ended=tracked.ended)], now)

    def _maybe_done(self) -> None:
        """Everything has ended and was read, and discovery looked twice since without finding anything new."""
        tracked = self._tracked()
        waiting = any(t.watch is not None and t.watch.waiting for t in tracked)
        if not tracked or waiting or self._found is not None or any(t.ended is None for t in tracked):
            self._busy_look = self._looks
        elif self._looks >= self._busy_look + 2:
            self._finish(tracked)

    def _finish(self, tracked: Sequence[Tracked]) -> None:
        """Take what sources held back, and be done once the messages about it are delivered."""
        if self._drain_until is None:
            self._drain_until = self._timer() + DRAIN_SECONDS
            for watch in [t.watch for t in tracked if t.watch is not None]:
                watch.finish()
            self._store(self._clock())
        late = self._timer() >= self._drain_until
        self.done = self._desk.idle or late
        if late and not self._desk.idle:
            log.error("messages wait that were not delivered", extra={"fields": {"waiting": self._desk.lengths()}})

    # rules, state, picture

    def _reload(self, now: float) -> None:
        self._reload_wanted = False
        try:
            rules = self._load()
        except GrpoWatchError as error:
            self._reload_ok, self._rules_problem = False, str(error)
            log.error("settings not reloaded; the old ones stay", extra={"fields": {"error": str(error)}})  # noqa: TRY400
            return
        self._reload_ok, self._rules_problem = True, ""
        if rules == self._rules:
            return
        self._store(now)
        self._rules = rules
        for tracked in self._tracked():
            if tracked.watch is not None and tracked.found is not None:
                count(tracked.watch, self._past, self._past_errors)
                tracked.watch.close()
                self._wake(tracked, tracked.found, now)
        log.warning("rules reloaded", extra={"fields": {"rules": len(rules.rules)}})

    def _keep_house(self, now: float) -> None:
        if now - self._kept_at >= HOUSEKEEPING_SECONDS:
            self._kept_at = now
            self._keeper.prune(now, self._plan.retention_days, self._plan.retention_bytes)
            self._state_bytes = self._keeper.size()

    def _paint(self) -> Picture:
        runs = tuple(filter(None, (tracked.picture() for tracked in self._tracked() if not tracked.past)))
        records, errors = Counter(self._past), Counter(self._past_errors)
        for tracked in self._tracked():
            if tracked.watch is not None:
                count(tracked.watch, records, errors)
        return Picture(
            runs=runs,
            records=records,
            errors=errors,
            state_bytes=self._state_bytes,
            state_ok=self._keeper.ok,
            reload_ok=self._reload_ok,
            turns=self._turns,
            problems=self._told_problems(),
            deliveries=self._desk.counts(),
            queues=self._desk.lengths(),
            troubled=frozenset(self._desk.troubled),
            page=self._desk.page,
            past=tuple(filter(None, (tracked.picture() for tracked in newest_past(self._tracked())))),
        )

    def _told_problems(self) -> tuple[str, ...]:
        own = [] if self._keeper.ok else ["State can't be written; the watch goes on in memory."]
        if not self._reload_ok:
            own.append(f"Settings or rules can't be loaded; the old ones stay in force: {self._rules_problem}")
        own += [f"{sink} gets nothing: {why}" for sink, why in self._desk.troubled.items()]
        return (*own, *self._problems)

    def _tracked(self) -> list[Tracked]:
        return list(self._runs.values())
