"""A folder whose path fits into the address of a socket, which has 108 bytes, however long ``TMPDIR`` is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def short_folder() -> Iterator[Path]:
    """An empty folder, removed at the end."""
    with TemporaryDirectory(dir="/tmp", prefix="gw") as folder:
        yield Path(folder)
