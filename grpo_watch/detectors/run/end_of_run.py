"""Runs that end wrongly: nothing was written for much longer than steps take, or the job died."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from grpo_watch import lazy_re as re
from grpo_watch.engine.detector import OK, QUIET, SILENT, Detector, NotYet, RunView, no_data, param
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
"""Settings, at least one of which a run's folder or the head of its log shows."""


def is_excerpt(first: int, run: RunView) -> bool:
    """Whether the rows, which begin at this step, were cut out of a longer log, so that their end is not the run's.

    True for a single row, and for rows that begin in the middle while no setting shows how the run was started (a
    resumed run's folder has its settings).
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
"""Fewer rows are an excerpt, or too few to tell."""
EXCERPT = "the rows are an excerpt of a longer log and don't show its end"


COPIED_SECONDS = 86_400.0
"""Copied files may be younger than the run: if they are read afterwards, and no row is newer than this, the newest
row's time counts. The daemon takes a run short of its last step as ended after the same time."""


class RunStalled(Detector):
    """Tolerates ``factor`` median steps of silence, at least the floor; more at a first step, save or evaluation."""

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
        """Start with no rows."""
        self.last: float | None = None  # time of the newest bar, write or event
        self.ended: EventKind | None = None  # what ended the run
        self.rows_then = self.first = 0  # rows at that end, or at a start
        self.bar_done = False  # the last steps may have no row if logging_steps is above 1

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
        """Unix time of the run's last sign of life, rows included; None until a time is known."""
        return max((time for time in (self.last, run.latest_row_time) if time is not None), default=None)

    def blind_because(self, run: RunView) -> str | None:
        """Blind if only rows are read, unless the run is complete: rows don't show that they ended too early."""
        return None if run.shows_end or self._complete(run) else NO_END_SHOWN

    def silent_too_long_at(self, run: RunView) -> float | None:
        """Unix time at which the silence becomes too long; None if the run is over or no end could be seen."""
        last = self._last_sign(run)
        return None if last is None or not run.shows_end or self._is_over(run) else last + self._limit(run)

    def _is_over(self, run: RunView) -> bool:
        """Whether the run's end was seen and no start or row followed, or it is at its last step."""
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
        """Tolerated silence in seconds; more if an evaluation, save or long generation may follow the newest step."""
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


ROOT = re.compile(r"\(torchrun's root cause: ")
MEMORY = re.compile(r"OutOfMemoryError|CUDA out of memory|oom[-_ ]kill|Out Of Memory", re.IGNORECASE)
WATCHDOG = re.compile(r"NCCL watchdog: ")
FOLLOWS = re.compile(
    r"(?:[\w.]{0,200}\b)?(?:ChildFailedError|CalledProcessError|SignalException|DistNetworkError|DistBackendError|"
    r"DistStoreError|Connection\w{0,30}Error|BrokenPipeError|EOFError|ActorDiedError|RayActorError|WorkerCrashedError|"
    r"EngineDeadError|ActorUnavailableError|RayTaskError)\b|"
    r"[Ss]ee (?:the )?root cause above|exitcode\s{0,10}: |srun: error|slurmstepd: error: .{0,200}CANCELLED AT|"
    r"the log ends inside a traceback|the launcher reports: |A worker died or was killed"
)
"""Messages of a launcher or a peer about a process that is already gone: torchrun, Ray, vLLM, Slurm.

Ray's own error precedes the one that it carries, and vLLM's API server refers to its engine's.
"""
INTERRUPTED = re.compile(r"KeyboardInterrupt|interrupted, by wandb|received (?:signal 2|SIGINT)", re.IGNORECASE)

BARE_CODE = re.compile(r"wandb stored the exit code \d{1,3}")
"""wandb's record of a process that ended with an error, if nothing else names it."""


