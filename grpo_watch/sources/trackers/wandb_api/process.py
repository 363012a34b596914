"""Runs ``WandbClient`` in a separate process: a hung request, its memory and its hooks thus stay out of the watcher."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Concatenate, ParamSpec, TypeVar, cast

from grpo_watch.children.child import Child, ChildLostError, bound_memory, follow_parent
from grpo_watch.sources.trackers.wandb_api.client import LARGEST, WandbClient, seclude
from grpo_watch.sources.trackers.wandb_api.remote import RemoteError, ServerTrouble

P = ParamSpec("P")
A = TypeVar("A")
PATIENCE = 150.0
"""Seconds after which a silent process is ended: two requests, the pause between them, the start."""
MOST_STORED = LARGEST + (8 << 20)
"""Most bytes of a file in the process's folder: one table, and wandb's own files."""


class ClientProcess:
    """A ``WandbClient`` in another process, started at the first query and replaced if it dies.

    Args:
        base_url: the server's address; None: ``WANDB_BASE_URL``, else wandb's own default.
        patience: seconds to wait for a result.
        http_seconds: time limit of one request, and of one query (with its retry).
    """

    def __init__(
        self,
        base_url: str | None = None,
        patience: float = PATIENCE,
        http_seconds: tuple[float, float] | None = None,
    ) -> None:
        self._arguments = (base_url, http_seconds)
        self._patience = patience
        self._child: Child | None = None
        self._folder = ""

    def ask(self, question: Callable[Concatenate[WandbClient, P], A], *arguments: P.args, **_: P.kwargs) -> A:
        """Return the client's result for a query, with positional arguments. Raises ``RemoteError``."""
        child = self._started()
        try:
            child.send((question.__name__, arguments))
            answer = child.receive(self._patience)
        except TimeoutError:
            self._drop()
            raise RemoteError(ServerTrouble.TIMEOUT, f"no answer for {self._patience:g} s") from None
        except ChildLostError:
            self._drop()
            raise RemoteError(ServerTrouble.FAILED, "wandb's client died; it is started again") from None
        if isinstance(answer, RemoteError):
            if answer.trouble is ServerTrouble.TOO_MUCH:
                self._drop()  # it keeps the memory that this result took
            raise answer
        return cast("A", answer)

    def interrupt(self) -> None:
        """End the process, and with it a pending query."""
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        """End the process; wandb's own process ends with it."""
        child, self._child = self._child, None
        if child is not None:
            child.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _started(self) -> Child:
        if self._child is None:
            self._folder = tempfile.mkdtemp(prefix="grpo-watch-wandb-")
            self._child = Child(serve, self._folder, *self._arguments, name="wandb")
        return self._child

    def _drop(self) -> None:
        self.interrupt()
        self.close()


def serve(line: Connection, folder: str, base_url: str | None, http_seconds: tuple[float, float] | None) -> None:
    """Serve queries until the other end is closed. wandb's output is hidden: it may hold an address."""
    follow_parent()
    bound_memory()
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_STORED, MOST_STORED))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    seclude(folder, base_url)
    client = WandbClient(*http_seconds) if http_seconds is not None else WandbClient()
    with suppress(EOFError, OSError):
        while True:
            name, arguments = line.recv()
            try:
                answer = getattr(client, name)(*arguments)
            except RemoteError as error:
                answer = error
            line.send(answer)
    shutil.rmtree(folder, ignore_errors=True)
