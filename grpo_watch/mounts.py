"""Finds in the table of mounted file systems whether a folder is on the network, where inotify misses writes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "afs", "glusterfs", "wekafs", "9p"}
    | {"virtiofs", "pvfs2", "orangefs", "juicefs", "s3fs", "goofys", "gcsfuse"}
)
"""File systems whose files other machines write: inotify misses such writes, and SQLite's WAL index does not work."""


def network_type(folder: Path, mounts: Path = MOUNTS) -> str:
    """The type of the network file system of ``folder``; empty on a local one, or without a table.

    The innermost mount above the folder counts, of several at one place the last. FUSE types name their file system
    after a dot (``fuse.sshfs``, ``fuse.juicefs``).
    """
    real = os.path.realpath(folder)
    best, found = "", ""
    for point, kind in _mounts(mounts):
        if len(point) >= len(best) and (real == point or real.startswith(point.rstrip("/") + "/")):
            best, found = point, kind
    plain = found.removeprefix("fuse.")
    return (
        found if plain in NETWORK or (plain != found and plain in {"sshfs", "rclone", "mount-s3", "glusterfs"}) else ""
    )


def _mounts(mounts: Path) -> Iterator[tuple[str, str]]:
    """Mount point and type of each line, with octal escapes of blanks and the like decoded."""
    try:
        text = mounts.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    for fields in map(str.split, text.splitlines()):
        if len(fields) > 2:  # noqa: PLR2004  device, mount point, type
            yield re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1]), fields[2]
