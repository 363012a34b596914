"""Reading weights leaves the page cache as it was found."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import numpy as library

from grpo_watch.sources.checkpoints.tensor_hash import PROBES, STRETCH, UNNOTICED, FileReader, digest_file, is_uncached


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []

    def note(_: int, start: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        ranges.append((start, start + length))

    monkeypatch.setattr(os, "posix_fadvise", note)
    return ranges


@pytest.mark.parametrize("drops", [True, False])
def test_what_was_read_is_dropped_in_stretches(tmp_path: Path, dropped: list[tuple[int, int]], *, drops: bool) -> None:
    """One and a half, then what lies further on; nothing of a file in use."""
    path = tmp_path / "m"
    path.write_bytes(bytes(4 * STRETCH))
    descriptor = os.open(path, os.O_RDONLY)
    reader = FileReader(descriptor, path.name, drops=drops)
    for start, end in ((0, STRETCH * 3 // 2), (3 * STRETCH, 3 * STRETCH + 4096)):
        at = start
        while at < end:
            reader.hold(at, end, 1)
            at = reader.end
    reader.flush()
    os.close(descriptor)
    stretches = [(0, STRETCH), (STRETCH, STRETCH * 3 // 2), (3 * STRETCH, 3 * STRETCH + 4096)]
    assert dropped == (stretches if drops else [])


@pytest.mark.parametrize(("cached", "uncached"), [(0, True), (10, True), (16, False), (32, False)])
def test_most_places_decide(monkeypatch: pytest.MonkeyPatch, cached: int, uncached: bool) -> None:  # noqa: FBT001
    answers = iter([True] * cached + [False] * (PROBES - cached))

    def read(_fd: int, _buffers: Any, _place: int, flags: int) -> int:
        assert flags == os.RWF_NOWAIT
        if next(answers):
            return 1
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", read)
    assert is_uncached(0, 1 << 30) is uncached


def test_where_the_kernel_does_not_tell_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(95, "not supported")

    monkeypatch.setattr(os, "preadv", refuse)
    assert not is_uncached(0, 1 << 30)


def test_a_file_that_was_just_written_is_in_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(bytes(UNNOTICED))
    descriptor = os.open(path, os.O_RDONLY)
    assert not is_uncached(descriptor, UNNOTICED)
    os.close(descriptor)


def resident(path: Path) -> float:
    """Share of a file's pages that are in the page cache, as the kernel says (mincore)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_ubyte)]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    size = path.stat().st_size
    descriptor = os.open(path, os.O_RDONLY)
    place = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    os.close(descriptor)
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    try:
        assert libc.mincore(place, size, pages) == 0, os.strerror(ctypes.get_errno())
    finally:
        libc.munmap(place, size)
    return sum(page & 1 for page in pages) / len(pages)


@pytest.fixture
def evicted(tmp_path: Path) -> Path:
    """A weight file of 32 MB that has to come from the disk; skipped where the system keeps it all the same."""
    path = tmp_path / "model.safetensors"
    library.save_file({"a": np.ones(4_000_000, np.float32), "b": np.ones(4_000_000, np.float32)}, path)
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    if resident(path) > 0:
        pytest.skip("this file system (tmpfs, overlay) drops nothing from memory")
    return path


def test_what_came_from_the_disk_goes_from_memory_again(evicted: Path) -> None:
    """The kernel itself says so: next to nothing of the file is left, however it was read ahead.

    Pages that the kernel holds at that moment, as it may on a busy machine, stay: the best of three readings counts.
    """
    left = []
    for _ in range(3):
        descriptor = os.open(evicted, os.O_RDWR)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        digest_file(descriptor, evicted.name)
        os.close(descriptor)
        left.append(resident(evicted))
    assert min(left) < 0.1


def test_what_was_in_memory_stays_there(evicted: Path) -> None:
    evicted.read_bytes()
    assert resident(evicted) > 0.9  # all but what others need the memory for
    descriptor = os.open(evicted, os.O_RDONLY)
    digest_file(descriptor, evicted.name)
    os.close(descriptor)
    assert resident(evicted) > 0.9  # all but what others need the memory for
