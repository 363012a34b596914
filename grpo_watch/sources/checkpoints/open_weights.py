"""Opens a file of a run folder for one use, or reads a small one whole; what goes wrong is one line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from grpo_watch.errors import SourceError
from grpo_watch.sources.files.reading import open_regular


def read_small(path: Path, roots: Sequence[Path], limit: int) -> bytes:
    """The whole content of a small file.

    Raises:
        SourceError: larger than ``limit`` bytes, unreadable or outside ``roots``.
        FileNotFoundError: it vanished.
    """
    with opened(path, roots) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise SourceError(f"{path}: {size} bytes, at most {limit} are read")
        return os.pread(descriptor, size, 0)


@contextmanager
def opened(path: Path, roots: Sequence[Path]) -> Iterator[int]:
    """A descriptor of a regular file under ``roots``, closed afterwards.

    Raises:
        SourceError: it can't be opened or read, or lies outside ``roots``.
        FileNotFoundError: it vanished.
    """
    try:
        descriptor = open_regular(path, roots)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SourceError(f"{path}: can't be read: {error.strerror or error}") from None
