"""Digests of weight files, and how one is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_watch.engine.records import TensorDigest
from grpo_watch.errors import TensorFileError
from grpo_watch.sources.checkpoints.tensor_hash import digest_file


def digest(path: Path) -> dict[str, TensorDigest]:
    """The tensors of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return digest_file(descriptor, path.name)
    finally:
        os.close(descriptor)


def refusal(path: Path) -> str:
    """Why the file is refused: one line that begins with its name."""
    with pytest.raises(TensorFileError) as caught:
        digest(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path.name}: ")
    return str(caught.value)
