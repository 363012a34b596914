"""A log's folder and a plain model of it: which file each name leads to, and what that holds."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

LOG = "train.log"


class File:
    """What one inode holds; of a packed file, its text."""

    def __init__(self, content: bytes = b"", inode: int = -1, *, packed: bool = False) -> None:
        self.content, self.inode, self.packed = content, inode, packed


OUTSIDE = File(b"a secret\n")
"""Where a link out of the roots leads to."""


class LogFiles:
    """Real files beside their model: ``names`` says which file each name leads to, ``written`` which pieces were."""

    bars = False
    """Whether every second line ends like a progress bar."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.outside = Path(tempfile.mkdtemp())
        (self.outside / "secrets").write_bytes(OUTSIDE.content)
        self.path = self.folder / LOG
        self.names: dict[str, File] = {}
        self.count = 0
        self.written: list[int] = []

    def _named(self) -> File | None:
        """The file that the name leads to, if it may be read."""
        named = self.names.get(LOG)
        return None if named is OUTSIDE else named

    def _is_link(self) -> bool:
        return self.path.is_symlink()

    def _create(self, name: str, sizes: Sequence[int] = ()) -> None:
        (self.folder / name).write_bytes(b"")
        self.names[name] = File(inode=(self.folder / name).stat().st_ino)
        self._append(name, sizes)

    def _append(self, name: str, sizes: Sequence[int]) -> None:
        for size in sizes:
            self.count += 1
            self.written.append(self.count)
            end = b"\r" if self.bars and self.count % 2 else b"\n"
            text = b"<%d>" % self.count + b"x" * size + (end if size else b"")
            with (self.folder / name).open("ab") as file:
                file.write(text)
            self.names[name].content += text

    def _put(self, name: str, content: bytes) -> None:
        """Truncate in place, and write this."""
        os.truncate(self.folder / name, 0)
        with (self.folder / name).open("ab") as file:
            file.write(content)
        self.names[name].content = content

    def _rename(self, old: str, new: str) -> None:
        (self.folder / old).rename(self.folder / new)
        self.names[new] = self.names.pop(old)

    def _chain(self) -> list[File]:
        """The numbered files, oldest first, and what the name leads to now."""
        numbers = sorted((int(name[len(LOG) + 1 :]) for name in self.names if name.startswith(f"{LOG}.")), reverse=True)
        return [self.names[name] for name in [*(f"{LOG}.{number}" for number in numbers), LOG] if name in self.names]
