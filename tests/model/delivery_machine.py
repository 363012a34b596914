"""A random history of alerts, commits, kills and answers of receivers, held against what the delivery promises.

The store and the queues are real; the receivers keep every message that reaches them, also those whose answer is lost.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from grpo_watch.engine.records import Cursor, Severity
from grpo_watch.notify.outbox import Outbox
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult, Route, RoutedReceiver
from grpo_watch.store.deliveries import DeliveryChanges
from grpo_watch.store.messages import FIRING, RESOLVED, Message, Notification
from grpo_watch.store.state import Store, StoredBatch
from tests.support.receiving import a_notification

RUNS, RULES = ("a", "b", "c"), ("kl-stuck-at-zero", "entropy-collapse")
ROUTES: Mapping[str, Route] = {
    "all": Route(),
    "digests": Route(digest=True),
    "critical": Route(min_severity=Severity.CRITICAL),
    "one-run": Route(runs=("b",)),
}
ANSWERS = ("delivered", "delivered", "delivered", "lost", "retry", "refused", "killed")


@dataclass
class Named:
    """As much of a receiver as an outbox asks for."""

    name: str
    pace: float = 0.0
    keyed: bool = False


@dataclass
class Receiver:
    """What reached one receiver: alerts in the order of their first arrival, and the ids that it refused."""

    seen: dict[str, Notification] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    messages: int = 0

    def get(self, message: Notification) -> None:
        """Take a message; a digest's parts count as what they are."""
        self.messages += 1
        for part in message.parts or (message,):
            assert replace(self.seen.setdefault(part.id, part), at=0) == replace(part, at=0)


