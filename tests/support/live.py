"""The daemon without threads, clocks and a worker process: a test turns it by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grpo_watch.catalogue import catalogue
from grpo_watch.daemon import first_turns
from grpo_watch.daemon.daemon import Daemon, DaemonOptions
from grpo_watch.daemon.dispatcher import NotificationDispatcher
from grpo_watch.daemon.run_end import LOST_LOOKS, LOST_SECONDS
from grpo_watch.daemon.run_reader import WatchOptions
from grpo_watch.daemon.state_writer import StateWriter
from grpo_watch.daemon.watched_run import WatchedRun
from grpo_watch.engine.records import Transition
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.errors import GrpoWatchError
from grpo_watch.notify.receiver import RoutedReceiver
from grpo_watch.rules.packs import load_rules
from grpo_watch.rules.rule_changes import RuleSet, rule_set
from grpo_watch.sources.discovery.discover import Discoverer, FoundRun
from grpo_watch.store import codec
from grpo_watch.store.state import Store
from tests.support.bundles import RECORDED
from tests.support.feeding import RUN

SHIPPED = rule_set(load_rules(), catalogue())


def transitions_in(store: Store, run: str, *, backlog: bool = True) -> list[Transition]:
    """The stored transitions of a run in the order they were reached; without those of the backlog on request."""
    query = "SELECT data, backlog FROM transitions JOIN runs ON run = runs.id WHERE name = ? ORDER BY number"
    rows = store._database.execute(query, (run,)).fetchall()
    return [codec.decode(Transition, data) for data, old in rows if backlog or not old]


class Done:
    """Work done at once, in place."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._value = function(*arguments)

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return self._value


def each_time(*answers: RuleSet | GrpoWatchError) -> Callable[[], RuleSet]:
    """Rule files that change: each load takes the next answer, an error is raised."""
    left = iter(answers)

    def load() -> RuleSet:
        answer = next(left)
        if isinstance(answer, GrpoWatchError):
            raise answer
        return answer

    return load


class Live:
    """A daemon over ``path`` whose clock stands still unless ``now`` is set; state in ``state``.

    ``timer`` is what the monotonic clock shows besides the time that passed with ``now``. ``before`` was without state,
    which this one takes up.
    """

    def __init__(  # noqa: PLR0913  what a test may vary
        self,
        path: Path,
        state: Path,
        *,
        now: float,
        rules: Callable[[], RuleSet] = lambda: SHIPPED,
        submit: Any = Done,
        dispatcher: NotificationDispatcher | None = None,
        options: Callable[[FoundRun], WatchOptions] = lambda _: WatchOptions(),
        before: Live | None = None,
        **plan: Any,
    ) -> None:
        self.now, self.timer, self.path = now, 0.0, path
        self.reported: list[RunSnapshot] = []
        self._receivers: Sequence[RoutedReceiver] | None = None
        self.discoverer = Discoverer()
        self.store = Store(state, now, began=before.store.started if before else None)
        self.state_writer = StateWriter(self.store, before.state_writer.left if before else None)
        self.daemon = Daemon(
            self.state_writer,
            rules,
            submit,
            options=options,
            clock=lambda: self.now,
            timer=lambda: self.timer + self.now - now,
            plan=DaemonOptions(**plan),
            report=self.reported.append,
            dispatcher=dispatcher,
            receivers=self._brought,
        )

    def follow(self, *routed: RoutedReceiver) -> None:
        """As after a SIGHUP that brought these receivers."""
        self._receivers = routed
        self.daemon.turn()

    def _brought(self) -> Sequence[RoutedReceiver] | None:
        brought, self._receivers = self._receivers, None
        return brought

    def look(self) -> None:
        """Let discovery look."""
        self.daemon.look(self.discoverer.discover(self.path), self.discoverer.problems)

    def folders(self) -> list[Path]:
        """Where a write concerns a run."""
        return [*self.daemon._registry.order.places]

    def settle(self, seconds: float = 1.1) -> None:
        """Look, and turn until there is nothing more to do; the clock moves on once, and writes are noticed."""
        self.now += seconds
        self.look()
        for _ in range(1_000):
            if self.daemon.turn(self.folders()) and self.daemon.ready():
                return
        raise AssertionError("the daemon never comes to rest")

    def lose(self) -> None:
        """Settle until a run whose files are gone is lost."""
        for _ in range(LOST_LOOKS):
            self.settle(LOST_SECONDS / 2)

    def run(self, name: str | None = None) -> RunSnapshot:
        """The snapshot of a run (of the only one)."""
        found = {run.snapshot.run: run.snapshot for run in self.daemon.snapshot().runs}
        return found[name] if name else next(iter(found.values()))

    def transitions(self, run: str) -> list[Transition]:
        """The stored transitions of a run."""
        return transitions_in(self.store, run)

    def kill(self) -> None:
        """As ``kill -9`` would: nothing more is stored, the lock is free."""
        self.store.close()

    def close(self) -> None:
        """The clean end."""
        self.daemon.close()


def watched(folder: Path, rules: RuleSet = SHIPPED, now: float = RECORDED) -> WatchedRun:
    """A run without files, begun; a test feeds it. The state is kept in ``folder``."""
    store = Store(folder / "state", now)
    store.register("/runs/run", RUN, now)
    return watched_from(store, rules, now)


def watched_from(store: Store, rules: RuleSet = SHIPPED, now: float = RECORDED) -> WatchedRun:
    """The same of what is stored."""
    found = FoundRun(store.folder / "run", RUN, None, ())
    run = WatchedRun(RUN, 0, StateWriter(store), Done)
    first_turns.begin(run, found, rules, now)
    while not run.ready:
        run.turn(now)
    return run
