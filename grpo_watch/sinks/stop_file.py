"""The file that asks a job to stop: made and removed in exactly one folder, never through a link."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from grpo_watch.sinks.text import plain

MOST_BYTES = 65_536
"""A file that is larger was not made here."""
_HERE = os.O_NOFOLLOW | os.O_CLOEXEC


def make(file: Path, document: Mapping[str, Any]) -> None:
    """Make the file with one line of JSON; one that is there already has asked before, and stays.

    Raises:
        OSError: the folder can't be opened or is a link, or the file can't be made.
    """
    text = json.dumps(plain(document)) + "\n"
    with _opened(file.parent) as place:
        try:
            made = os.open(file.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _HERE, 0o644, dir_fd=place)
        except FileExistsError:
            return
        with os.fdopen(made, "w", encoding="utf-8") as stream:
            stream.write(text)


def remove(file: Path, said: Mapping[str, Any]) -> None:
    """Remove the file if it is one that says each of these entries.

    Raises:
        OSError: the folder can't be opened or written.
    """
    with suppress(FileNotFoundError), _opened(file.parent) as place:
        found = _read(place, file.name)
        if all(found.get(name) == value for name, value in plain(said).items()):
            os.unlink(file.name, dir_fd=place)


def reachable(folder: Path) -> str:
    """Why no file can be made in the folder, as far as opening it tells; empty: none."""
    try:
        with _opened(folder):
            return ""
    except OSError as problem:
        return problem.strerror or str(problem)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _HERE)
    try:
        yield place
    finally:
        os.close(place)


def _read(place: int, name: str) -> dict[str, Any]:
    """What a file says; nothing where it is a link, no regular file, or none of ours."""
    try:
        opened = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _HERE, dir_fd=place)
    except FileNotFoundError:
        raise
    except OSError:
        return {}
    with os.fdopen(opened, "rb") as stream, suppress(ValueError, RecursionError, OSError):
        found = json.loads(stream.read(MOST_BYTES))
        return found if isinstance(found, dict) else {}
    return {}
