"""Writes the runs' changes to the store; if that is impossible now, keeps them in memory and stores them later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from grpo_watch.engine.alerts import Alert
from grpo_watch.engine.records import Cursor, Item
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.store import codec
from grpo_watch.store.deliveries import DeliveryChanges, StoredDeliveries
from grpo_watch.store.state import Store, StoredBatch, StoreError

RETRY_SECONDS = 10.0
KEPT_BYTES = 8 * 1024 * 1024
"""Most bytes kept while the disk is full. Beyond it nothing is stored until the daemon restarts, which then reads on
from the last stored cursors: items, cursors and conclusions on disk agree at any time."""

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

log = logging.getLogger("grpo_watch.store")


class StateWriter:
    """The engine's access to the store; disk errors are logged, not raised, except by ``items``.

    ``ok`` is False while changes wait to be stored, or the whole state is in memory; then call ``could_begin``.

    Args:
        store: the store.
        left: what a state in memory left, to be stored at the first ``commit``.
    """

    def __init__(self, store: Store, left: DeliveryChanges | None = None) -> None:
        self.store = store
        self._waiting: list[StoredBatch] = []
        self._unsent = DeliveryChanges()
        self.left = DeliveryChanges()
        """After ``close`` of a state in memory: its messages, for the one that takes its place."""
        self._bytes = 0
        self._retry_at = 0.0
        self._unregistered: dict[str, str] = {}
        self.ahead = bool(left)
        """Whether the messages are of later than what is stored of the runs."""
        self._written = not left
        if left:
            self._unsent = left.behind(self.messages().queued)
        if store.missing:
            log.error("watching without state", extra={"fields": {"problem": store.missing}})

    @property
    def ok(self) -> bool:
        """Whether everything is stored."""
        return self._written and not self.store.missing

    def could_begin(self, now: float) -> bool:
        """Whether a state that could not be opened at the start can be opened now; tried every ``RETRY_SECONDS``."""
        if not self.store.missing or now < self._retry_at:
            return False
        self._retry_at = now + RETRY_SECONDS
        return self.store.could_be_kept()

    def read_files(self) -> frozenset[str]:
        """Absolute paths of the files already read when this daemon began; empty if the store is unreadable."""
        return _or(frozenset(), self.store.read_files)

    def snapshot(self, run: str) -> RunSnapshot | None:
        """The newest stored snapshot; None if there is none or it is unreadable (of a newer or older version)."""
        return _or(None, lambda: self.store.snapshot(run))

    def history(self, run: str) -> bytes | None:
        """The run's packed detail from its end; None if none is stored or it is unreadable."""
        return None if run in self._unregistered.values() else _or(None, lambda: self.store.history(run))

    def name_of(self, identity: str) -> str | None:
        """The name of the run with this identity; None if unknown or unreadable."""
        return self._unregistered.get(identity) or _or(None, lambda: self.store.name_of(identity))

    def register(self, identity: str, wanted: str, now: float) -> str:
        """Register a run under the wanted name if that is free; returns its name, which never changes."""
        try:
            return self.store.register(identity, wanted, now)
        except StoreError as error:
            self._failed(error, now)
            taken = {name for other, name in self._unregistered.items() if other != identity}
            name = self._unregistered.get(identity) or (wanted if wanted not in taken else identity)
            self._unregistered[identity] = name
            return name

    def commit(self, batches: Sequence[StoredBatch], now: float, sent: DeliveryChanges | None = None) -> None:
        """Store the batches and the changes of message queues; keeps them in memory while that is impossible."""
        if self._written:
            try:
                self.store.commit(batches, sent)
            except StoreError as error:
                self._failed(error, now)
            else:
                return
        self._keep(batches, sent)
        if now >= self._retry_at and self._bytes <= KEPT_BYTES:
            self._retry(now)

    def _retry(self, now: float) -> None:
        try:
            for identity, name in self._unregistered.items():
                self.store.register(identity, name, now)
            self.store.commit(self._waiting, self._unsent)
        except StoreError:
            self._retry_at = now + RETRY_SECONDS
            return
        self._waiting, self._unsent, self._bytes, self._written = [], DeliveryChanges(), 0, True
        self._unregistered.clear()
        log.warning("state is written again")

    def _failed(self, error: StoreError, now: float) -> None:
        if self._written:
            log.error("state can't be written; monitoring continues in memory", extra={"fields": {"error": str(error)}})
        self._written, self._retry_at = False, now + RETRY_SECONDS

    def _keep(self, batches: Sequence[StoredBatch], sent: DeliveryChanges | None) -> None:
        if self._bytes > KEPT_BYTES:
            return
        self._waiting += batches
        self._bytes += sum(map(len, (item for batch in batches for item in batch.items)))
        if sent:
            self._unsent.add(sent)
            self._bytes += sum(len(codec.encode(message.notification)) for message in sent.queued)
        if self._bytes > KEPT_BYTES:
            self._waiting.clear()
            self._unsent = DeliveryChanges()
            log.error("too much unstored state: nothing more is stored until the next start")

    # stored and waiting data of one run

    def items(self, run: str) -> Iterator[Item]:
        """The items that the pipeline was fed; raises ``StoreError`` if a stored block is damaged."""
        if run not in self._unregistered.values():
            yield from self.store.items(run)
        for batch in self._of(run):
            yield from codec.decode_block(codec.encode_block(batch.items))

    def cursors(self, run: str) -> dict[str, Cursor]:
        """The cursor of each source."""
        found = self._stored(run, self.store.cursors)
        for batch in self._of(run):
            found |= batch.cursors
        return found

    def alerts(self, run: str) -> dict[tuple[str, str], Alert]:
        """The state of each alert."""
        found = self._stored(run, self.store.alerts)
        for batch in self._of(run):
            found |= batch.alerts
        return found

    def looked(self, run: str) -> bool:
        """Whether everything the run held when first seen has been read, by this daemon or an earlier one."""
        known = any(batch.looked for batch in self._of(run))
        return known or (run not in self._unregistered.values() and _or(False, lambda: self.store.looked(run)))

    def messages(self) -> StoredDeliveries:
        """The waiting messages, the open episodes, and the sent ones; empty if unreadable."""
        try:
            return self.store.messages().after(self._unsent)
        except StoreError as error:
            log.error("what was sent is not known any more", extra={"fields": {"error": str(error)}})  # noqa: TRY400
            return StoredDeliveries()

    def fingerprints(self, run: str) -> Mapping[str, str]:
        """Fingerprints of the rules that the alerts rest on."""
        return self._stored(run, self.store.fingerprints)

    def _stored(self, run: str, read: Callable[[str], dict[K, V]]) -> dict[K, V]:
        """Data from the store; if it is damaged, forgets the run, so that it is read again, and returns nothing."""
        if run in self._unregistered.values():
            return {}
        try:
            return read(run)
        except StoreError as error:
            log.warning("a stored run is damaged and read again", extra={"fields": {"run": run, "error": str(error)}})
            self.forget(run)
            return {}

    def forget(self, run: str) -> None:
        """Drop a run's items and cursors, so that it is read again."""
        try:
            self.store.forget(run)
        except StoreError as error:
            log.error("a run can't be read again", extra={"fields": {"run": run, "error": str(error)}})  # noqa: TRY400

    def reopen(self, run: str) -> None:
        """Note that an ended run continues."""
        self._change(0.0, lambda: self.store.reopen(run))

    def prune(self, now: float, days: float, max_bytes: float) -> None:
        """Archive old runs (see ``Store.prune``)."""
        self._change(now, lambda: self.store.prune(now, days, max_bytes))

    def abandon(self, names: Iterable[str], before: float, now: float) -> Mapping[str, int]:
        """Drop messages for receivers that are not among ``names`` (see ``Store.abandon``)."""
        return self._change(now, lambda: self.store.abandon(names, before)) or {}

    def _change(self, now: float, change: Callable[[], T]) -> T | None:
        """Change the store if it is writable; else None."""
        if self._written:
            try:
                return change()
            except StoreError as error:
                self._failed(error, now)
        return None

    def close(self, now: float) -> None:
        """Store waiting changes if possible, and close."""
        if self._waiting or self._unsent:
            self._retry(now)
        if self.store.missing:
            self.left = self.store.handover(now)
        self.store.close()

    def _of(self, run: str) -> Iterator[StoredBatch]:
        return (batch for batch in self._waiting if batch.run == run)


def _or(otherwise: T, read: Callable[[], T]) -> T:
    """Data from the store; ``otherwise`` if it is unreadable."""
    try:
        return read()
    except StoreError:
        return otherwise
