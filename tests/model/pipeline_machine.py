"""Random rows in real logs, read by the real daemon, stored, queued and sent, while all around it fails.

Between any two moments: the clock steps, the disk is full, rules are reloaded, the process is killed. What arrives
is held against ``contract``, which knows the rows only.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from grpo_watch.daemon import daemon
from grpo_watch.daemon.daemon import Daemon
from grpo_watch.daemon.dispatcher import NotificationDispatcher
from grpo_watch.daemon.schedule import Intervals, SteadyClock
from grpo_watch.daemon.state_writer import StateWriter
from grpo_watch.errors import RuleError
from grpo_watch.notify import outbox as queue
from grpo_watch.notify.delivery_worker import DeliveryWorker, WorkerContext
from grpo_watch.notify.receiver import RoutedReceiver
from grpo_watch.rules.rule_changes import RuleSet
from grpo_watch.sources.discovery.discover import Discoverer
from grpo_watch.store.state import Store, StoreError
from tests.model import stored as state
from tests.model.contract import Absence, News, Row, alternates, in_order
from tests.model.pipeline_debts import Debts
from tests.model.pipeline_scene import (
    BEGIN,
    FEW,
    LOUD_ROW,
    QUIET_ROW,
    ROUTES,
    ROWS,
    RUNS,
    Log,
    rules,
)
from tests.model.scripted import ANSWERS, KilledError, Wire
from tests.support.live import Done


class PipelineMachine(RuleBasedStateMachine):
    """``wall`` is the machine's clock, which may step; ``timer`` the one that does not."""

    histories = kills = rows_written = messages = dropped = 0

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="pipeline"))
        self.wall, self.timer = BEGIN, 1_000.0
        self.logs = {name: Log(self.folder / "runs" / name) for name in RUNS}
        self.wires = {name: Wire(name, lambda: self.wall) for name in ROUTES}
        self.hint, self.broken = "first", False
        self.full = False
        self.overflows = False
        self.debts = {name: Debts(name, {run: log.rows for run, log in self.logs.items()}) for name in ROUTES}

    # the process

    @initialize(overflows=st.sampled_from([False, False, True]), crowded=st.booleans())
    def begin(self, overflows: bool, crowded: bool = False) -> None:  # noqa: FBT001, FBT002  hypothesis passes names
        """One quiet row per run is there at the first look; so nothing is a backlog. A crowd is stored less often."""
        self.overflows = overflows
        self.crowd = patch.object(daemon, "intervals", lambda _: Intervals(store=20.0) if crowded else Intervals())
        self.crowd.start()
        self.limits = patch.multiple(queue, MOST_WAITING=FEW if overflows else 10_000, DIGEST_FROM=3)
        self.limits.start()
        for log in self.logs.values():
            log.write([QUIET_ROW], self.wall)
        self.start()
        self.settle()

    def start(self, early: str = "") -> None:
        """A process begins, and reads what is stored; a receiver may take a message before discovery has looked."""
        self.store = Store(self.folder / "state", self.wall)
        self._commit = self.store.commit
        self.dispatcher = NotificationDispatcher(self.routed(ROUTES))
        self.brought: list[RoutedReceiver] | None = None
        self.daemon = Daemon(
            StateWriter(self.store),
            self.load,
            Done,
            clock=SteadyClock(lambda: self.wall, lambda: self.timer),
            timer=lambda: self.timer,
            dispatcher=self.dispatcher,
            receivers=self.take_brought,
        )
        self.update_workers()
        self.discoverer = Discoverer()
        self.store.commit = self.commit  # type: ignore[method-assign]
        self.dies = ""
        if early:
            self.send(early, ["200"])
            self.daemon.turn()
        self.look()

    def update_workers(self) -> None:
        """A delivery worker for each receiver."""
        around = WorkerContext(self.daemon.snapshot, lambda: self.wall, lambda: self.timer, lambda: 1.0, lambda: None)
        self.delivery_workers = {outbox.name: DeliveryWorker(outbox, around) for outbox in self.dispatcher.outboxes}

    def routed(self, names: Iterable[str]) -> list[RoutedReceiver]:
        """These receivers, in their order."""
        return [RoutedReceiver(self.wires[name].receiver(), route) for name, route in ROUTES.items() if name in names]

    def take_brought(self) -> list[RoutedReceiver] | None:
        """What a SIGHUP brought."""
        brought, self.brought = self.brought, None
        return brought

    def load(self) -> RuleSet:
        """The rules as their files are now."""
        if self.broken:
            raise RuleError("mine.yaml:3:5: no")
        return rules(self.hint)

    def commit(self, *arguments: Any) -> None:
        """What the store does, or does not: the disk is full, or the process dies just before it or after."""
        if self.full:
            raise StoreError("database or disk is full")
        if self.dies == "before":
            raise KilledError
        self._commit(*arguments)
        if self.dies == "after":
            raise KilledError

    def look(self) -> None:
        """Discovery looks."""
        self.daemon.look(self.discoverer.discover(self.folder / "runs"), self.discoverer.problems)

    def settle(self) -> None:
        """Turn until there is nothing more to do."""
        for _ in range(1_000):
            if self.daemon.turn() and self.daemon.ready():
                return
        raise AssertionError("the daemon never comes to rest")

    # what happens in the world

    @rule(run=st.sampled_from(RUNS), more=st.lists(ROWS, min_size=1, max_size=6), cut=st.sampled_from([1.0, 1.0, 0.5]))
    def write(self, run: str, more: list[Row], cut: float) -> None:
        """Rows are appended; the last one perhaps not to its end."""
        self.logs[run].write(more, self.wall, cut)

    @rule(data=st.data(), run=st.sampled_from(RUNS))
    def work(self, data: st.DataObject, run: str) -> None:
        """What happens all day: rows come, are read, and some receivers answer."""
        self.logs[run].write(data.draw(st.lists(ROWS, min_size=2, max_size=8)), self.wall)
        self.wait(1.1)
        for name in data.draw(st.lists(st.sampled_from(list(ROUTES)), max_size=3)):
            self.send(name, data.draw(st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=4)))

    @rule(seconds=st.sampled_from([0.3, 1.1, 20.0, 70.0, 900.0, 4_000.0]))
    def wait(self, seconds: float) -> None:
        """Time passes; discovery looks and the engine turns."""
        self.wall += seconds
        self.timer += seconds
        self.look()
        self.daemon.turn()

    @rule(seconds=st.sampled_from([-3_600.0, -90.0, -2.0, 2.0, 90.0, 3_000.0]))
    def set_clock(self, seconds: float) -> None:
        """Somebody sets the machine's clock."""
        self.wall += seconds

    @rule(full=st.booleans())
    def fill(self, full: bool) -> None:  # noqa: FBT001  hypothesis passes by name
        """The disk is full, or has room again."""
        self.full = full

    # what the process does

    @rule()
    def turn(self) -> None:
        """The engine turns once."""
        self.daemon.turn()

    @rule(hint=st.sampled_from(["first", "second"]), broken=st.booleans())
    def reload(self, hint: str, broken: bool) -> None:  # noqa: FBT001  hypothesis passes by name
        """SIGHUP; the rule files hold another hint, or don't load."""
        self.hint, self.broken = hint, broken
        self.daemon.reload()
        self.daemon.turn()
        self.broken = False

    @rule(name=st.sampled_from(["plain", "digests", "critical"]), while_away=st.integers(0, 3))
    def receivers_change(self, name: str, while_away: int) -> None:
        """SIGHUP takes a receiver out, the engine turns, and another SIGHUP brings it back."""
        before = self.steps()
        self.brought = self.routed({*ROUTES} - {name})
        self.daemon.turn()
        for _ in range(while_away):
            self.wait(1.1)
        self.debts[name].away += [Absence(run, before[run], until) for run, until in self.steps().items()]
        self.brought = self.routed(ROUTES)
        self.daemon.turn()
        self.update_workers()

    @rule(name=st.sampled_from(list(ROUTES)), answers=st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=6))
    def send(self, name: str, answers: list[str]) -> None:
        """A receiver answers as written; the engine turns now and then between its answers."""
        wire = self.wires[name]
        wire.answers.extend(answers)
        try:
            for _ in answers:
                if self.delivery_workers[name].step() > 0.0:
                    self.daemon.turn()
                    self.timer, self.wall = self.timer + 1.0, self.wall + 1.0
        except KilledError:
            self.kill()
        wire.answers.clear()

    @rule()
    def kill(self) -> None:
        """kill -9, and the next start."""
        PipelineMachine.kills += 1
        self.die()
        self.start()

    def die(self) -> None:
        """The process ends. What was not stored since the disk is full, the next one does not know."""
        if not self.daemon.snapshot().state_ok:
            stored = Counter(run for run, _ in self.stored_rows().elements())
            for name, wire in self.wires.items():
                self.debts[name].forget([self.news_of(part) for part in wire.seen.values()], stored)
            watcher = self.wires["watcher"]
            watcher.forgotten |= watcher.seen.keys() - self.ended("watcher", "delivered")
        self.store.close()

    @rule(name=st.sampled_from(list(ROUTES)))
    def repaired_while_down(self, name: str) -> None:
        """A receiver refuses one message, and takes the next before the next process has read anything."""
        self.send(name, ["400"])
        self.wait(1.1)
        self.die()
        self.start(early=name)

    @rule(moment=st.sampled_from(["before", "after"]))
    def killed_while_storing(self, moment: str) -> None:
        """What is read was not stored, or was; what was stored is not sent."""
        self.dies = moment
        try:
            self.timer, self.wall = self.timer + 1.1, self.wall + 1.1
            self.daemon.turn()
        except KilledError:
            pass
        self.kill()

    # what is promised

    @invariant()
    def nothing_but_what_is_owed(self) -> None:
        """Nobody gets what no row says, nor a run's news in another order, nor what is of no concern to him."""
        if not hasattr(self, "store"):
            return
        for name, wire in self.wires.items():
            if name == "watcher":
                continue
            news = [self.news_of(part) for part in wire.seen.values()]
            assert len(set(news)) == len(news), "one event, two ids"
            debts = self.debts[name]
            assert debts.known().issuperset(map(debts.meant, news))
            on_time = [each for each in news if each not in debts.late]
            assert in_order(on_time), f"{name} got the news of a run in another order"

    @invariant()
    def queues_are_bounded(self) -> None:
        """Beside what is under way in one message."""
        if self.overflows and hasattr(self, "store"):
            assert max(self.dispatcher.lengths().values()) <= FEW + 1

    def teardown(self) -> None:
        """The end of one history: all is well for a while, and everybody has what he was promised."""
        try:
            if hasattr(self, "store"):
                self.end_well()
                self.check()
                self.store.close()
                self.limits.stop()
                self.crowd.stop()
        finally:
            shutil.rmtree(self.folder)

    def end_well(self) -> None:
        """Lines are finished, the disk has room, receivers answer, time passes, and there is news for everybody."""
        self.full, self.dies = False, ""
        for log in self.logs.values():
            log.write([QUIET_ROW, LOUD_ROW, QUIET_ROW], self.wall)
        idle = 0
        for _ in range(400):
            self.wall, self.timer = self.wall + 61.0, self.timer + 61.0
            self.look()
            self.settle()
            for worker_thread in self.delivery_workers.values():
                while worker_thread.step() == 0.0:
                    pass
            self.daemon.turn()
            idle = idle + 1 if self.dispatcher.idle and not self.behind() else 0
            if idle > 1:  # that a receiver is well again is noticed with the next tick, and sent then
                return
        raise AssertionError(f"messages wait for ever: {self.dispatcher.lengths()}")

    def steps(self) -> dict[str, int]:
        """The step of each run that was read last; at the start some are not read again yet."""
        stored, watches = self.stored_rows(), self.daemon._registry.order.watches
        read = [(name, step or 0) for name, step in stored] + [(watch.name, watch.step) for watch in watches]
        return {run: max((step for name, step in read if name == run), default=0) for run in RUNS}

    def behind(self) -> bool:
        """Whether a row is not stored yet."""
        return self.stored_rows() != self.written_rows()

    def check(self) -> None:
        """At least once, unless it was refused, or dropped and counted as that; and what is promised all along."""
        self.nothing_but_what_is_owed()
        assert self.stored_rows() == self.written_rows(), "a row is lost or counted twice"
        names: dict[News, set[str]] = {}
        for name, wire in self.wires.items():
            PipelineMachine.messages += wire.messages
            if name == "watcher":
                continue
            for part in wire.seen.values():
                names.setdefault(self.news_of(part), set()).add(part["id"])
            wanted = self.debts[name].owed()
            missing = wanted - {self.debts[name].meant(self.news_of(part)) for part in wire.seen.values()}
            refused = {part["id"] for part in wire.refused.values() if self.news_of(part) in wanted}
            excused = (self.ended(name, "dropped") | refused) - wire.seen.keys()
            assert len(missing) == len(excused), (name, missing, excused)
            PipelineMachine.dropped += len(self.ended(name, "dropped"))
            if not self.overflows:
                assert not self.ended(name, "dropped")
        assert all(len(each) == 1 for each in names.values()), "one event, two ids"
        self.check_watcher()
        PipelineMachine.histories += 1
        PipelineMachine.rows_written += sum(len(log.rows) for log in self.logs.values())

    def check_watcher(self) -> None:
        """Of a receiver that gets nothing, too, each episode is sent once and ended once: all are well by now."""
        wire, stories = self.wires["watcher"], dict[tuple[str, str], list[str]]()
        lacks = wire.refused.keys() | self.ended("watcher", "dropped")
        for part in wire.seen.values():
            stories.setdefault((part["run"], part["evidence"]["channel"]), []).append(part["status"])
        for part in map(wire.seen.__getitem__, wire.forgotten):
            stories.pop((part["run"], part["evidence"]["channel"]), None)
        if not lacks:
            assert all(alternates(statuses, ended=True) for statuses in stories.values()), stories

    # what is looked at

    @staticmethod
    def news_of(part: Mapping[str, Any]) -> News:
        """The event that a message is about."""
        return News(part["run"], part["rule"], part["status"], part["step"])

    def ended(self, name: str, outcome: str) -> set[str]:
        """The ids that the state says ended so."""
        return state.ended(self.folder / "state", name, outcome)

    def stored_rows(self) -> Counter[tuple[str, int | None]]:
        """How often each row is stored."""
        return state.rows(self.folder / "state")

    def written_rows(self) -> Counter[tuple[str, int | None]]:
        """Each row once."""
        return Counter((name, step) for name, log in self.logs.items() for step in range(1, len(log.rows) + 1))
