"""Optional: checksums of the weights while they train, for jobs whose owner lets grpo-watch into the process.

``GrpoWatchCallback`` is a Trainer callback (TRL, ms-swift, transformers); ``probe`` is the same for other loops. Both
append lines to ``grpo-watch-probe-RANK.jsonl`` in the run's folder, where the sidecar finds them. Nothing here raises
into the training loop. This module imports neither torch nor anything else that is not in the standard library
(tested); it works after ``pip install --no-deps grpo-watch``.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from grpo_watch.probe import job, stop_file
from grpo_watch.probe.journal import ENGINE_FILE, FILE, Journal
from grpo_watch.probe.pieces import Piece
from grpo_watch.probe.reading import checksums

__all__ = ["GrpoWatchCallback", "VllmProbe", "engine_version", "probe"]

WRITERS = 8
"""Processes that write by default. A shard of every large parameter lies on each, and replicas say the same."""
TRIES = 3
"""Probes in a row that may fail for want of a disk (full, a stale handle) before there are no more."""
Folder = str | os.PathLike[str]


def probe(model: Any, step: int, path: Folder, *, frozen: bool = False, writers: int = WRITERS) -> bool:
    """Write the checksums of a model's trainable parameters, from each process that trains; never raises.

    Args:
        model: the torch module that is trained, wrapped or not.
        step: optimizer steps made so far.
        path: the run's output folder.
        frozen: read the frozen parameters too.
        writers: so many processes write, the first ones.

    Returns:
        Whether it could be read and written; if not, the file says why where it can.
    """
    return _probe(model, step, path, frozen=frozen, writers=writers) is None


def _probe(model: Any, step: int, path: Folder, *, frozen: bool, writers: int) -> Exception | None:
    """What went wrong, if anything did."""
    rank, ranks = job.rank_and_ranks()
    if rank >= writers:
        return None
    what = {"rank": rank, "ranks": ranks, "writers": min(ranks, writers)}
    journal = Journal(path, FILE.format(rank=rank))
    wrong = _attempt(journal, step, lambda: _weights(journal, model, "policy", {"step": step, **what}))
    if wrong is None and frozen:
        wrong = _attempt(journal, step, lambda: _weights(journal, model, "frozen", {"step": step, **what}))
    return wrong


def engine_version(version: object, step: int, path: Folder, *, synced: bool = False, engine: str = "") -> bool:
    """Write the version of the weights that a rollout engine says it holds (SGLang's ``weight_version``).

    Args:
        version: what the engine answered; another one means other weights.
        step: optimizer steps made so far.
        path: the run's output folder.
        synced: whether the engine has just been given the weights of that step.
        engine: which one, where there are several.
    """
    journal = Journal(path, _engine_file(engine))
    line = {"of": "engine", "step": step, "synced": synced, "tensors": {}, "version": str(version)[:200]}
    return _attempt(journal, step, lambda: journal.write("weights", line)) is None


class VllmProbe:
    """The same for vLLM's workers: ``LLM(worker_extension_cls="grpo_watch.callback.VllmProbe")``."""

    def grpo_watch_probe(self, step: int, path: str, synced: bool = False) -> bool:  # noqa: FBT001, FBT002  vLLM's call
        """``llm.collective_rpc("grpo_watch_probe", args=(step, folder))``: the first worker speaks for the engine.

        Args:
            step: optimizer steps made so far.
            path: the run's output folder.
            synced: whether the engine has just been given the weights of that step.
        """
        rank, ranks = job.rank_and_ranks()
        if rank:
            return True
        journal = Journal(path, _engine_file(self._engine()))
        what = {"step": step, "rank": 0, "ranks": ranks, "synced": synced}
        return _attempt(journal, step, lambda: _weights(journal, self._model(), "engine", what)) is None

    def _engine(self) -> str:
        """Which engine: each data-parallel one, and each replica in a process of its own, has a first worker."""
        layout = getattr(self, "parallel_config", None)
        part = getattr(layout, "data_parallel_rank", None) or 0
        return f"{part}-{platform.node()[:40]}-{os.getpid()}"

    def _model(self) -> Any:
        worker: Any = self  # vLLM puts this class among the bases of its own
        return worker.model_runner.get_model()


class GrpoWatchCallback:
    """Probes every ``every`` optimizer steps: ``trainer.add_callback(GrpoWatchCallback())`` on every process.

    An error is written as a line and ends the probing, not the job; an error of the disk does so after ``TRIES`` in a
    row. It may be constructed with the arguments that ms-swift gives its callbacks,
    ``GrpoWatchCallback(args, trainer)``.

    Args:
        every: optimizer steps between two probes; the first one follows the first step.
        frozen_every: the same for the parameters that are not trained; 0 leaves them out.
        path: the run's folder; by default the trainer's ``output_dir``.
        writers: so many processes write, the first ones.
        stop_file: name of a file in that folder, or in one of the two above it, upon which training stops, as the
            ``stop`` sink makes it; None: never. All processes agree on it by a collective operation at each probe, so
            every one must have the callback.
    """

    def __init__(  # noqa: PLR0913  options of a probe
        self,
        args: Any = None,
        trainer: Any = None,  # noqa: ARG002  given by ms-swift
        *,
        every: int = 10,
        frozen_every: int = 0,
        path: Folder | None = None,
        writers: int = WRITERS,
        stop_file: str | None = None,
    ) -> None:
        if every < 1 or frozen_every < 0 or writers < 1:
            raise ValueError("every and writers are at least 1, frozen_every at least 0")
        self._every, self._frozen_every, self._writers = every, frozen_every, writers
        self._path, self._stop_file = path or getattr(args, "output_dir", None), stop_file
        self._begun, self._failures, self._first, self._heeded = False, 0, 0, False

    def __getattr__(self, name: str) -> Callable[..., None]:
        """The events of a Trainer that matter here to nobody."""
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(name)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002  the Trainer's
        """Forget the stop file of an earlier attempt, and note where this one goes on."""
        self._first, self._heeded = getattr(state, "global_step", 0), False
        if self._stop_file is not None and job.rank_and_ranks()[0] == 0:
            for file in self._stop_files(args):
                _quietly(partial(file.unlink, missing_ok=True))

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Probe when it is time."""
        step = state.global_step
        due = step % self._every == 0
        if (due or not self._begun) and model is not None and self._failures < TRIES:
            wrong = self._probe(args, state, model, step)
            transient = isinstance(wrong, OSError)
            self._failures = 0 if wrong is None else self._failures + 1 if transient else TRIES
        if due and self._stop_file is not None:
            _quietly(lambda: self._stop(args, control, step))

    def _probe(self, args: Any, state: Any, model: Any, step: int) -> Exception | None:
        folder = self._place(args)
        if not self._begun:
            self._begun = True
            _quietly(lambda: self._start(folder, args, state, model))
        frozen = self._frozen_every > 0 and (step % self._frozen_every == 0 or step == 1)
        return _probe(model, step, folder, frozen=frozen, writers=self._writers)

    def _place(self, args: Any, name: str = "") -> Path:
        return Path(self._path or args.output_dir, name)

    def _stop_files(self, args: Any) -> list[Path]:
        """Where the file may be: the run's folder lies up to two above the output's (``output/v0-…`` belongs to it)."""
        folder = self._place(args).absolute()
        return [place / (self._stop_file or "") for place in (folder, *list(folder.parents)[:2])]

    def _start(self, folder: Path, args: Any, state: Any, model: Any) -> None:
        """Say once what this process is."""
        rank, ranks = job.rank_and_ranks()
        if rank >= self._writers:
            return
        what = {
            "rank": rank,
            "ranks": ranks,
            "writers": min(ranks, self._writers),
            "every": self._every,
            "framework": job.framework(args),
            "seed": job.torch_of_job().initial_seed(),
            "settings": {**job.settings(args), "steps_printed": getattr(state, "max_steps", None)},
            "sampling": job.sampling(model, args),
        }
        Journal(folder, FILE.format(rank=rank)).write("start", what)

    def _stop(self, args: Any, control: Any, step: int) -> None:
        """Stop when one process sees the file: all at the same step, for one that goes on alone would wait forever."""
        asked = stop_file.asked(self._stop_files(args), self._first, step)
        rank, ranks = job.rank_and_ranks()
        torch: Any = sys.modules.get("torch")
        heeds = asked is not None
        if ranks > 1 and torch.distributed.is_initialized():
            device = "cpu" if torch.distributed.get_backend() == "gloo" else args.device
            flag = torch.tensor(int(heeds), device=device)
            torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
            heeds = bool(flag.item())
        if heeds:
            control.should_training_stop = True
            if rank == 0 and not self._heeded:
                self._heeded = True
                what = {"step": step, "rank": 0, **(asked or {})}
                Journal(self._place(args), FILE.format(rank=0)).write("stopped", what)


def _engine_file(engine: str) -> str:
    """The engine's own file; what a file's name may not have becomes a dash."""
    safe = re.sub(r"[^A-Za-z0-9_]+", "-", engine)[:64].strip("-")
    return ENGINE_FILE.format(engine=f"-{safe}" if safe else "")


def _weights(journal: Journal, model: Any, of: str, what: dict[str, Any]) -> None:
    begun = perf_counter()
    rank, ranks = what["rank"], what["ranks"]

    def wanted(piece: Piece) -> bool:
        return of == "engine" or piece.trainable == (of == "policy")

    alike = True if of == "engine" else None  # one worker speaks for the engine, so nothing is compared across ranks
    tensors, unread = checksums(model, rank, ranks, wanted, alike=alike)
    told = {"unread": unread} if unread else {}
    seconds = round(perf_counter() - begun, 4)
    journal.write("weights", {"of": of, **what, **told, "seconds": seconds, "tensors": tensors})


def _attempt(journal: Journal, step: int, work: Callable[[], None]) -> Exception | None:
    """Do it; what goes wrong becomes a line and is returned, never raised."""
    try:
        work()
    except Exception as error:  # noqa: BLE001  whatever it is, training goes on
        text = f"{type(error).__name__}: {error}"[:300]
        _quietly(lambda: journal.write("error", {"step": step, "text": text}))
        return error
    return None


def _quietly(work: Callable[[], None]) -> None:
    with suppress(Exception):  # there is nobody to tell
        work()


def _nothing(*_: Any, **__: Any) -> None:
    """No answer: the Trainer's control stays as it is."""
