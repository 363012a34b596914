"""The engine's side of delivery: turns transitions into notifications, queues them per receiver, reports failures."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from grpo_watch.config.schema import Settings
from grpo_watch.daemon.watched_run import WatchedRun
from grpo_watch.engine.records import AlertState, EventKind, RunEvent
from grpo_watch.notify.notifications import NotificationContext, firing, notifications, over
from grpo_watch.notify.outbox import Outbox
from grpo_watch.notify.receiver import OWN_RULE, RoutedReceiver
from grpo_watch.store.deliveries import DeliveryChanges, StoredDeliveries
from grpo_watch.store.messages import RESOLVED, Notification
from grpo_watch.store.state import StoredBatch

log = logging.getLogger("grpo_watch.delivery")

GATHER_SECONDS = 60.0
"""Longest time that alerts firing at startup wait for the other runs to be read, so that they go out as one digest."""
ABANDON_SECONDS = 7 * 86_400.0
"""Seconds until a message for a receiver that is no longer configured is dropped: a week, enough to see the warning in
the log. A receiver configured later gets the alerts that still fire."""


class NotificationDispatcher:
    """All receivers of one daemon; only the engine's thread calls it.

    Args:
        routed: the receivers.
        settings: returns the settings in force; called each time, so that a reload takes effect.
        page: the address of the status page in messages, or empty.
        chance: returns random numbers in 0…1.
    """

    def __init__(
        self,
        routed: Sequence[RoutedReceiver] = (),
        settings: Callable[[], Settings] = Settings,
        page: str = "",
        chance: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self.outboxes: Sequence[Outbox] = [Outbox(each, chance) for each in routed]
        """One for each receiver; another list once the settings brought other receivers."""
        self._chance, self._settings, self._page = chance, settings, page
        self._gather_until: float | None = 0.0
        self._started, self._ahead = 0.0, False
        self._leaving: list[Outbox] = []
        self._past: Counter[tuple[str, str]] = Counter()
        self._round = 0
        self._since: dict[str, int] = {}
        self._arrived: dict[str, tuple[int, int]] = {}
        """By run: how often it had begun to be read when it arrived, and the round."""
        self._undelivered_reports: dict[tuple[str, str], str] = {}
        self._ended: dict[tuple[str, str], tuple[int, int, int]] = {}
        self.troubled: Mapping[str, str] = {}
        """Receivers that get nothing at present, with the reason."""

    def load(self, kept: StoredDeliveries, started: float = 0.0, *, ahead: bool = False) -> None:
        """Continue from the stored messages; log those waiting for receivers that are no longer configured.

        ``started`` is when the first daemon with this state began: runs that ended before are not reported.
        ``ahead``: the stored messages are newer than the stored runs, so a run arrives only after it is read.
        """
        self._started, self._ahead = started, ahead
        for outbox in self.outboxes:
            outbox.load(kept)
        names = {outbox.name for outbox in self.outboxes}
        _orphaned(Counter(queued.sink for queued in kept.queued if queued.sink not in names))

    def follow(self, routed: Sequence[RoutedReceiver], kept: StoredDeliveries) -> None:
        """Use these receivers from now on; ``kept`` is what is stored by now.

        A changed receiver keeps its queue. Changed and new receivers get the firing alerts that they did not get yet.
        What waits for a removed receiver stays stored, and so does the outcome of what is being sent to it.
        """
        before = {outbox.name: outbox for outbox in (*self._leaving, *self.outboxes)}
        here = {outbox.name for outbox in self.outboxes}
        self._round += 1
        after = []
        for each in routed:
            name = each.receiver.name
            outbox = before.pop(name, None)
            if outbox is None:
                outbox = Outbox(each, self._chance)
                outbox.load(kept)
            elif outbox.receiver is not each.receiver:
                outbox.follow(each)
            elif name in here:
                after.append(outbox)
                continue
            self._since[name] = self._round
            after.append(outbox)
        removed = [outbox for name, outbox in before.items() if name in here]
        self.outboxes, self._leaving, self._gather_until = after, list(before.values()), 0.0
        self.troubled = {sink: why for sink, why in self.troubled.items() if sink not in before}
        _orphaned({outbox.name: len(outbox) for outbox in removed if len(outbox)})

    def take(self, watch: WatchedRun, batch: StoredBatch, now: float) -> None:
        """Queue the notifications of a run's batch; those from before the run was first seen wait for ``arrive``."""
        if not self.outboxes or batch.backlog or not batch.transitions:
            return
        messages = notifications(batch.transitions, self._context(watch, now))
        for outbox in self.outboxes if messages else ():
            outbox.put(messages, now, self._muted(now))

    def arrive(self, watch: WatchedRun, now: float) -> None:
        """Once a run is restored or read: send firing alerts that were never sent, resolve those that fire no more.

        Receivers miss a resolve while they are not configured, or if the state was damaged. Missed notifications are
        queued first, to keep the order.
        """
        begun, arrived = self._arrived.get(watch.name, (0, -1))
        arrived = arrived if begun == watch.begun else -1
        known = watch.ready or (watch.restored and not self._ahead)
        if not self.outboxes or not known or arrived == self._round:
            return
        self._arrived[watch.name] = watch.begun, self._round
        alerts = watch.alerts()
        fires = list(firing(watch.name, alerts))
        places = {(each.run, each.rule, each.key) for each in fires}
        messages = notifications(fires, self._context(watch, now))
        backlog = self._settings().notify_backlog
        live = watch.was_live(self._started, now)
        send = backlog == "all" or (backlog == "live" and live)
        if messages and backlog == "live" and not live:
            _log_not_sent(watch.name, len(messages))
        for outbox in self.outboxes:
            if self._since.get(outbox.name, 0) > arrived:
                gone = (each for each in outbox.open_of(watch.name) if each.episode not in places)
                ends = [end for each in gone if (end := over(each, alerts, now))]
                for news in sorted((*ends, *messages), key=lambda one: one.step):
                    if news.status == RESOLVED:
                        outbox.put([news], now, self._muted(now))
                    else:
                        outbox.find([news], now, self._muted(now), send=send)

    def turn(self, now: float, timer: float, *, ready: bool) -> None:
        """End mutes and, once all runs are read or time is up, the wait for the first digest (``timer``: monotonic)."""
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

    def broadcast(
        self, watches: Collection[WatchedRun], due: Collection[WatchedRun], *, ready: bool
    ) -> Collection[WatchedRun]:
        """Feed runs the failures and recoveries of receivers; returns the runs concerned.

        An unread run gets them later; ``ready``: no run is unread. Without failures only the ``due`` runs are
        concerned.
        """
        for outbox in self.outboxes:
            self._undelivered_reports |= {(run, outbox.name): why for run, why in outbox.reports().items()}
        failing = {outbox.name for outbox in self.outboxes if not outbox.trouble.well}
        concerned = watches if self.outboxes and self._undelivered_reports else due
        for watch in concerned if self.outboxes else ():
            if not watch.ready:
                continue
            for sink in [sink for run, sink in self._undelivered_reports if run == watch.name]:
                text = self._undelivered_reports.pop((watch.name, sink))
                watch.feed(RunEvent(sink, EventKind.DELIVERY_PROBLEM, text=text))
            self._end_trouble(watch, failing)
        if ready:
            self._undelivered_reports.clear()
        return concerned

    @property
    def names(self) -> frozenset[str]:
        """The receivers that messages may wait for."""
        return frozenset(outbox.name for outbox in (*self.outboxes, *self._leaving))

    def abandoned(self, counts: Mapping[str, int]) -> None:
        """Count and log messages that were dropped because their receiver is not configured."""
        for sink, count in counts.items():
            self._past[sink, "abandoned"] += count
            fields = {"sink": sink, "messages": count, "days": round(ABANDON_SECONDS / 86_400)}
            log.error("dropped messages for a receiver that is not configured", extra={"fields": fields})

    def changes(self) -> DeliveryChanges:
        """The changes to store together with the batches."""
        changes = DeliveryChanges()
        gone = [outbox for outbox in self._leaving if not outbox.carried.locked()]  # nothing is under way any more
        for outbox in (*self.outboxes, *self._leaving):
            changes.add(outbox.changes())
        for outbox in gone:
            self._past.update({(outbox.name, what): count for what, count in outbox.counts.items()})
            self._leaving.remove(outbox)
        return changes

    def committed(self) -> None:
        """Release messages for sending: their changes are stored, or can't be stored now."""
        for outbox in self.outboxes:
            outbox.committed()

    @property
    def idle(self) -> bool:
        """Whether no message waits."""
        return not any(len(outbox) for outbox in self.outboxes)

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Messages by receiver and what became of them, since the start."""
        counts = self._past.copy()
        for outbox in (*self.outboxes, *self._leaving):
            counts.update({(outbox.name, what): count for what, count in outbox.counts.items()})
        return counts

    def lengths(self) -> Mapping[str, int]:
        """Waiting messages by receiver."""
        return {outbox.name: len(outbox) for outbox in self.outboxes}

    def _end_trouble(self, watch: WatchedRun, failing: set[str]) -> None:
        """Feed a run the recovery of receivers that work again or were removed; once per step while the alert fires."""
        for (_, sink), alert in watch.alerts(OWN_RULE).items():
            at, place = (watch.begun, alert.episode, watch.step), (watch.name, sink)
            if alert.state is AlertState.FIRING and sink not in failing and self._ended.get(place) != at:
                self._ended[place] = at
                watch.feed(RunEvent(sink, EventKind.DELIVERY_RECOVERED))

    def _note_trouble(self) -> None:
        """Log each receiver once when it begins to get nothing and once when it recovers, heartbeats included."""
        before = self.troubled
        self.troubled = {outbox.name: why for outbox in self.outboxes if (why := outbox.trouble.now)}
        for sink in self.troubled.keys() - before.keys():
            log.error("a receiver gets nothing", extra={"fields": {"sink": sink, "answer": self.troubled[sink]}})
        for sink in before.keys() - self.troubled.keys():
            log.warning("a receiver is reached again", extra={"fields": {"sink": sink}})

    def _muted(self, now: float) -> Callable[[Notification], bool]:
        mutes = self._settings().mute
        return lambda each: any(mute.covers(each.run, each.rule, now) for mute in mutes)

    def _context(self, watch: WatchedRun, now: float) -> NotificationContext:
        chosen, found = self._settings(), watch.reader.found
        return NotificationContext(
            watch.snapshot(),
            watch.recorder.series.recent,
            now,
            watch.options.labels,
            self._page,
            {rule.name: rule for rule in watch.pipeline.rules},
            chosen.runbook_url,
            chosen.privacy.messages,
            "" if found.remote else str(found.root),
        )


def _log_not_sent(run: str, count: int) -> None:
    alerts, them = ("1 alert", "it") if count == 1 else (f"{count} alerts", "them")
    why = f"{alerts} not sent: the run ended before grpo-watch started; `notify_backlog: all` sends {them}"
    log.warning(why, extra={"fields": {"run": run}})


def _orphaned(waiting: Mapping[str, int]) -> None:
    for sink, count in waiting.items():
        fields = {"sink": sink, "waiting": count, "fix": f"add a receiver named {sink} to send them"}
        log.warning("messages are queued for a receiver that is not configured", extra={"fields": fields})
