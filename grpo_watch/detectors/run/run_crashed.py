"""The job died: a traceback, a kill message or a crash summary follows its last row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from grpo_watch import lazy_re as re
from grpo_watch.engine.detector import OK, QUIET, SILENT, Detector, NotYet, RunView, no_data, param
from grpo_watch.engine.records import EndState, EventKind, MetricRow, Reading, RunEvent, Severity, Tick, Verdict
from grpo_watch.engine.traits import WasteKind

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
"""What a launcher or a peer reports of a process that is gone already: torchrun, Ray, vLLM, Slurm.

Ray's own error comes before the one that it carries, and vLLM's API server refers to its engine's.
"""
INTERRUPTED = re.compile(r"KeyboardInterrupt|interrupted, by wandb|received (?:signal 2|SIGINT)", re.IGNORECASE)

BARE_CODE = re.compile(r"wandb stored the exit code \d{1,3}")
"""wandb's record of a process that ended with an error, where nothing else names it."""


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
"""What to do where the device's memory runs out, by the part of the step and by framework ("": any)."""


def memory_fix(text: str, framework: str | None) -> str:
    """What to do about a device out of memory; empty for other errors."""
    if DEVICE.search(text) is None:
        return ""
    phase = PHASE.search(text)
    fixes = FIXES[phase[1]] if phase is not None else {"": ANYWHERE}
    return fixes.get(framework or "", fixes[""])


def weight(event: RunEvent) -> int:
    """How much a sign says about the cause: 0 (only that something ended) to 5 (the launcher names the root cause).

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
    """The severity of a death at this step where it is not the rule's own.

    Ctrl-C is no fault; an exit code alone shows no error, and no early end unless one was planned.
    """
    if by_hand(event):
        return Severity.INFO
    if BARE_CODE.fullmatch(event.text) is None or step < (max_steps or 0):
        return None
    return Severity.WARNING if step else Severity.INFO


NO_END = "its log has no end-of-training row"
DEADLY = (EventKind.TRACEBACK, EventKind.KILLED, EventKind.CRASH_SUMMARY)


class RunCrashed(Detector):
    """A traceback followed by further rows of the same attempt was only logged; any other killed the job."""

    explained_by = ("group-size-one", "batch-not-divisible", "non-finite-metric", "memory-creep")
    wastes = WasteKind.SINCE_SAVE
    ends_run = True
    stops_progress = True

    reads = (MetricRow, RunEvent, Tick)
    needs = (("run end",),)
    survives_attempts = True
    grace_seconds: float = param(10.0, "live: seconds of silence that confirm a crash (at least two median steps)", 1)

    def setup(self) -> None:
        """No sign of death yet."""
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
        """Rows alone don't show how the job ended."""
        return None if run.shows_end else "no channel that is read shows the end of this run"

    def _row(self, row: MetricRow, run: RunView) -> Iterable[Reading]:
        if row.supplement:
            return SILENT
        before, self.attempt = self.attempt, row.attempt
        if row.attempt == before and self.suspect is not None and row.step <= (self.suspect.step or 0):
            return SILENT  # written before the job died but read after it: another channel was faster
        suspect, self.suspect, self.finished = self.suspect, None, False
        if suspect is not None and row.attempt > before and not self.fired:
            last = run.recent[-2].step if len(run.recent) > 1 else 0
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