DEVICE = re.compile(r"OutOfMemoryError|CUDA out of memory")
PHASE = re.compile(r"\(in (generation|the backward pass|the optimizer)\)")
ANYWHERE = "Find out where: generation, the backward pass and the optimizer each have their own remedy."
FIXES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "generation": {
            "": "Lower the engine's share of memory, its number of sequences or max_completion_length.",
            "trl": "Lower vllm_gpu_memory_utilization, or set vllm_enable_sleep_mode=True (colocate mode).",
            "ms-swift": "Lower --vllm_gpu_memory_utilization or --vllm_max_model_len, or set --sleep_level 1 and "
            "--offload_model true.",
            "verl": "Lower actor_rollout_ref.rollout.gpu_memory_utilization; free_cache_engine=True returns the cache.",
        },
        "the backward pass": {
            "": "Halve the completions per micro-step and double the accumulation; recompute activations.",
            "trl": "Halve per_device_train_batch_size and double gradient_accumulation_steps; "
            "gradient_checkpointing=True, use_liger_kernel=True (no full logits).",
            "ms-swift": "Halve --per_device_train_batch_size and double --gradient_accumulation_steps; "
            "--gradient_checkpointing true, --padding_free true, --use_liger_kernel true.",
            "verl": "Lower actor.ppo_micro_batch_size_per_gpu (ppo_max_token_len_per_gpu with use_dynamic_bsz=True); "
            "model.enable_gradient_checkpointing=True.",
        },
        "the optimizer": {
            "": "Shard or offload the optimizer's state, or train an adapter: Adam takes 8 bytes a weight.",
            "trl": "DeepSpeed ZeRO-2 or 3 (with offload), optim='adamw_8bit', or a LoRA adapter: Adam takes 8 bytes a "
            "weight.",
            "ms-swift": "--deepspeed zero2 or zero3_offload, or --train_type lora: Adam takes 8 bytes a weight.",
            "verl": "actor.fsdp_config.optimizer_offload=True, or LoRA (model.lora_rank): Adam takes 8 bytes a weight.",
        },
    }
)
"""Fixes for a device out of memory, by the part of the step and by framework ("": any)."""


def memory_fix(text: str, framework: str | None) -> str:
    """The fix for a device out of memory; empty for other errors."""
    if DEVICE.search(text) is None:
        return ""
    phase = PHASE.search(text)
    fixes = FIXES[phase[1]] if phase is not None else {"": ANYWHERE}
    return fixes.get(framework or "", fixes[""])


def weight(event: RunEvent) -> int:
    """How much an event shows of the cause: from 0 (something ended) to 5 (the launcher names the root cause).

    The watchdog outweighs ordinary exceptions, since a rank that dies of one takes the others with it long before the
    watchdog's 10 to 30 minutes; running out of memory outweighs the watchdog.
    """
    if event.kind is EventKind.CRASH_SUMMARY:
        return 0
    for level, pattern in ((5, ROOT), (4, MEMORY), (3, WATCHDOG), (1, FOLLOWS)):
        if pattern.search(event.text):
            return level
    return 2


def by_hand(event: RunEvent) -> bool:
    """Whether somebody stopped the job (Ctrl-C)."""
    return INTERRUPTED.match(event.text) is not None


def severity_of(event: RunEvent, step: int, max_steps: int | None) -> Severity | None:
    """The severity of a death at this step, or None for the rule's own.

    Ctrl-C is no fault; an exit code alone shows no error, nor an early end unless max_steps was not reached.
    """
    if by_hand(event):
        return Severity.INFO
    if BARE_CODE.fullmatch(event.text) is None or step < (max_steps or 0):
        return None
    return Severity.WARNING if step else Severity.INFO


NO_END = "its log has no end-of-training row"
DEADLY = (EventKind.TRACEBACK, EventKind.KILLED, EventKind.CRASH_SUMMARY)


