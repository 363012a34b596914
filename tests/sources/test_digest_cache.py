"""Checksums of files that were read are known the next time, and only of the same files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from safetensors import numpy as library

from grpo_watch.engine.records import TensorDigest
from grpo_watch.sources.checkpoints import weights
from grpo_watch.sources.checkpoints.weights import (
    SMALLEST,
    CheckpointWeights,
    DigestCache,
    ReadLimits,
    digest_checkpoint,
)

DIGESTS = {"w": TensorDigest("BF16", (2, 3), "abc", nonfinite=1), "v": TensorDigest("F32", (), "d", zero=True)}


def large(path: Path, fill: bytes = b"a") -> os.stat_result:
    path.write_bytes(fill * SMALLEST)
    return path.stat()


def test_round_trip(tmp_path: Path) -> None:
    cache = DigestCache(tmp_path / "cache")
    file = large(tmp_path / "m")
    assert cache.get(file) is None
    cache.put(file, DIGESTS)
    assert cache.get(file) == DIGESTS
    assert DigestCache(tmp_path / "cache").get(file) == DIGESTS


def test_a_file_that_was_written_again_is_another(tmp_path: Path) -> None:
    """Even with the same size and the old modification time: the change time tells."""
    cache = DigestCache(tmp_path / "cache")
    file = large(tmp_path / "m")
    cache.put(file, DIGESTS)
    (tmp_path / "m").write_bytes(b"b" * SMALLEST)
    os.utime(tmp_path / "m", ns=(file.st_atime_ns, file.st_mtime_ns))
    assert cache.get((tmp_path / "m").stat()) is None


def test_small_files_and_damaged_entries_are_read_again(tmp_path: Path) -> None:
    cache = DigestCache(tmp_path / "cache")
    (tmp_path / "small").write_bytes(b"x")
    cache.put((tmp_path / "small").stat(), DIGESTS)
    assert not (tmp_path / "cache").exists()
    file = large(tmp_path / "m")
    cache.put(file, DIGESTS)
    (entry,) = (tmp_path / "cache").iterdir()
    entry.write_bytes(b'{"w": ')
    assert cache.get(file) is None


def test_the_oldest_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "MOST", 2)
    cache = DigestCache(tmp_path / "cache")
    files = [large(tmp_path / str(number)) for number in range(3)]
    for age, file in enumerate(files):
        cache.put(file, DIGESTS)
        for entry in (tmp_path / "cache").iterdir():
            os.utime(entry, (age, age) if entry.stat().st_mtime > 10 else None)
    assert sum(cache.get(file) is not None for file in files) == 2


def test_a_folder_that_can_not_be_written_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    cache = DigestCache(tmp_path / "cache")
    file = large(tmp_path / "m")
    cache.put(file, DIGESTS)
    assert cache.get(file) is None


def test_a_known_checkpoint_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-20"
    folder.mkdir()
    library.save_file({"w": np.ones(SMALLEST, np.float32)}, folder / "model.safetensors")
    read: list[int] = []

    def weights() -> CheckpointWeights | None:
        read.clear()
        return digest_checkpoint(folder, [tmp_path], ReadLimits(digests=tmp_path / "cache", progress=read.append))

    first = weights()
    assert sum(read) > 4 * SMALLEST
    assert weights() == first
    assert read == []
