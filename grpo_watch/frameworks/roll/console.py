"""Turns ROLL's JSON lines of its stdout tracker, ``{"step": 7, "metrics": {…}}``, into rows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.line_reader import LineReader, MetricLine

BEGIN = b'{"step":'


class RollLines(LineReader):
    """Steps begin at 0. The bare dump of metrics that ROLL prints besides has no step and is passed over."""

    framework = "roll"
    marks: Sequence[bytes] = (b'"metrics": {',)

    def feed(self, line: bytes) -> Sequence[MetricLine]:
        """The row of one line."""
        if (begin := line.find(BEGIN)) < 0:
            return ()
        try:
            found = msgspec.json.decode(line[begin:])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return ()
        metrics = found.get("metrics") if isinstance(found, dict) else None
        step = row_numbers.whole(found.get("step")) if isinstance(found, dict) else None
        if step is None or not isinstance(metrics, dict):
            return ()
        values = row_numbers.numbers(metrics)
        return (MetricLine(step, values),) if values else ()


READER = RollLines
