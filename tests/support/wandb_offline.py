"""A job that logs with the real wandb client, offline, one line of commands at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.process import PATIENCE

JOB = """
import json, sys
import wandb

run = wandb.init(project="grpo", mode="offline", dir=sys.argv[1], config=json.loads(sys.argv[2]))
if sys.argv[3]:
    run.define_metric("*", step_metric=sys.argv[3], step_sync=True)
print("started", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if "exit" in order:
        run.finish(exit_code=order["exit"])
        break
    table = order.pop("table", None)
    if table is not None:
        order["completions"] = wandb.Table(columns=table[0], data=table[1])
    run.log(order)
    print("logged", flush=True)
"""


class Job:
    """The job; ``path`` is the ``.wandb`` file that its client writes."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process, self._folder = process, folder
        self._answer()

    @property
    def path(self) -> Path:
        """The file, once the client made it."""
        (path,) = self._folder.glob("wandb/offline-run-*/run-*.wandb")
        return path

    def log(self, **values: Any) -> None:
        """One call of ``run.log``; ``__`` in a name stands for ``/``, ``table`` is a completions table."""
        self._order({name.replace("__", "/"): value for name, value in values.items()})
        self._answer()

    def finish(self, code: int = 0) -> None:
        """End the run with an exit code, and wait until the client wrote everything."""
        self._order({"exit": code})
        assert self._process.wait(timeout=PATIENCE) == 0

    def _order(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> None:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer.strip() in {"started", "logged"}, answer


@contextmanager
def job(folder: Path, step: str = "train/global_step", **config: Any) -> Iterator[Job]:
    """A running job that logs below ``folder / "wandb"``; ``step`` is the metric that it counts by, as transformers."""
    command = [sys.executable, "-c", JOB, str(folder), json.dumps(config), step]
    quiet = {**os.environ, "WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "WANDB_X_DISABLE_STATS": "true"}
    quiet |= {"WANDB_X_SERVICE_WAIT": "300", "WANDB_INIT_TIMEOUT": "300"}  # a busy machine starts its processes slowly
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=quiet
    )
    with process:
        try:
            yield Job(process, folder)
        finally:
            process.kill()
