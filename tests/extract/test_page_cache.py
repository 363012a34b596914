"""Reading weights leaves the page cache as it was found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.extract import page_cache
from grpo_watch.extract.page_cache import STRETCH, PageCache, is_uncached


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []

    def note(_: int, start: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        ranges.append((start, start + length))

    monkeypatch.setattr(os, "posix_fadvise", note)
    return ranges


def test_a_file_in_use_is_left_alone(dropped: list[tuple[int, int]]) -> None:
    cache = PageCache(0, drops=False)
    cache.was_read(0, STRETCH)
    cache.was_read(STRETCH, 2 * STRETCH)
    cache.flush()
    assert dropped == []


def test_what_was_read_is_dropped_in_stretches(dropped: list[tuple[int, int]]) -> None:
    cache = PageCache(0, drops=True)
    part = STRETCH // 2
    for number in range(5):
        cache.was_read(number * part, (number + 1) * part)
    cache.was_read(10 * part, 11 * part)
    cache.flush()
    assert dropped == [(0, STRETCH), (STRETCH, 2 * STRETCH), (4 * part, 5 * part), (10 * part, 11 * part)]


@pytest.mark.parametrize(("cached", "uncached"), [(0, True), (10, True), (16, False), (32, False)])
def test_most_places_decide(monkeypatch: pytest.MonkeyPatch, cached: int, uncached: bool) -> None:  # noqa: FBT001
    answers = iter([True] * cached + [False] * (page_cache.PROBES - cached))

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
    path.write_bytes(bytes(STRETCH))
    descriptor = os.open(path, os.O_RDONLY)
    assert not is_uncached(descriptor, STRETCH)
    os.close(descriptor)
