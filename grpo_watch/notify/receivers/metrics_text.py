"""Receivers of metrics, where nobody can scrape: each gets the exposition of all runs at a fixed interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.metrics.exposition import Exporter
from grpo_watch.notify.receiver import DeliveryOutcome, Receiver
from grpo_watch.store.messages import Notification


class MetricsReceiver(Receiver):
    """Hands on snapshots as Prometheus text (0.0.4), of which alerts are a part.

    The metrics of the process are left out: they would clash with its reader's own. The last text, in which no run is
    active, stays.

    Args:
        name: what metrics call it.
        put: replaces what is there by a text.
        every: seconds between two texts.
        clock: Unix seconds.
        done: called at the end, to free connections.
    """

    metrics_only = True

    def __init__(
        self,
        name: str,
        put: Callable[[bytes], DeliveryOutcome],
        every: float,
        clock: Callable[[], float],
        done: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name)
        self.refresh_every, self._put, self._done = every, put, done
        self._snapshot = DaemonSnapshot()
        self._exporter = Exporter(lambda: self._snapshot, clock, process=False)

    def refresh(self, firing: Sequence[Notification], snapshot: DaemonSnapshot, now: float) -> DeliveryOutcome:  # noqa: ARG002
        """Replace what is there."""
        self._snapshot = snapshot
        return self._put(self._exporter.render("", "")[0])

    def close(self) -> None:
        """Leave a last sample in which no run is active, if there was one."""
        if self._snapshot != DaemonSnapshot():
            runs = tuple(replace(run, active=False) for run in self._snapshot.runs)
            self.refresh((), replace(self._snapshot, runs=runs), 0.0)
        self._done()
