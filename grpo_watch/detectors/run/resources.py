"""Steps that take ever longer, and accelerator memory that grows until it is full."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading, Severity, Verdict
from grpo_watch.engine.traits import ON, LikelyCause
from grpo_watch.engine.window import Window, explained, theil_sen


class StepTimeKind:
    """Times and lengths of one kind of rows: those that generate, or those that reuse a batch."""

    def __init__(self, rows: int) -> None:
        self.seconds, self.lengths, self.seen = Window(rows), Window(rows), 0


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
        """Start with no rows."""
        self.kinds = {True: StepTimeKind(self.rows), False: StepTimeKind(self.rows)}
        self.length: float | None = None

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:  # noqa: ARG002
        """Take one row; judge every fifth of its kind."""
        seconds = number(record, "step_seconds")
        if record.supplement or seconds is None:
            return SILENT
        generates = "reward_mean" in record.values or "completion_length_mean" in record.values
        kind = self.kinds[generates]
        longest, mean = number(record, "completion_length_max"), number(record, "completion_length_mean")
        length = longest if longest is not None else mean
        self.length = length if length is not None else self.length
        kind.seen += 1
        if kind.seen > self.skip:
            kind.seconds.push(seconds)
            kind.lengths.push(self.length or 0.0)
        if kind.seen <= self.skip + self.rows:
            return no_data(NotYet("too few rows yet"))
        if kind.seen < self.skip + 2 * self.rows or kind.seen % 5:
            return SILENT
        return self._judge(kind, kind.seconds.first or 0.0, generates=generates)

    def _judge(self, kind: StepTimeKind, usual: float, *, generates: bool) -> Iterable[Reading]:
        key, now = "" if generates else "reuse", kind.seconds.median() or 0.0
        least = self.sharp_seconds if now >= self.sharp_factor * usual else self.least_seconds
        if now < self.factor * usual or now - usual < least:
            return (Reading(Verdict.OK, key),) if key else QUIET
        length, before = kind.lengths.median() or 0.0, kind.lengths.first or 0.0
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


SIZES = (8.0, 12.0, 16.0, 24.0, 32.0, 40.0, 48.0, 64.0, 80.0, 96.0, 141.0, 192.0, 288.0)
"""Accelerator memory sizes on the market, in GiB; the smallest one that holds the used memory is the limit."""
USABLE = 0.97
"""Share of the memory available to a process; driver and context take the rest."""
POINTS = 32
EVERY = 20
FIRES = 2
"""Breaches in a row after which the rule fires by default; the first one may assume a size that is already full."""
LEVELS_OFF, WAVERS = 4.0, 1.25
"""A lasting breach ends if the newer half rises at less than this fraction of the overall slope, or if memory fills up
beyond this multiple of the run's length. Rows are noisy, and a nearly full device is not one of the next size."""


MEMORY_CAUSES = (
    LikelyCause(
        "vLLM shares the accelerators with the trainer: lower vllm_gpu_memory_utilization.",
        {"use_vllm": ON, "vllm_mode": ("colocate",)},
    ),
    LikelyCause("Activations are kept: switch gradient_checkpointing on.", {"gradient_checkpointing": ("false", "0")}),
)


class MemoryCreep(Detector):
    """Thins the history to 32 points and fits a robust line to all of it, or to the newer half if only that rises."""

    explained_by = ("length-explosion",)
    likely_causes = MEMORY_CAUSES

    needs = (("memory_gib",),)
    rows: int = param(100, "rows needed before anything is judged", minimum=16)
    fit: float = param(0.8, "share of the variance that the line must explain", 0, 1)
    least_gib: float = param(1.0, "least growth so far that is judged", minimum=0)
    capacity_gib: float = param(0.0, "memory of the accelerator in GiB (0: the next usual size)", minimum=0)
    ahead: float = param(4.0, "how far to look ahead if max_steps is unknown, in run lengths so far", minimum=1)

    def setup(self) -> None:
        """Start with no points; keeps every row up to 32 points, then every second one, and so on."""
        self.points: list[tuple[float, float]] = []
        self.every = 1
        self.seen = 0
        self.breaches, self.limit = 0, 0.0  # breaches in a row, and the size that will be full

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Take one row; judge every twentieth."""
        memory = number(record, "memory_gib")
        if memory is None:
            return SILENT
        self.seen += 1
        if self.seen % self.every == 0:
            self._keep(float(record.step), memory)
        if self.seen < self.rows:
            return no_data(NotYet("too few rows yet"))
        return SILENT if self.seen % EVERY else self._judge(record.step, memory, run)

    def _keep(self, step: float, memory: float) -> None:
        self.points.append((step, memory))
        if len(self.points) == POINTS:
            self.points = self.points[1::2]
            self.every *= 2

    def _judge(self, step: int, memory: float, run: RunView) -> Iterable[Reading]:
        newer, lasts = self.points[len(self.points) // 2 :], self.breaches >= FIRES
        newest = self._slope(self.points) or self._slope(newer)
        if lasts and newest <= 0 and theil_sen(newer) >= theil_sen(self.points) / LEVELS_OFF:
            newest = theil_sen(newer)
        limit = self.capacity_gib or next((size for size in SIZES if size * USABLE > memory), 2 * memory)
        limit = self.limit if lasts and memory <= self.limit else limit
        full = round(step + (limit * USABLE - memory) / newest) if newest > 0 else inf
        total = run.max_steps or int(step * self.ahead)
        self.limit = limit
        self.breaches = self.breaches + 1 if full <= total * (WAVERS if lasts else 1.0) else 0
        return self._breach(memory, limit, newest, int(full), run.max_steps) if self.breaches else QUIET

    def _slope(self, points: list[tuple[float, float]]) -> float:
        """GiB per step in the newer half of a line that rises enough and does not level off, else 0."""
        if points[-1][1] - points[0][1] < self.least_gib or explained(points) < self.fit:
            return 0.0
        newest = theil_sen(points[len(points) // 2 :])
        return newest if newest >= theil_sen(points) / 2 else 0.0

    @staticmethod
    def _breach(memory: float, limit: float, slope: float, full: int, total: int | None) -> Iterable[Reading]:
        return breach(
            value=memory,
            threshold=limit,
            message=f"memory rises by {1000 * slope:.3g} GiB per 1,000 steps: {limit:g} GiB will be full near step "
            f"{full}, before the end",
            evidence={
                "memory_gib": memory,
                "gib_per_1000_steps": round(1000 * slope, 4),
                "capacity_gib": limit,
                "full_at_step": full,
                "max_steps": total,
            },
        )
