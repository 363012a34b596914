"""Finds, in a folder without a run, files that look like logs all the same, and what is wrong with them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from grpo_watch.errors import SourceError
from grpo_watch.sources.discovery.sniff import CONSOLE_NAME
from grpo_watch.sources.discovery.unread import OF_TRAINING, proposed, repeated_row
from grpo_watch.sources.discovery.walk import WalkedFolder
from grpo_watch.sources.files.decompress import SUFFIXES, plain
from grpo_watch.sources.files.reading import open_regular
from grpo_watch.sources.rows.tables import HEADER_NEEDED

MOST_REPORTED = 5
MOST_OPENED = 50
"""Files with a log's name that are opened in one folder tree."""
LOOKED_AT = 256 << 10
"""Bytes of each file's beginning."""
ZSTD, ZSTD_NAME = b"\x28\xb5\x2f\xfd", ".zst"
"""Python reads it from version 3.14 on."""
PACKED = (ZSTD_NAME, *SUFFIXES)
TABLE_ROW = re.compile(r"[^,\t;]{0,60}(?:[,\t;]-?\d[\d.]{0,30}(?:e[-+]?\d{1,3})?){2}", re.IGNORECASE)


class Leftovers:
    """Looks at a folder again and again; a file is read again only where it changed and nothing was reported of it."""

    def __init__(self) -> None:
        self._held: dict[Path, tuple[tuple[int, int, int], str]] = {}
        self._seen: dict[Path, tuple[tuple[int, int, int], str]] = {}

    def reports(self, folder: WalkedFolder, roots: Sequence[Path]) -> list[str]:
        """One line per file that looks like a log, five at most, by name; it shows only names and numbers."""
        lines: list[str] = []
        for number, path in enumerate(_log_names(folder)):
            if number >= MOST_OPENED or len(lines) >= MOST_REPORTED:
                break
            if text := self._look(path, roots):
                lines.append(f"{path}: {text}")
        return lines

    def forget_others(self) -> None:
        """Drop what was not looked at since the last call."""
        self._held, self._seen = self._seen, {}

    def _look(self, path: Path, roots: Sequence[Path]) -> str:
        held = self._held.get(path)
        try:
            info = path.stat()
            state = (info.st_ino, info.st_size, info.st_mtime_ns)
            grew = held is not None and held[0][0] == state[0] and held[0][1] <= state[1]
            if held is None or not grew or (held[0] != state and not held[1]):
                held = (state, _report(path, _begin(path, roots)))
        except PermissionError:
            return "can't be read: Permission denied"
        except (OSError, SourceError):
            return ""
        self._seen[path] = held
        return held[1]


def _log_names(folder: WalkedFolder) -> Iterator[Path]:
    for path in folder.files:
        name = path.name.removesuffix(path.suffix) if path.suffix in PACKED else path.name
        if name.endswith((".jsonl", ".csv", ".tsv")) or CONSOLE_NAME.fullmatch(name):
            yield path
    for child in folder.folders:
        yield from _log_names(child)


def _begin(path: Path, roots: Sequence[Path]) -> bytes:
    descriptor = open_regular(path, roots)
    try:
        text = plain(descriptor, LOOKED_AT)
        try:
            return os.pread(text, LOOKED_AT, 0)
        finally:
            if text != descriptor:
                os.close(text)
    finally:
        os.close(descriptor)


def _report(path: Path, head: bytes) -> str:
    if head.startswith(ZSTD):
        return f"compressed; zstdcat {shlex.quote(str(path))} | grpo-watch check -"
    text = head.decode("utf-8", "replace")
    if path.suffix in {".csv", ".tsv"}:
        return _header(text)
    line = repeated_row(text)
    if not line:
        return ""
    how = proposed(path) if path.suffix not in PACKED else ""
    return f"no metric row could be parsed; the first line that looks like one is {line}{'; ' if how else ''}{how}"


def _header(text: str) -> str:
    """Of a table: numbers below a header about training."""
    header, _, rest = text.partition("\n")
    speaks = any(OF_TRAINING.search(cell.strip('"')) for cell in re.split("[,\t;]", header))
    return HEADER_NEEDED if speaks and TABLE_ROW.match(rest) else ""
