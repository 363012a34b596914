"""Appends lines to the probe's file in the run's folder: one file per process, one write per line."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

Folder: TypeAlias = str | os.PathLike[str]
SCHEMA = "probe/1"
FILE = "grpo-watch-probe-{rank}.jsonl"
ENGINE_FILE = "grpo-watch-probe-engine{engine}.jsonl"
"""``engine`` is empty or ``-ID``: several engines of a run must not write to one file."""


class Journal:
    """One file that only grows.

    Args:
        folder: the run's output folder; made when it is not there.
        name: the file's name in it.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self.path = Path(folder, name)

    def size(self) -> int:
        """Bytes written so far, by this process and those before it."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def write(self, kind: str, what: Mapping[str, Any]) -> None:
        """Append one line.

        Raises:
            OSError: the file can't be written.
        """
        line = {"grpo_watch": SCHEMA, "kind": kind, "time": round(time.time(), 3), **what}
        data = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as stream:
            stream.write(data)
