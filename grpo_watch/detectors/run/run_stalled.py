"""The run wrote nothing for much longer than its own steps take, and it is not at its end."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, no_data, param
from grpo_watch.engine.recent_rows import duration
from grpo_watch.engine.records import (
    Activity,
    EndState,
    EventKind,
    MetricRow,
    Progress,
    Reading,
    RunEvent,
    Severity,
    Tick,
    Verdict,
)
from grpo_watch.engine.traits import ON, LikelyCause, WasteKind

ENDS = (EventKind.FINISHED, EventKind.CRASH_SUMMARY, EventKind.KILLED, EventKind.TRACEBACK)
LOGGED_AT_START = ("learning_rate", "num_generations", "beta", "save_steps")
"""Settings of which a run's folder or the head of its log shows at least one."""


def is_excerpt(first: int, run: RunView) -> bool:
    """Whether the rows, from this step on, were cut out of a longer log, so that their end is not the run's.

    One row is; so are rows that begin in the middle where nothing tells how the run was started (a resumed run's folder
    has its settings).
    """
    if run.rows <= 1 or any(run.known(setting) for setting in LOGGED_AT_START):
        return run.rows <= 1
    return first > max(1.0, (run.step - first) / (run.rows - 1))


NO_END_SHOWN = "no channel that is read shows the end of this run (its console log, or ms-swift's logging.jsonl)"


STALL_CAUSES = (
    LikelyCause(
        "The rollout server does not answer: look at its log, and at the port over which it gets the weights.",
        {"use_vllm": ON, "vllm_mode": ("server",)},
    ),
)


LEAST_ROWS = 3
"""One or two rows are a piece that was cut out, or too little to say so."""
EXCERPT = "the rows are an excerpt of a longer log and don't show its end"


COPIED_SECONDS = 86_400.0
"""Files may be younger than the run, if they were copied: read afterwards, one without a row for a day is dated by its
rows. The daemon takes a run that is short of its last step for ended after the same time."""


class RunStalled(Detector):
    """Adaptive: ``factor`` median steps, at least the floor, more while a first step, evaluation or save may run."""

    explained_by = ("run-crashed", "non-finite-metric")
    wastes = WasteKind.SILENCE
    stops_progress = True
    likely_causes = STALL_CAUSES

    reads = (MetricRow, Progress, Activity, RunEvent, Tick)
    needs = (("run end",),)
    survives_attempts = True
    factor: float = param(10.0, "median steps of silence that are a stall", minimum=2)
    floor_seconds: float = param(300.0, "seconds of silence that are always tolerated", minimum=1)
    first_step_seconds: float = param(
        1800.0, "seconds of silence tolerated before the second row (compilation, engine start)", 1
    )
    pause_factor: float = param(3.0, "multiple of that tolerance for steps that evaluate or save", minimum=1)
    wait_factor: float = param(2.0, "silence tolerated, in multiples of the longest wait for a row", minimum=1)

    def setup(self) -> None:
        """Nothing seen yet."""
        self.last: float | None = None  # time of the newest bar, write or event
        self.ended: EventKind | None = None  # what ended the run, after so many rows
        self.rows_then = self.first = 0  # the former also at a start
        self.bar_done = False  # though the last steps may have no row at a logging interval above 1

    def observe(self, record: MetricRow | Progress | Activity | RunEvent | Tick, run: RunView) -> Iterable[Reading]:
        """Note signs of life; judge at ticks."""
        if isinstance(record, Tick):
            return self._judge(record, run)
        if isinstance(record, MetricRow):
            self.first = self.first or (0 if record.supplement else record.step)
            return SILENT if record.supplement else QUIET
        time = record.time if isinstance(record, Activity) else record.seen
        if time is not None:
            self.last = max(time, self.last or time)
        if isinstance(record, Progress):
            self.bar_done = record.step >= record.max_steps
        if isinstance(record, RunEvent) and record.kind in ENDS:
            self.ended, self.rows_then = record.kind, run.rows
        elif isinstance(record, RunEvent) and record.kind is EventKind.STARTED:
            self.ended, self.bar_done, self.rows_then = None, False, run.rows
        return SILENT

    def _last_sign(self, run: RunView) -> float | None:
        """When the run last showed a sign of life (Unix seconds), rows included; None until a time is known."""
        return max((time for time in (self.last, run.latest_row_time) if time is not None), default=None)

    def blind_because(self, run: RunView) -> str | None:
        """Rows alone don't show that they ended too early, unless the run is complete."""
        return None if run.shows_end or self._complete(run) else NO_END_SHOWN

    def silent_too_long_at(self, run: RunView) -> float | None:
        """When the silence becomes too long."""
        last = self._last_sign(run)
        return None if last is None or not run.shows_end or self._is_over(run) else last + self._limit(run)

    def _is_over(self, run: RunView) -> bool:
        """Whether its end was seen, which a start or another row revokes, or it is at its last step."""
        return (self.ended is not None and run.rows == self.rows_then) or self._complete(run)

    def _complete(self, run: RunView) -> bool:
        return self.bar_done or (run.max_steps is not None and run.step >= run.max_steps)

    def _judge(self, tick: Tick, run: RunView) -> Iterable[Reading]:
        why_not = self._not_judged(tick, run)
        if why_not is not None:
            return no_data(why_not)
        last, logged = self._last_sign(run) or tick.now, run.latest_row_time
        if not tick.live and logged is not None and run.rows != self.rows_then and tick.now - logged > COPIED_SECONDS:
            last = logged
        silence, limit = tick.now - last, self._limit(run)
        if self._is_over(run) or tick.state is EndState.RUNNING or silence <= limit:
            return QUIET
        return (self._breach(tick, run, silence, limit),)

    def _not_judged(self, tick: Tick, run: RunView) -> str | None:
        if not run.shows_end:
            return NO_END_SHOWN
        if self._last_sign(run) is None or (run.rows == 0 and not tick.live):
            return NotYet("no row has been logged yet")
        if not tick.live and (run.rows < LEAST_ROWS or is_excerpt(self.first, run)):
            return EXCERPT
        if tick.state is EndState.ENDED:
            return "the run was declared ended"
        return None

    def _limit(self, run: RunView) -> float:
        """Tolerated silence in seconds; an evaluation, a save or a long generation may follow the newest step."""
        least = self.first_step_seconds if run.rows <= 1 else self.floor_seconds
        usual = self.factor * (run.pace.median() or 0.0) * (self.pause_factor if _pauses(run) else 1.0)
        return max(least, usual, self.wait_factor * run.pace.longest_wait())

    def _breach(self, tick: Tick, run: RunView, silence: float, limit: float) -> Reading:
        severity = Severity.WARNING if run.in_folder and run.max_steps is not None else Severity.INFO
        goal = f" of {run.max_steps}" if run.max_steps else ""
        return Reading(
            Verdict.BREACH,
            value=silence,
            threshold=limit,
            severity=Severity.CRITICAL if tick.live else severity,
            message=f"nothing was written for {duration(silence)} at step {run.step}{goal}",
            evidence={
                "silent_seconds": round(silence, 1),
                "median_step_seconds": run.pace.median(),
                "max_steps": run.max_steps,
            },
            immediate=True,
        )


def _pauses(run: RunView) -> bool:
    """Whether the newest step is one that evaluates or saves."""
    every = [run.number("eval_steps"), run.number("save_steps")]
    return any(n is not None and n >= 1 and run.step % int(n) == 0 for n in every)
