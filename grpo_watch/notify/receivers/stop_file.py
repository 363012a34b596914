"""The file that asks a job to stop: made whole and removed in exactly one folder, never through a link."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from grpo_watch.safe_text import plain

MOST_BYTES = 65_536
"""A file that is larger was not made here."""
_HERE = os.O_NOFOLLOW | os.O_CLOEXEC


def make(file: Path, document: Mapping[str, Any]) -> None:
    """Make the file with one line of JSON; one that is there already has asked before, and stays.

    It is there with all its text or not at all: a job can't tell a cut one from a request to stop at any step.

    Args:
        file: where.
        document: what it says; a file is made next to it first, whose name ends in the document's ``id``.

    Raises:
        OSError: the folder can't be opened or is a link, or the file can't be made.
    """
    text = json.dumps(plain(document)) + "\n"
    beside = f".grpo-watch-{document['id']}"
    with _opened(file.parent) as place:
        if _there(place, file.name):
            return
        with suppress(FileNotFoundError):  # of a watcher that was killed just here
            os.unlink(beside, dir_fd=place)
        made = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _HERE, 0o644, dir_fd=place)
        try:
            with os.fdopen(made, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(made)
            _give_name(place, beside, file.name)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=place)


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
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "its folder is a link, which is not followed")
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _HERE)
    try:
        yield place
    finally:
        os.close(place)


def _there(place: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _give_name(place: int, beside: str, name: str) -> None:
    """Let a file have a name that no other has."""
    try:
        os.link(beside, name, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links; whose file is there, if any, came within this call
        os.rename(beside, name, src_dir_fd=place, dst_dir_fd=place)


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
