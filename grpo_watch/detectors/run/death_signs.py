"""Ranks the errors around the end of a job: which of them ended it, and which only followed."""

from __future__ import annotations

import re

from grpo_watch.engine.records import EventKind, RunEvent, Severity

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
