"""The framework refused the batch configuration: the generation batch does not hold whole groups."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.detectors.shared.refusals import GROUP_OF_ONE, of_batch
from grpo_watch.engine.detector import QUIET, SILENT, Detector, RunView, breach
from grpo_watch.engine.records import EventKind, Reading, RunEvent, Tick


class BatchNotDivisible(Detector):
    """Reads the text of the error; a run that logs rows has passed the check."""

    ends_run = True

    reads = (RunEvent, Tick)

    def observe(self, record: RunEvent | Tick, run: RunView) -> Iterable[Reading]:
        """Judge a configuration error of the log."""
        if isinstance(record, Tick):
            return QUIET if run.step else SILENT
        refusal = of_batch(record.text) if record.kind is EventKind.CONFIG_ERROR else None
        if refusal is None or GROUP_OF_ONE.search(record.text):
            return SILENT
        message = f"refused at start: {record.text}"[:300]
        evidence = {"error": record.text[:300]}
        return breach(message=message, evidence=evidence, immediate=True, hint=refusal.fix)