class DeliveryMachine(RuleBasedStateMachine):
    """``script`` is what the runs' files hold; the engine reads it from the stored cursor on, again after each kill."""

    kills = alerts = messages = 0

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="delivery"))
        self.receivers = {name: Receiver() for name in ROUTES}
        self.script: list[Notification] = []
        self.firing: dict[tuple[str, str], Notification] = {}
        self.now = 0.0
        self.poison = ""

    @initialize()
    def start(self) -> None:
        """The first start."""
        self.store = Store(self.folder, 1.0)
        self.store.register("runs", "runs", 1.0)
        self.open()

    def open(self) -> None:
        """Begin, or go on from what is stored."""
        kept = self.store.messages()
        self.outboxes = {
            name: Outbox(RoutedReceiver(Named(name), route), lambda: 1.0) for name, route in ROUTES.items()
        }  # type: ignore[arg-type]
        for outbox in self.outboxes.values():
            outbox.load(kept)
            outbox.gathered()
        self.position = sum(cursor.position for cursor in self.store.cursors("runs").values())

    # what happens in the world

    @rule(run=st.sampled_from(RUNS), name=st.sampled_from(RULES), critical=st.booleans())
    def change(self, run: str, name: str, critical: bool) -> None:  # noqa: FBT001  hypothesis passes by name
        """An alert fires, gets worse or resolves."""
        before = self.firing.get((run, name))
        number = len(self.script)
        if before is None or (critical and before.severity == "warning"):
            severity = "critical" if critical else "warning"
            news = a_notification(id=f"{number}", run=run, rule=name, severity=severity, status=FIRING, step=number)
            self.firing[run, name] = news
        else:
            news = a_notification(id=f"{number}", run=run, rule=name, severity="warning", status=RESOLVED, ended=2.0)
            del self.firing[run, name]
        self.script.append(news)
        DeliveryMachine.alerts += 1

    @rule(seconds=st.sampled_from([0.1, 2.0, 70.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds

    @precondition(lambda self: self.script and not self.poison)
    @rule(data=st.data())
    def poisoned(self, data: st.DataObject) -> None:
        """From now on no receiver manages to take a message that holds this one, alone or in a digest."""
        self.poison = data.draw(st.sampled_from([news.id for news in self.script]))

    # what the engine does

    @rule(most=st.integers(1, 8))
    def read(self, most: int) -> None:
        """Read on, and store what was read together with what is to be sent."""
        self._feed(most)
        self._commit()

    @rule(most=st.integers(1, 8))
    def killed_while_reading(self, most: int) -> None:
        """Killed between reading and storing."""
        self._feed(most)
        self.kill()

    @rule()
    def kill(self) -> None:
        """kill -9."""
        self.store.close()
        self.store = Store(self.folder, 1.0)
        self.open()
        DeliveryMachine.kills += 1

    # what receivers do

    @rule(name=st.sampled_from(list(ROUTES)), answers=st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=6))
    def send(self, name: str, answers: list[str]) -> None:
        """A receiver answers, loses its answer, refuses, fails, or we are killed before its answer was heard."""
        for answer in answers:
            job = self._take(name)
            if job is not None and not self._answer(name, job, answer):
                return

    @precondition(lambda self: self.position < len(self.script) or any(map(len, self.outboxes.values())))
    @rule()
    def settle_all(self) -> None:
        """All is read, and every receiver is well for a while: now each must have all that it was promised."""
        self._feed(len(self.script))
        self._commit()
        if self.poison:
            self._settle_others()
            self.poison = ""
        for name in ROUTES:
            while len(self.outboxes[name]):
                job = self._take(name)
                if job is None:
                    self.now += 30.0
                    self._commit()
                else:
                    self._answer(name, job, "delivered")
        self._commit()
        self._check_all()

    def _settle_others(self) -> None:
        """All but the run of the message that is never taken arrives, well before that one is given up."""
        for name in ROUTES:
            for _ in range(3_000):
                left = set(expected(self.script, ROUTES[name])) - self.receivers[name].seen.keys()
                left -= self.receivers[name].refused
                if all(self._run_of(part) == self._run_of(self.poison) for part in left):
                    break
                job = self._take(name)
                if job is None:
                    self.now += 30.0
                    self._commit()
                else:
                    self._answer(name, job, "delivered")
            else:
                raise AssertionError(f"{name} is blocked by {self.poison}")
        self._commit()

    @invariant()
    def nothing_unknown(self) -> None:
        """Nobody gets what is not in the script, and nobody gets a run's alerts in another order."""
        for name, receiver in self.receivers.items():
            wanted = list(expected(self.script, ROUTES[name]))
            assert receiver.seen.keys() <= set(wanted)
            for run in RUNS:
                order = [part for part, seen in receiver.seen.items() if seen.run == run]
                assert order == [part for part in wanted if part in receiver.seen and self._run_of(part) == run]

    def teardown(self) -> None:
        """The end of one history."""
        if hasattr(self, "store"):
            self.settle_all()
            self.store.close()
        DeliveryMachine.messages += sum(receiver.messages for receiver in self.receivers.values())
        shutil.rmtree(self.folder)

    def _check_all(self) -> None:
        for name, receiver in self.receivers.items():
            wanted = set(expected(self.script, ROUTES[name]))
            assert receiver.seen.keys() | receiver.refused == wanted

    def _run_of(self, part: str) -> str:
        return self.script[int(part)].run

    def _feed(self, most: int) -> None:
        news = self.script[self.position : self.position + most]
        self.position += len(news)
        for outbox in self.outboxes.values():
            outbox.put(news, 1.0, lambda _: False)

    def _commit(self) -> None:
        changes = DeliveryChanges()
        for outbox in self.outboxes.values():
            changes.add(outbox.changes())
        batch = StoredBatch("runs", 1.0, cursors={"log": Cursor("log", "", self.position)})
        self.store.commit([batch], changes)
        for outbox in self.outboxes.values():
            outbox.committed()

    def _take(self, name: str) -> Message | None:
        for _ in range(2):
            job = self.outboxes[name].take(self.now, 1.0)
            if isinstance(job, Message):
                return job
            if job == 0:
                self._commit()  # a digest is stored before it goes
        return None

    def _answer(self, name: str, job: Message, answer: str) -> bool:
        """Let the receiver answer; False where that was the end of this process."""
        if self.poison and any(row.notification.id == self.poison for row in job.rows):
            answer = "retry"
        if answer in {"delivered", "lost", "killed"}:
            self.receivers[name].get(job.notification)
        if answer == "killed":
            self.kill()
            return False
        if answer == "refused" and len(job.rows) == 1:
            self.receivers[name].refused.add(job.notification.id)
        results = {"delivered": DeliveryResult.DELIVERED, "refused": DeliveryResult.REFUSED}
        outcome = DeliveryOutcome(results.get(answer, DeliveryResult.RETRY), answer)
        self.outboxes[name].settle(job, outcome, self.now, 1.0)
        return True


def expected(script: list[Notification], route: Route) -> Iterator[str]:
    """The ids that a receiver is promised, in order: what it wants of the firing ones, and the end of these."""
    known: set[tuple[str, str]] = set()
    for news in script:
        place = (news.run, news.rule)
        if news.status == FIRING and route.wants(news):
            known.add(place)
            yield news.id
        elif news.status == RESOLVED and place in known:
            known.remove(place)
            yield news.id
