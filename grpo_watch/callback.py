"""Optional: checksums of the weights while they train, for jobs whose owner lets grpo-watch into the process.

``GrpoWatchCallback`` is a Trainer callback (TRL, ms-swift, transformers); ``probe`` is the same for other loops. Both
append lines to ``grpo-watch-probe-RANK.jsonl`` in the run's folder, where the sidecar finds them. Nothing here raises
into the training loop. This module imports neither torch nor anything else that is not in the standard library
(tested); it works after ``pip install --no-deps grpo-watch``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from grpo_watch.probe import job
from grpo_watch.probe.writing import FILE, Folder, Journal, attempt, quietly, write_weights

__all__ = ["GrpoWatchCallback", "probe"]

WRITERS = 8
"""Default number of processes that write. Each holds a shard of every large parameter, and replicas would be equal."""
TRIES = 3
"""Probes in a row that may fail because of the disk (full, a stale handle) before probing stops."""


def probe(model: Any, step: int, path: Folder, *, frozen: bool = False, writers: int = WRITERS) -> bool:
    """Write the checksums of a model's trainable parameters, from each process that trains; never raises.

    Args:
        model: the torch module that is trained, wrapped or not.
        step: optimizer steps made so far.
        path: the run's output folder.
        frozen: read the frozen parameters too.
        writers: only the first so many processes write.

    Returns:
        Whether it could be read and written; if not, the file holds the reason if possible.
    """
    return _probe(model, step, path, frozen=frozen, writers=writers) is None


def _probe(model: Any, step: int, path: Folder, *, frozen: bool, writers: int) -> Exception | None:
    def work(journal: Journal) -> None:
        rank, ranks = job.rank_and_ranks()
        what = {"step": int(step), "rank": rank, "ranks": ranks, "writers": min(ranks, writers)}
        if rank < writers:
            write_weights(journal, model, "policy", what)
            if frozen:
                _write_frozen(journal, model, what)

    return attempt(path, lambda: FILE.format(rank=job.rank_and_ranks()[0]), step, work)


class FrozenUnreadError(Exception):
    """The frozen parameters can't be read; the trained ones could."""


def _write_frozen(journal: Journal, model: Any, what: dict[str, Any]) -> None:
    try:
        write_weights(journal, model, "frozen", what)
    except OSError:
        raise
    except Exception as error:
        message = f"parameters that are not trained are left out from now on: {type(error).__name__}: {error}"
        raise FrozenUnreadError(message) from error


class GrpoWatchCallback:
    """Probes every ``every`` optimizer steps: ``trainer.add_callback(GrpoWatchCallback())`` on every process.

    An error is written as a line and ends the probing, not the job; a disk error does so after ``TRIES`` in a row, and
    an error of frozen parameters ends the reading of those alone. It may be constructed with the arguments that
    ms-swift gives its callbacks, ``GrpoWatchCallback(args, trainer)``.

    Args:
        every: optimizer steps between two probes; the first one follows the first step.
        frozen_every: the same for frozen parameters, written together with the trained ones; 0 leaves them out.
        path: the run's folder; by default the trainer's ``output_dir``.
        writers: only the first so many processes write.
        stop_file: name of a file in that folder, or in one of the two above it, that stops training; None: never. All
            processes agree on it by a collective operation at each probe, so every one must have the callback.
    """

    def __init__(  # noqa: PLR0913  options of a probe
        self,
        args: Any = None,
        trainer: Any = None,
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
        self._trainer, self._begun, self._failures = trainer, False, 0
        self._stop_written = False

    def __getattr__(self, name: str) -> Callable[..., None]:
        """The events of a Trainer that need no action."""
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(name)

    def on_train_begin(self, args: Any, *_: Any, **__: Any) -> None:
        """Forget the stop file of an earlier attempt."""
        if self._stop_file is not None:
            quietly(lambda: self._forget(args))

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Probe when due."""
        quietly(lambda: self._probe_if_due(args, state, model))
        if self._stop_file is not None:
            quietly(lambda: self._stop(args, state, control))

    def _probe_if_due(self, args: Any, state: Any, model: Any) -> None:
        step, frozen_every = state.global_step, self._frozen_every
        due = step % self._every == 0 or (frozen_every > 0 and step % frozen_every == 0)
        if (due or not self._begun) and model is not None and self._failures < TRIES:
            wrong = self._probe(args, state, model, step)
            if isinstance(wrong, FrozenUnreadError):
                self._frozen_every, wrong = 0, None
            transient = isinstance(wrong, OSError)
            self._failures = 0 if wrong is None else self._failures + 1 if transient else TRIES

    def _probe(self, args: Any, state: Any, model: Any, step: int) -> Exception | None:
        first, self._begun = not self._begun, True
        if first:
            quietly(lambda: self._start(args, state, model))
        frozen = self._frozen_every > 0 and (first or step % self._frozen_every == 0)
        try:
            folder = self._place(args)
        except Exception as error:  # noqa: BLE001  training continues after any error
            return error
        return _probe(model, step, folder, frozen=frozen, writers=self._writers)

    def _place(self, args: Any, name: str = "") -> Path:
        return Path(self._path or args.output_dir, name)

    def _stop_files(self, args: Any) -> list[Path]:
        """Possible places of the file: the output's folder and two above it (``output/v0-…`` belongs to ``output``)."""
        folder = self._place(args).absolute()
        return [place / (self._stop_file or "") for place in (folder, *list(folder.parents)[:2])]

    def _forget(self, args: Any) -> None:
        self._stop_written = False
        if job.rank_and_ranks()[0] == 0:
            for file in self._stop_files(args):
                quietly(partial(file.unlink, missing_ok=True))

    def _start(self, args: Any, state: Any, model: Any) -> None:
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
            "sampling": job.sampling(model, args, self._trainer),
        }
        Journal(self._place(args), FILE.format(rank=rank)).write("start", what)

    def _stop(self, args: Any, state: Any, control: Any) -> None:
        """Stop all processes at the same step if one sees the file; one that continued alone would wait forever."""
        if state.global_step % self._every:
            return
        stops = self._asked(args)
        rank, ranks = job.rank_and_ranks()
        torch: Any = sys.modules.get("torch")
        if ranks > 1 and torch.distributed.is_initialized():
            device = "cpu" if torch.distributed.get_backend() == "gloo" else args.device
            flag = torch.tensor(int(stops), device=device)
            torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
            stops = bool(flag.item())
        if stops:
            control.should_training_stop = True
            if rank == 0 and not self._stop_written:
                self._stop_written = True
                Journal(self._place(args), FILE.format(rank=0)).write("stopped", {"step": state.global_step, "rank": 0})

    def _asked(self, args: Any) -> bool:
        """Whether the file exists; never raises, since this process would then miss the collective call."""
        with suppress(Exception):  # the folder is missing
            for file in self._stop_files(args):
                with suppress(Exception):  # this folder can't be read, but the file may be in another
                    if file.exists():
                        return True
        return False


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing: the Trainer's control stays as it is."""
