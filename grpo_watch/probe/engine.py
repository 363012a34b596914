"""What rollout engines report of their weights: vLLM's workers by checksums, SGLang by the version it was given."""

from __future__ import annotations

import os
import platform
import re
from typing import Any

from grpo_watch.probe import job
from grpo_watch.probe.writing import ENGINE_FILE, Folder, attempt, write_weights

NO_VERSIONS = frozenset({"", "None", "default"})
"""What SGLang answers (``weight_version`` of ``/model_info``) while no update has set a version: it never changes."""


def engine_version(version: object, step: int, path: Folder, *, synced: bool = False, engine: str = "") -> bool:
    """Write the version of the weights that a rollout engine reports (SGLang's ``weight_version``).

    Args:
        version: what the engine answered; another one means other weights.
        step: optimizer steps made so far.
        path: the run's output folder.
        synced: whether the engine has just been given the weights of that step.
        engine: which one, where there are several.

    Returns:
        Whether it was written; not where the engine never got a version; the file then holds an error.
    """

    def work(journal: Any) -> None:
        reported = str(version)[:200]
        if reported in NO_VERSIONS:
            raise ValueError(f"the engine's weight version is {reported!r}: give weight_version= with each update")
        what = {"of": "engine", "step": int(step), "synced": bool(synced), "tensors": {}, "version": reported}
        journal.write("weights", what)

    return attempt(path, lambda: _file(engine), step, work) is None


def engine_weights(model: Any, step: int, path: Folder, *, synced: bool = False, engine: str = "") -> bool:
    """Write the checksums of an engine's model that lies in this process, as a colocated one does.

    Args:
        model: the engine's torch module.
        step: optimizer steps made so far.
        path: the run's output folder.
        synced: whether the engine has just been given the weights of that step.
        engine: which one, where there are several: each process that holds one names it otherwise.
    """
    what = {"step": step, "rank": 0, "ranks": 1, "synced": bool(synced)}
    wrong = attempt(path, lambda: _file(engine), step, lambda journal: write_weights(journal, model, "engine", what))
    return wrong is None


class VllmProbe:
    """The same for vLLM's workers: ``LLM(worker_extension_cls="grpo_watch.callback.VllmProbe")``.

    vLLM refuses an extension that has an attribute of its worker's, so this class has but one. The method needs no more
    than the worker: where the place of the extension is taken, it may be called as a function with the worker.
    """

    def grpo_watch_probe(self, step: int, path: str, synced: bool = False) -> bool:  # noqa: FBT001, FBT002  vLLM's call
        """``llm.collective_rpc("grpo_watch_probe", args=(step, folder))``: the first worker represents the engine.

        Args:
            step: optimizer steps made so far.
            path: the run's output folder.
            synced: whether the engine has just been given the weights of that step.
        """
        worker: Any = self  # vLLM puts this class among the bases of its own

        def work(journal: Any) -> None:
            rank, ranks = _place(worker)
            if rank == 0:
                what = {"step": step, "rank": 0, "ranks": ranks, "synced": bool(synced)}
                write_weights(journal, worker.model_runner.get_model(), "engine", what)

        return attempt(path, lambda: _file(_engine_of(worker)), step, work) is None


def _place(worker: Any) -> tuple[int, int]:
    """Which of an engine's workers this is, and of how many.

    ``torch.distributed`` does not know: vLLM makes one group of all data-parallel engines, and engines in a trainer's
    processes are in the trainer's. ``worker.rank`` counts in the engine, or over all engines of an external launcher.
    """
    ranks = getattr(getattr(worker, "parallel_config", None), "world_size", None)
    rank = getattr(worker, "rank", None)
    if isinstance(rank, int) and isinstance(ranks, int) and ranks > 0:
        return rank % ranks, ranks
    return job.rank_and_ranks()


def _engine_of(worker: Any) -> str:
    """Which engine: each data-parallel one, and each replica in a process of its own, has a first worker."""
    layout = getattr(worker, "parallel_config", None)
    part = getattr(layout, "data_parallel_rank", None) or 0
    return f"{part}-{platform.node()[:40]}-{os.getpid()}"


def _file(engine: str) -> str:
    """The engine's own file; what a file's name may not have becomes a dash."""
    safe = re.sub(r"[^A-Za-z0-9_]+", "-", str(engine))[:64].strip("-")
    return ENGINE_FILE.format(engine=f"-{safe}" if safe else "")