class RunCrashed(Detector):
    """A traceback followed by rows of the same attempt was only logged; any other one killed the job."""

    explained_by = ("group-size-one", "batch-not-divisible", "non-finite-metric", "memory-creep")
    wastes = WasteKind.SINCE_SAVE
    ends_run = True
    stops_progress = True

    reads = (MetricRow, RunEvent, Tick)
    needs = (("run end",),)
    survives_attempts = True
    grace_seconds: float = param(10.0, "live: seconds of silence that confirm a crash (at least two median steps)", 1)

    def setup(self) -> None:
        """Start with no sign of a crash."""
        self.suspect: RunEvent | None = None
        self.finished = False
        self.attempt = 1
        self.fired = False

    def observe(self, record: MetricRow | RunEvent | Tick, run: RunView) -> Iterable[Reading]:
        """Note tracebacks and rows; decide at a restart, a crash summary, or a tick."""
        if isinstance(record, MetricRow):
            return self._row(record, run)
        return self._event(record, run) if isinstance(record, RunEvent) else self._tick(record, run)

    def blind_because(self, run: RunView) -> str | None:
        """Blind if only rows are read: they don't show how the job ended."""
        return None if run.shows_end else "no channel that is read shows the end of this run"

    def _row(self, row: MetricRow, run: RunView) -> Iterable[Reading]:
        if row.supplement:
            return SILENT
        before, self.attempt = self.attempt, row.attempt
        if row.attempt == before and self.suspect is not None and row.step <= (self.suspect.step or 0):
            return SILENT  # written before the job died but read after, from a slower channel
        suspect, self.suspect, self.finished = self.suspect, None, False
        if suspect is not None and row.attempt > before and not self.fired:
            last = run.recent.newest(2)[0].step if len(run.recent) > 1 else 0
            return (replace(self._breach(suspect, last, run), attempt=before), OK)
        self.fired = False
        return QUIET

    def _event(self, event: RunEvent, run: RunView) -> Iterable[Reading]:
        if event.kind is EventKind.FINISHED:
            self.finished, self.suspect = True, None
        elif event.kind in DEADLY and not self.finished:
            if self.suspect is None or weight(event) >= weight(self.suspect):
                self.suspect = event
            if event.kind is EventKind.CRASH_SUMMARY:
                return self._fire(run)
        elif event.kind is EventKind.STARTED and self.suspect is not None:
            return self._fire(run)
        return SILENT

    def _tick(self, tick: Tick, run: RunView) -> Iterable[Reading]:
        if self.suspect is None:
            return self._without_sign(tick, run)
        since = tick.now - (self.suspect.seen or tick.now)
        patience = max(self.grace_seconds, 2 * (run.pace.median() or 0.0))
        if tick.live and (since < patience or tick.state is EndState.RUNNING):
            return SILENT
        return self._fire(run)

    def _without_sign(self, tick: Tick, run: RunView) -> Iterable[Reading]:
        why_not = self.blind_because(run) or ("" if run.step else NotYet("no row has been logged yet"))
        if why_not:
            return no_data(why_not)
        if tick.state is EndState.ENDED and not self.finished and run.step < (run.max_steps or 0):
            self.suspect = RunEvent("", EventKind.KILLED, run.step, NO_END)
            return self._fire(run)
        return QUIET

    def _fire(self, run: RunView) -> Iterable[Reading]:
        if self.suspect is None or self.fired:
            return SILENT
        self.fired = True
        return (self._breach(self.suspect, run.step, run),)

    @staticmethod
    def _breach(event: RunEvent, step: int, run: RunView) -> Reading:
        what = "ended" if event.text == NO_END else "was killed" if event.kind is EventKind.KILLED else "died"
        what = "was stopped manually" if by_hand(event) else what
        sign = "no end marker" if event.text == NO_END else event.kind.value
        return Reading(
            Verdict.BREACH,
            severity=severity_of(event, step, run.max_steps),
            message=f"the job {what} at step {step}: {event.text or NO_END}"[:300],
            evidence={"last_step": step, "error": None if event.text == NO_END else event.text[:300], "sign": sign},
            step=step,
            immediate=True,
            hint=memory_fix(event.text, run.framework)
            or ("" if step else "Read the traceback in the job's console, fix its cause, and start again."),
        )
