"""Steps take much longer than at the start of the run, and completions did not grow to match."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading, Severity, Verdict


class StepTimeKind:
    """The rows of one kind (that generate, or that reuse a batch): the baseline and the newest times."""

    def __init__(self, rows: int) -> None:
        self.first: list[float] = []
        self.first_lengths: list[float] = []
        self.newest: deque[float] = deque(maxlen=rows)
        self.lengths: deque[float] = deque(maxlen=rows)
        self.seen = 0
        self.usual: float | None = None
        self.usual_length: float | None = None

    def learn(self, seconds: float, length: float) -> None:
        """Take a row of the baseline."""
        self.first.append(seconds)
        self.first_lengths.append(length)
        if len(self.first) == self.newest.maxlen:
            self.usual, self.usual_length = median(self.first), median(self.first_lengths)


class StepTimeRegression(Detector):
    """Compares the median of the newest rows with that of the first ones, separately for rows that generate."""

    explained_by = ("length-explosion",)

    needs = (("step_seconds",),)
    rows: int = param(20, "rows of one kind in each median", minimum=5)
    skip: int = param(5, "first rows of each kind ignored (compilation, engine start, cold caches)", minimum=0)
    factor: float = param(1.8, "slowdown that is a breach", minimum=1.1)
    least_seconds: float = param(1.0, "least slowdown in seconds", minimum=0)
    sharp_factor: float = param(4.0, "slowdown from which `sharp_seconds` are enough", minimum=1.1)
    sharp_seconds: float = param(0.5, "least slowdown in seconds at `sharp_factor`", minimum=0)

    def setup(self) -> None:
        """Nothing seen."""
        self.kinds = {True: StepTimeKind(self.rows), False: StepTimeKind(self.rows)}
        self.length: float | None = None

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Take one row; judge every fifth of its kind."""
        seconds = number(record, "step_seconds")
        if record.supplement or seconds is None:
            return SILENT
        generates = _generates(record.values)
        kind = self.kinds[generates]
        longest, mean = number(record, "completion_length_max"), number(record, "completion_length_mean")
        length = longest if longest is not None else mean
        self.length = length if length is not None else self.length
        kind.seen += 1
        if kind.seen <= self.skip:
            return no_data(NotYet("too few rows yet"))
        if kind.usual is None:
            kind.learn(seconds, self.length or 0.0)
            return no_data(NotYet("too few rows yet"))
        kind.newest.append(seconds)
        kind.lengths.append(self.length or 0.0)
        if len(kind.newest) < self.rows or kind.seen % 5:
            return SILENT
        return self._judge(kind, kind.usual, generates=generates)

    def _judge(self, kind: StepTimeKind, usual: float, *, generates: bool) -> Iterable[Reading]:
        key, now = "" if generates else "reuse", median(kind.newest)
        least = self.sharp_seconds if now >= self.sharp_factor * usual else self.least_seconds
        if now < self.factor * usual or now - usual < least:
            return (Reading(Verdict.OK, key),) if key else QUIET
        length, before = median(kind.lengths), kind.usual_length or 0.0
        longer = length / before if before > 0 else 1.0
        explained = longer > 1.0 and now / usual < self.factor * longer
        cause = f"completions are {longer:.1f} times as long" if explained else "completions did not grow to match"
        return breach(
            key,
            value=now,
            threshold=self.factor * usual,
            severity=Severity.INFO if explained else None,
            message=f"steps take {now:.3g} s instead of {usual:.3g} s ({now / usual:.1f} times as long); {cause}",
            evidence={
                "step_seconds": now,
                "usual_seconds": usual,
                "length_factor": round(longer, 2),
                "rows": "that generate" if generates else "that reuse a batch",
            },
        )


def _generates(values: Mapping[str, object]) -> bool:
    return "reward_mean" in values or "completion_length_mean" in values
