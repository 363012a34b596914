"""The stop action asked the run to stop, or the job reports that it did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grpo_watch.engine.detector import QUIET, SILENT, Detector, RunView
from grpo_watch.engine.records import EventKind, MetricRow, Reading, RunEvent, Scalar, Tick, Verdict

LONGEST = 300
"""Characters of a message that are kept."""
HEEDED = "heeded"
"""The key of the job's own report; every other key is a receiver's name."""
_ASKED = {EventKind.STOP_ASKED: False, EventKind.STOP_REHEARSED: True}
"""The events that ask, and whether that was a dry run."""


class StopAsked(Detector):
    """One alert per receiver that asked, and one when the job complied; a new attempt or a later step resolves them."""

    reads = (RunEvent, MetricRow, Tick)
    survives_attempts = True

    def setup(self) -> None:
        """No request yet; keeps the attempt in which each key fired, and the step at which the job complied."""
        self._attempts: dict[str, int] = {}
        self._stopped_at: int | None = None

    def observe(self, record: RunEvent | MetricRow | Tick, run: RunView) -> Iterable[Reading]:
        """Take requests and reports; rows show whether the run continued."""
        if isinstance(record, RunEvent):
            return self._event(record, run)
        if isinstance(record, MetricRow):
            return self._row(record)
        return QUIET if run.step else SILENT

    def _event(self, event: RunEvent, run: RunView) -> Iterable[Reading]:
        if event.kind is EventKind.STOP_WITHDRAWN:
            self._attempts.pop(event.channel, None)
            return (Reading(Verdict.OK, event.channel),)
        if event.kind is EventKind.STOP_HEEDED:
            self._stopped_at = run.step if event.step is None else event.step
            text = f"Training stopped at step {self._stopped_at}, as requested{f': {event.text}' if event.text else ''}"
            return self._breach(HEEDED, text, {"because": event.about, "stopped_at_step": self._stopped_at}, run)
        if event.kind not in _ASKED:
            return SILENT
        dry_run = _ASKED[event.kind]
        did = "would be asked to stop (dry run)" if dry_run else "was asked to stop"
        return self._breach(
            event.channel, f"The run {did}: {event.text}", {"because": event.about, "dry_run": dry_run}, run
        )

    def _breach(self, key: str, text: str, evidence: Mapping[str, Scalar], run: RunView) -> Iterable[Reading]:
        self._attempts[key] = run.attempt
        return (Reading(Verdict.BREACH, key, message=text[:LONGEST], evidence=evidence, immediate=True),)

    def _row(self, row: MetricRow) -> Iterable[Reading]:
        """A row of a later attempt resolves earlier requests; a row after the step of the stop resolves all."""
        went_on = self._stopped_at is not None and row.step > self._stopped_at
        over = [key for key, attempt in self._attempts.items() if went_on or row.attempt > attempt]
        for key in over:
            del self._attempts[key]
        if HEEDED in over:
            self._stopped_at = None
        return [Reading(Verdict.OK, key) for key in over] or SILENT
