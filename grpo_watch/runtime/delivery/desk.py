"""The engine's side of the delivery: takes what runs say, keeps every receiver's queue, and tells how they do."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from weakref import WeakKeyDictionary, WeakSet

from grpo_watch.core.records import AlertState, EventKind, RunEvent
from grpo_watch.runtime.delivery.episodes import OWN_RULE
from grpo_watch.runtime.delivery.making import Told as Material
from grpo_watch.runtime.delivery.making import firing, notifications
from grpo_watch.runtime.delivery.outbox import Outbox
from grpo_watch.runtime.runwatch import RunWatch
from grpo_watch.sinks.notification import Notification
from grpo_watch.sinks.route import Muted, Routed
from grpo_watch.store.deliveries import Changes, Kept
from grpo_watch.store.state import Batch

log = logging.getLogger("grpo_watch.delivery")

GATHER_SECONDS = 60.0
"""What was found firing at the start waits so long at most for the other runs to be read, to go as one digest."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the settings say of all messages; asked again each time, so that a reload counts.

    ``backlog`` is ``live``, ``all`` or ``none``; ``page`` the address of the status page, or empty; ``runbook`` that of
    runbooks with ``{rule}`` in it, or empty.
    """

    mutes: Callable[[], Sequence[Muted]] = tuple
    backlog: Callable[[], str] = lambda: "live"
    page: str = ""
    runbook: Callable[[], str] = str


class Desk:
    """All receivers of one daemon; only the engine's thread calls it.

    Args:
        routed: the receivers.
        wishes: what holds for all of them.
        chance: numbers in 0…1.
        said: any thread may put in what a run, by its name, is to hear.
    """

    def __init__(
        self,
        routed: Sequence[Routed] = (),
        wishes: Wishes | None = None,
        chance: Callable[[], float] = lambda: 1.0,
        said: SimpleQueue[tuple[str, RunEvent]] | None = None,
    ) -> None:
        self.outboxes = [Outbox(each, chance) for each in routed]
        self._wishes = wishes or Wishes()
        self._said = said or SimpleQueue()
        self._gather_until: float | None = 0.0
        self._arrived: WeakSet[RunWatch] = WeakSet()
        self._unheard: dict[tuple[str, str], str] = {}
        self._ended: WeakKeyDictionary[RunWatch, dict[str, tuple[int, int]]] = WeakKeyDictionary()
        self.troubled: Mapping[str, str] = {}
        """Receivers that get nothing now, and why."""

    def load(self, kept: Kept) -> None:
        """Go on from what was stored; say what waits for receivers that the settings name no more."""
        for outbox in self.outboxes:
            outbox.load(kept)
        names = {outbox.name for outbox in self.outboxes}
        for sink, count in Counter(queued.sink for queued in kept.queued if queued.sink not in names).items():
            fields = {"sink": sink, "waiting": count, "fix": f"to have them sent, give a sink this name: {sink}"}
            log.warning("messages wait for a receiver that is not configured", extra={"fields": fields})

    def take(self, watch: RunWatch, batch: Batch, now: float) -> None:
        """Take what a run's batch says; what was reached before the run was first seen waits for ``arrive``."""
        if not self.outboxes or batch.backlog or not batch.transitions:
            return
        told = notifications(batch.transitions, self._material(watch, now))
        for outbox in self.outboxes if told else ():
            outbox.put(told, now, self._muted(now))

    def arrive(self, watch: RunWatch, now: float) -> None:
        """Once a run was read: tell what fires and is not known."""
        if not self.outboxes or not watch.ready or watch in self._arrived:
            return
        self._arrived.add(watch)
        told = notifications(firing(watch.ingest.state), self._material(watch, now))
        backlog = self._wishes.backlog()
        tell = backlog == "all" or (backlog == "live" and not watch.over(now))
        for outbox in self.outboxes:
            outbox.find(told, now, self._muted(now), tell=tell)

    def turn(self, now: float, timer: float, *, ready: bool) -> None:
        """What time brings: mutes that end, and the end of the gathering (``timer``: monotonic)."""
        muted = self._muted(now)
        if self._gather_until == 0.0:
            self._gather_until = timer + GATHER_SECONDS
        over = self._gather_until is None or ready or timer >= self._gather_until
        self._gather_until = None if over else self._gather_until
        for outbox in self.outboxes:
            outbox.unmute(now, muted)
            if over:
                outbox.gathered()
        self._note_trouble()

    def tell(self, watches: Iterable[RunWatch], *, ready: bool) -> None:
        """Let runs hear what was said to them, and of receivers that get nothing, or that get messages again.

        A run that is not read yet hears it later; ``ready``: there is none.
        """
        for report in [report for outbox in self.outboxes for report in outbox.reports()]:
            self._unheard |= {(run, report.sink): report.text for run in report.runs}
        said = list(self._drain())
        failing = {outbox.name for outbox in self.outboxes if not outbox.well()}
        for watch in watches if self.outboxes else ():
            if not watch.ready:
                continue
            for event in [event for run, event in said if run == watch.name]:
                watch.hear(event)
            for sink in [sink for run, sink in self._unheard if run == watch.name]:
                text = self._unheard.pop((watch.name, sink))
                watch.hear(RunEvent(sink, EventKind.DELIVERY_PROBLEM, text=text))
            self._end_trouble(watch, failing)
        if ready:
            self._unheard.clear()

    def changes(self) -> Changes:
        """What is to be stored together with the batches."""
        changes = Changes()
        for outbox in self.outboxes:
            changes.add(outbox.changes())
        return changes

    def committed(self) -> None:
        """What was to be stored is, or can't be now: it may be sent."""
        for outbox in self.outboxes:
            outbox.committed()

    @property
    def idle(self) -> bool:
        """Whether nothing waits."""
        return not any(len(outbox) for outbox in self.outboxes)

    @property
    def page(self) -> str:
        """The address of the status page, or empty."""
        return self._wishes.page

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Messages by receiver and what became of them, since the start."""
        return {(outbox.name, what): count for outbox in self.outboxes for what, count in outbox.counts.copy().items()}

    def lengths(self) -> Mapping[str, int]:
        """Messages that wait, by receiver."""
        return {outbox.name: len(outbox) for outbox in self.outboxes}

    def _end_trouble(self, watch: RunWatch, failing: set[str]) -> None:
        """Let a run hear of receivers that are well again, or no more; anew at each step where its rule waits."""
        state, ended = watch.ingest.state, self._ended.setdefault(watch, {})
        for monitor in state.monitors:
            for sink, alert in list(monitor.alerts.items()) if monitor.rule.name == OWN_RULE else ():
                at = (alert.episode, state.step)
                if alert.state is AlertState.FIRING and sink not in failing and ended.get(sink) != at:
                    ended[sink] = at
                    watch.hear(RunEvent(sink, EventKind.DELIVERY_RECOVERED))

    def _note_trouble(self) -> None:
        """Say of receivers that get nothing, once each; heartbeats and metrics too, whether an alert fires or not."""
        before = self.troubled
        self.troubled = {outbox.name: why for outbox in self.outboxes if (why := outbox.trouble())}
        for sink in self.troubled.keys() - before.keys():
            log.error("a receiver gets nothing", extra={"fields": {"sink": sink, "answer": self.troubled[sink]}})
        for sink in before.keys() - self.troubled.keys():
            log.warning("a receiver is reached again", extra={"fields": {"sink": sink}})

    def _drain(self) -> Iterator[tuple[str, RunEvent]]:
        while not self._said.empty():  # nobody else takes from it
            yield self._said.get()

    def _muted(self, now: float) -> Callable[[Notification], bool]:
        mutes = self._wishes.mutes()
        return lambda told: any(mute.covers(told, now) for mute in mutes)

    def _material(self, watch: RunWatch, now: float) -> Material:
        rules = watch.ingest.pipeline.engine.rules
        return Material(
            watch.picture(),
            watch.ingest.lens.history,
            now,
            watch.options.labels,
            self._wishes.page,
            {rule.name: rule.summary for rule in rules},
            self._wishes.runbook(),
        )
