"""Turns the snapshot of all runs into the exposition that is pushed or written where nobody can scrape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from grpo_watch.metrics.daemon_snapshot import DaemonSnapshot
from grpo_watch.metrics.exposition import Exporter


class Exposition:
    """Renders snapshots as Prometheus text, without the metrics of the process: they would clash with its reader's own.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._snapshot = DaemonSnapshot()
        self._exporter = Exporter(lambda: self._snapshot, clock, process=False)

    def render(self, snapshot: DaemonSnapshot) -> bytes:
        """This snapshot as text format 0.0.4."""
        self._snapshot = snapshot
        body, _ = self._exporter.render("", "")
        return body

    def last(self) -> bytes | None:
        """The newest snapshot once more, with no run active; None when there was none."""
        if self._snapshot == DaemonSnapshot():
            return None
        return self.render(
            replace(self._snapshot, runs=tuple(replace(run, active=False) for run in self._snapshot.runs))
        )
