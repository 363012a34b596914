"""The real ``grpo-watch run`` in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx

PROGRAM = [sys.executable, "-m", "grpo_watch.cli.main"]
PATIENCE = 300.0
"""Seconds after which a test gives up waiting; a slow and busy machine may need many to start a process."""
T = TypeVar("T")


def changed(**constants: float) -> list[str]:
    """The program with other values of constants; ``__`` in a name stands for a dot of its path in the package."""
    code = "from importlib import import_module as get; from grpo_watch.cli.main import main; "
    for path, value in constants.items():
        module, _, name = path.replace("__", ".").rpartition(".")
        code += f"get('grpo_watch.{module}').{name} = {value}; "
    return [sys.executable, "-c", f"{code}main()"]


UNHURRIED = changed(daemon__service__LEAVE_SECONDS=200.0, cli__run__LEAVE_SECONDS=200.0)
"""A stop may take as long as a slow machine needs before something counts as hanging."""


@dataclass
class Process:
    """A running daemon: its process, what it wrote, where it answers, and the token that it made for its page."""

    child: subprocess.Popen[bytes]
    output: Path
    url: str = ""
    token: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def get(self, path: str) -> str:
        return httpx.get(f"{self.url}{path}", headers=self.headers, timeout=PATIENCE).text

    def said(self) -> str:
        return self.output.read_text()

    def ends(self) -> int:
        return self.child.wait(PATIENCE)


def until(look: Callable[[], T | None], child: subprocess.Popen[bytes] | None = None, patience: float = PATIENCE) -> T:
    """What ``look`` gives, asked again until it is truthy."""
    pause, deadline = threading.Event(), time.monotonic() + patience
    while not (found := look()):
        assert child is None or child.poll() is None, "the process ended before that"
        assert time.monotonic() < deadline, "it took too long"
        pause.wait(0.02)
    return found


def command_of(pid: int) -> str:
    """The command line of a process; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@contextmanager
def watching(
    *paths: Path | str,
    state: Path,
    options: tuple[str, ...] = (),
    wrapped: Sequence[str] = (),
    program: Sequence[str] = PROGRAM,
) -> Iterator[Process]:
    """A daemon over ``paths`` on a free port, run by ``wrapped`` if given; killed at the end if it still runs."""
    output = state.with_name(f"{state.name}-{time.monotonic_ns()}.log")
    command = [*wrapped, *program, "run", *map(str, paths), "--listen", ":0", "--state-dir", str(state), *options]
    with output.open("wb") as log:
        environment = {**os.environ, "NO_COLOR": "1", "GRPO_WATCH_CONFIG": ""}
        child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=state.parent, env=environment)
    process = Process(child, output)
    try:
        process.url = until(lambda: re.search(r"metrics: (https?://[^/]+)", process.said()), child)[1]
        made = re.search(r"page: .*\?token=(\S+)", process.said())
        process.token = made[1] if made else ""
        yield process
    finally:
        child.kill()
        child.wait()
