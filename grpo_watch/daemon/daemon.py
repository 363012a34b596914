"""The live driver: gives each run its turns, stores the results, publishes one immutable snapshot."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_watch.daemon.dispatcher import ABANDON_SECONDS, NotificationDispatcher
from grpo_watch.daemon.run_detail import RunDetail
from grpo_watch.daemon.run_end import QUIET_ENDED
from grpo_watch.daemon.run_reader import WatchOptions
from grpo_watch.daemon.run_registry import RunRegistry
from grpo_watch.daemon.schedule import GROWING_SECONDS, SECOND, Intervals, Jumps, intervals
from grpo_watch.daemon.state_writer import StateWriter
from grpo_watch.daemon.turn_order import first_in_line
from grpo_watch.daemon.watched_run import WatchedRun
from grpo_watch.engine.records import AlertState, Transition
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot, Histogram
from grpo_watch.notify.receiver import RoutedReceiver
from grpo_watch.report.charts import Sparkline
from grpo_watch.rules.rule_changes import RuleSet, RulesInForce
from grpo_watch.sources.base import Submit
from grpo_watch.sources.discovery.discover import FoundRun

POLL_SECONDS = 0.2
"""Longest time between a write and its reading, without inotify and with few runs (``intervals``)."""
STORE_SECONDS = 0.5
"""Longest time between two stores while the turns of many runs last. At startup new runs (an archive) are read for at
most this long per turn, until every known run has had its turn and all are shown."""
HOUSEKEEPING_SECONDS = 60.0
LATE_SECONDS = 10.0
"""The engine is unhealthy (``/healthz``) after this many seconds without beginning a turn."""
DRAIN_SECONDS = 60.0
"""Longest time that a daemon waits, once all runs are done, for its messages to be delivered."""

log = logging.getLogger("grpo_watch.daemon")


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """Options of the daemon.

    ``linger`` is how many seconds an ended run stays on ``/metrics``, ``page`` the status page's address there.
    """

    linger: float = 3_600.0
    retention_days: float = 14.0
    retention_bytes: float = 500e6
    exit_when_done: bool = False
    page: str = ""


DEFAULT = DaemonOptions()


class Daemon:
    """The daemon without its threads: ``turn`` does all due work and returns how long to wait.

    Args:
        state_writer: the state.
        rules: loads the rules in force, at the start and at each reload. May raise ``GrpoWatchError``.
        submit: runs heavy work in another process.
        options: the user's settings of a found run.
        clock: Unix seconds.
        timer: monotonic seconds.
        plan: how to behave.
        report: called once for each run when it was first read (for people at a terminal).
        dispatcher: takes what to send.
        receivers: those that the last loading of the rules brought; None where they are as before.
    """

    def __init__(  # noqa: PLR0913  what it is connected to
        self,
        state_writer: StateWriter,
        rules: Callable[[], RuleSet],
        submit: Submit,
        *,
        options: Callable[[FoundRun], WatchOptions] = lambda _: WatchOptions(),
        clock: Callable[[], float],
        timer: Callable[[], float],
        plan: DaemonOptions = DEFAULT,
        report: Callable[[RunSnapshot], None] = lambda _: None,
        dispatcher: NotificationDispatcher | None = None,
        receivers: Callable[[], Sequence[RoutedReceiver] | None] = lambda: None,
    ) -> None:
        self._state_writer, self._clock, self._timer, self._plan = state_writer, clock, timer, plan
        self._dispatcher, self._receivers = dispatcher or NotificationDispatcher(), receivers
        self._dispatcher.load(state_writer.messages(), state_writer.store.started, ahead=state_writer.ahead)
        self._rules = RulesInForce(rules)
        self._registry = RunRegistry(
            state_writer, submit, self._rules.now, options=options, linger=plan.linger, report=report
        )
        self._registry.restore(clock())
        self._turns = Histogram()
        self._ticked_at, self._jumps, self._apart = 0.0, Jumps(), Intervals()
        self._rows_stored_at = 0.0
        self._kept_at = clock()
        self._state_bytes = state_writer.store.size()
        self._beat = self._stored_at = timer()
        self._drain_until: float | None = None
        self.done = False
        self.begins_again = False
        """Whether it should end for one that takes up the state, which could not be opened at the start."""
        self._all_due = False
        self._unstored: dict[WatchedRun, None] = {}
        """Runs that had a turn since all rows were last stored."""
        self._shown: Sequence[FoundRun] | None = None
        self._snapshot = self._take_snapshot()

    # for other threads

    def snapshot(self) -> DaemonSnapshot:
        """The newest snapshot."""
        return self._snapshot

    def detail(self, run: str) -> RunDetail:
        """The run's detail; an empty one for an unknown run."""
        known = self._registry.get(run)
        return RunDetail() if known is None else known.detail()

    def sparks(self, run: str) -> Mapping[str, Sparkline]:
        """The run's sparklines; empty for an unknown run."""
        known = self._registry.get(run)
        return {} if known is None else known.sparks()

    def rules(self) -> RuleSet:
        """The rules in force."""
        return self._rules.now

    def late(self) -> float | None:
        """The seconds since the engine's last sign of life if more than ``LATE_SECONDS``, else None."""
        silent = self._timer() - self._beat
        return silent if silent > LATE_SECONDS else None

    def ready(self) -> bool:
        """Whether every run that discovery found has been read once and the snapshot shows it."""
        return self._registry.ready and self._registry.taken is self._shown

    @property
    def awaits_look(self) -> bool:
        """Whether the daemon will end as soon as discovery finds nothing new."""
        return self._plan.exit_when_done and self._registry.ended

    def look(self, found: Sequence[FoundRun], problems: Sequence[str] = ()) -> None:
        """Take all runs that discovery found now, and its ``problems`` that concern no run, one line each."""
        self._registry.look(found, problems)

    def reload(self) -> None:
        """Load rules and receivers again at the next turn."""
        self._rules.want()

    # for the engine's thread

    def turn(self, changed: Collection[Path] = (), watched: Collection[Path] = ()) -> float:
        """Do all due work; returns for how many seconds the engine may wait (0: there is more to do).

        ``changed`` are files and folders written to since the last turn, ``watched`` the folders in which every write
        is noticed.
        """
        started = self._beat = self._timer()
        now = self._clock()
        self._reload(now)
        self._registry.take_found(now)
        due, more = self._give_turns(now, changed, watched)
        self._store(now, due, self._apart.store)
        read = self._registry.taken if self._registry.ready else self._shown
        self._registry.end(now, due)
        if self._plan.exit_when_done and self._registry.over():
            self._finish()
        self._keep_house(now)
        self._snapshot = self._take_snapshot()
        self._shown = read
        self._beat = self._timer()
        self._turns = self._turns.plus(self._beat - started)
        at = self._registry.order.next()
        return 0.0 if more else SECOND if at is None else min(SECOND, max(POLL_SECONDS, at - now))

    def close(self) -> None:
        """Store what is unsaved and close everything."""
        now = self._clock()
        self._store(now, self._registry.order.watches)
        self._registry.close()
        self._state_writer.close(now)

    def _reload(self, now: float) -> None:
        asked = self._rules.wanted
        changed, routed = self._rules.reload(), self._receivers()
        if asked or routed is not None:
            self._all_due = True
            self._store(now, self._registry.order.watches)
        if routed is not None:
            self._dispatcher.follow(routed, self._state_writer.messages())
            for watch in self._registry.order.watches:  # what a receiver missed goes before what is read from here on
                self._dispatcher.arrive(watch, now)
            log.warning(
                "receivers reloaded", extra={"fields": {"sinks": ", ".join(one.receiver.name for one in routed)}}
            )
        if asked:
            self._registry.renew(now, self._rules.now if changed else None)
        if changed:
            log.warning("rules reloaded", extra={"fields": {"rules": len(self._rules.now.rules)}})

    def _give_turns(
        self, now: float, changed: Collection[Path], watched: Collection[Path]
    ) -> tuple[Collection[WatchedRun], bool]:
        """Give due runs their turn; returns the runs to store, and whether there is more to do at once."""
        ticks, before = abs(now - self._ticked_at) >= SECOND, self._ticked_at
        if ticks:
            self._ticked_at = now
            self._registry.pass_by(now)
            watches = self._registry.order.watches
            self._apart = intervals(sum(watch.rest.gave_at >= now - GROWING_SECONDS for watch in watches))
        jumped = ticks and self._jumps.seen(now, self._timer())
        apart = self._apart
        found = self._registry.order.due(now, changed, watched, every=self._all_due or jumped or now < before)
        due, more, until = list[WatchedRun](), False, math.inf
        for watch in first_in_line(found):
            if not watch.ready:
                until = min(until, self._timer() + STORE_SECONDS)
                if self._timer() >= until:
                    break
            due.append(watch)
            more = watch.turn(now, apart.listing) or more
            watch.set_problem(self._rules.problem, now)
            watch.tick(now, least=apart.tick, jumped=jumped)
            self._registry.order.rest(watch, now, apart)
            self._registry.count(watch)
            self._beat = self._timer()
            if self._beat - self._stored_at >= STORE_SECONDS:
                self._store(now, due, apart.store)
        self._all_due = self._all_due and len(due) < len(found)
        concerned = self._dispatcher.broadcast(self._registry.order.watches, due, ready=self.ready())
        return concerned, more or len(due) < len(found)

    def _store(self, now: float, watches: Collection[WatchedRun], apart: float = 0.0) -> None:
        """Store these runs in one commit and show them.

        Alert changes are stored at once; rows alone are stored, of all runs, only if the last time is at least
        ``apart`` seconds ago: after a crash the unstored ones are read again.
        """
        rows = not 0.0 <= now - self._rows_stored_at < apart
        self._unstored |= dict.fromkeys(watches)
        read = self._registry.order.watches
        batches = []
        for watch in [watch for watch in self._unstored if watch in read] if rows else watches:
            batch = watch.batch(now, rows=rows)
            if batch is not None:
                if not batch.backlog:
                    _log_alerts(watch.name, batch.transitions)
                self._dispatcher.take(watch, batch, now)
                batches.append(batch)
            self._dispatcher.arrive(watch, now)
        self._dispatcher.turn(now, self._timer(), ready=self._registry.read_since(now - QUIET_ENDED))
        sent = self._dispatcher.changes()
        if batches or sent or not self._state_writer.ok:
            self._state_writer.commit(batches, now, sent)
        if rows:
            self._unstored = {watch: None for watch in self._unstored if watch in read and watch.waits}
        if rows and batches:
            self._rows_stored_at = now
        self._dispatcher.committed()
        self._stored_at = self._timer()
        self._registry.show(watches)

    def _finish(self) -> None:
        """Take the items that sources held back; sets ``done`` when their messages are delivered or time is up."""
        if self._drain_until is None:
            self._drain_until = self._timer() + DRAIN_SECONDS
            for watch in self._registry.order.watches:
                watch.finish(self._clock())
                self._registry.count(watch)
            self._store(self._clock(), self._registry.order.watches)
        late = self._timer() >= self._drain_until
        self.done = self._dispatcher.idle or late
        if late and not self._dispatcher.idle:
            log.error(
                "messages wait that were not delivered", extra={"fields": {"waiting": self._dispatcher.lengths()}}
            )

    def _keep_house(self, now: float) -> None:
        self.begins_again = self.begins_again or self._state_writer.could_begin(now)
        if now - self._kept_at >= HOUSEKEEPING_SECONDS:
            self._kept_at = now
            self._state_writer.prune(now, self._plan.retention_days, self._plan.retention_bytes)
            self._dispatcher.abandoned(self._state_writer.abandon(self._dispatcher.names, now - ABANDON_SECONDS, now))
            self._state_bytes = self._state_writer.store.size()

    def _take_snapshot(self) -> DaemonSnapshot:
        return DaemonSnapshot(
            runs=tuple(self._registry.views.values()),
            records=self._registry.records.copy(),
            errors=self._registry.errors.copy(),
            state_bytes=self._state_bytes,
            state_ok=self._state_writer.ok,
            reload_ok=not self._rules.problem,
            turns=self._turns,
            problems=self._problems(),
            deliveries=self._dispatcher.counts(),
            queues=self._dispatcher.lengths(),
            troubled=frozenset(self._dispatcher.troubled),
            page=self._plan.page,
            past=tuple(self._registry.past_views.values()),
        )

    def _problems(self) -> tuple[str, ...]:
        own = [] if self._state_writer.ok else ["State can't be written; monitoring continues in memory."]
        if self._rules.problem:
            own.append(f"Settings or rules can't be loaded; the old ones stay in force: {self._rules.problem}")
        own += [f"{sink} gets nothing: {why}" for sink, why in self._dispatcher.troubled.items()]
        return (*own, *self._registry.problems)


def _log_alerts(run: str, transitions: Iterable[Transition]) -> None:
    """Log one warning per alert that fires, gets worse or resolves; pending ones are not logged."""
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
