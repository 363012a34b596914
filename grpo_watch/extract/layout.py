"""Says where the tensors of a weight file lie, whatever format it is in; what can't be told apart is one piece."""

from __future__ import annotations

import os
from pathlib import PurePath

from grpo_watch.extract.extents import WHOLE_FILE, Extent
from grpo_watch.extract.safetensors import read_header
from grpo_watch.extract.torch_zip import SIGNATURE, read_archive

TORCH = frozenset({".bin", ".pt", ".pth", ".ckpt"})
"""Endings of files of ``torch.save``."""
IN_PIECES = frozenset({".distcp", ".metadata"})
"""torch's distributed checkpoints and Megatron's: several archives in one file, whose order is free."""


def read_layout(descriptor: int, name: str) -> tuple[Extent, ...]:
    """The tensors of an open weight file, in file order.

    A ``.pt`` that is no zip archive (torch < 1.6, or its legacy format) and a ``.distcp`` are one piece, whose data
    type is ``FILE``: equal ones prove equal weights, different ones prove nothing.

    Raises:
        TensorFileError: cut off, refused or contradicting itself.
        OSError: the file can't be read.
    """
    ending = PurePath(name).suffix
    if ending in TORCH and os.pread(descriptor, len(SIGNATURE), 0) == SIGNATURE:
        return read_archive(descriptor, name)
    if ending in TORCH or ending in IN_PIECES:
        size = os.fstat(descriptor).st_size
        return (Extent(name, WHOLE_FILE, (size,), 0, size),)
    return read_header(descriptor, name)
