"""The engine's state of one run: what detectors may know of it, and the monitors that watch it."""

from __future__ import annotations

from grpo_watch.engine.monitor import Monitor
from grpo_watch.engine.records import CompletionSummary, MetricRow, Record, Stream
from grpo_watch.engine.run_view import RunView


class RunState(RunView):
    """One run and its monitors."""

    def __init__(self, run: str, monitors: tuple[Monitor, ...]) -> None:
        super().__init__(run)
        self.watch_by(monitors)

    def watch_by(self, monitors: tuple[Monitor, ...]) -> None:
        """Replace the monitors that watch this run."""
        self.monitors = monitors
        self._readers: dict[tuple[type, Stream | None], tuple[Monitor, ...]] = {}

    def readers(self, record: Record) -> tuple[Monitor, ...]:
        """The monitors that read records of this type and stream."""
        stream = record.stream if isinstance(record, (MetricRow, CompletionSummary)) else None
        key = (type(record), stream)
        found = self._readers.get(key)
        if found is None:
            found = self._readers[key] = tuple(
                monitor
                for monitor in self.monitors
                if type(record) in monitor.detector.reads and (stream is None or monitor.detector.stream is stream)
            )
        return found

    def begin_attempt(self, attempt: int, step: int) -> None:
        """A new attempt begins at ``step``: every monitor rewinds."""
        super().begin_attempt(attempt, step)
        for monitor in self.monitors:
            monitor.begin_attempt(step)
