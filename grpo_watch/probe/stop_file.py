"""Reads the file by which somebody asks a job to stop, and ignores requests meant for an earlier attempt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

MOST_BYTES = 65_536
KEPT = ("rule", "reason", "id")
"""Fields of a request that are kept, for the line that reports the stop."""


def asked(files: Iterable[Path], first: int, step: int) -> dict[str, str] | None:
    """The first request for this attempt to stop; None where there is none. Never raises.

    A file may name a step, the newest that was seen of the run. One that this attempt has not made since it began is of
    an earlier attempt: that file is removed. A file that names no step, such as an empty one, always counts.

    Args:
        files: where one may be.
        first: the step from which this attempt continues (0: from the start).
        step: the step that it has made now.
    """
    for file in files:
        with suppress(OSError):  # it is not there, or a network file system lost it for a moment (ESTALE)
            request = _request(file)
            if request is None:
                continue
            read = request.get("step")
            if not isinstance(read, int) or first < read <= step:
                return {name: str(request[name])[:300] for name in KEPT if name in request}
            file.unlink()
    return None


def _request(file: Path) -> Mapping[str, Any] | None:
    """The content of a file: empty, if it is no JSON; None where there is no file. Raises ``OSError``."""
    if not file.exists():
        return None
    if not file.is_file():  # a pipe would hang the job
        return {}
    with file.open("rb") as stream, suppress(ValueError, RecursionError):
        request = json.loads(stream.read(MOST_BYTES))
        return request if isinstance(request, dict) else {}
    return {}
