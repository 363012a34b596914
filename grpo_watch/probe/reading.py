"""Takes the checksums of a model's parameters: one pass over them, one copy of the results to the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from grpo_watch.probe.checksum import MODULUS, Hasher
from grpo_watch.probe.job import torch_of_job
from grpo_watch.probe.pieces import Piece, pieces

Checksums: TypeAlias = dict[str, tuple[str, list[int], str, int, int]]


def checksums(
    model: Any, rank: int, ranks: int, wanted: Callable[[Piece], bool], *, alike: bool | None = None
) -> tuple[Checksums, str]:
    """Data type, shape of the whole, checksum as 16 hex digits, copy and parts (see ``Piece``) by name.

    The checksum of a shard without elements is empty. Tensors without elements are left out. Second: which are left
    out because their values are not in memory, and why.

    Args:
        model: a torch module.
        rank: of this process.
        ranks: processes that train together.
        wanted: whether a piece is to be read.
        alike: whether plain parameters are the same on all processes (see ``pieces``).

    Raises:
        RuntimeError: this process has not imported torch, or a tensor can't be read (sparse, on no device).
    """
    torch = torch_of_job()
    hashers: dict[Any, Hasher] = {}
    found = [piece for piece in pieces(model, rank, ranks, alike=alike) if wanted(piece)]
    away = [piece for piece in found if piece.unread]
    held = [piece for piece in found if not piece.unread and (piece.tensor.numel() or piece.parts > 1)]
    with torch.no_grad():
        values = _to_host([_sum(piece, hashers, torch) for piece in held], torch)
    unread = f"{len(away)} of {len(found)} tensors, first {away[0].name}: {away[0].unread}"[:300] if away else ""
    taken = {
        piece.name: (_type(piece.tensor), list(piece.shape), _hexadecimal(piece, value), piece.copy, piece.parts)
        for piece, value in zip(held, values, strict=True)
    }
    return taken, unread


def _hexadecimal(piece: Piece, value: int) -> str:
    return f"{value % MODULUS:016x}" if piece.tensor.numel() else ""


def _sum(piece: Piece, hashers: dict[Any, Hasher], torch: Any) -> Any:
    device = piece.tensor.device
    if device not in hashers:
        hashers[device] = Hasher(torch, device)
    if piece.cut is not None:
        return hashers[device].rows(piece.tensor, piece.cut)
    return hashers[device].flat(piece.tensor, piece.offset)


def _to_host(sums: list[Any], torch: Any) -> list[int]:
    """One copy per device."""
    found: dict[int, int] = {}
    by_device: dict[Any, list[int]] = {}
    for index, one in enumerate(sums):
        by_device.setdefault(one.device, []).append(index)
    for indices in by_device.values():
        copied = torch.stack([sums[index] for index in indices]).tolist()
        found.update(zip(indices, copied, strict=True))
    return [found[index] for index in range(len(sums))]


def _type(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
