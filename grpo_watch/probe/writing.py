"""Computes the checksums of a model's parameters and appends them as a line; errors never reach the training loop."""

from __future__ import annotations

import errno
import io
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

from grpo_watch.probe.checksum import MODULUS, RADIX, WORD, Hasher
from grpo_watch.probe.job import torch_of_job
from grpo_watch.probe.pieces import ParameterPiece, pieces

Folder: TypeAlias = str | os.PathLike[str]
SCHEMA = "probe/1"
FILE = "grpo-watch-probe-{rank}.jsonl"


class Journal:
    """An append-only file.

    Args:
        folder: the run's output folder; created if missing.
        name: the file's name in it.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self.path = Path(folder, name)

    def size(self) -> int:
        """Bytes written so far, by this process and those before it."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def write(self, kind: str, what: Mapping[str, Any]) -> None:
        """Append one line, on a new line if the last one was torn (disk full, process killed).

        Raises:
            OSError: the file can't be written, or not all of the line.
        """
        line = {"grpo_watch": SCHEMA, "kind": kind, "time": round(time.time(), 3), **what}
        data = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b", buffering=0) as stream:
            if _torn(stream):
                data = b"\n" + data
            written = stream.write(data)
        if written != len(data):
            raise OSError(errno.ENOSPC, f"{written} of {len(data)} bytes were written")


def _torn(stream: io.FileIO) -> bool:
    """Whether the file's last line lacks its newline."""
    if stream.seek(0, os.SEEK_END) == 0:
        return False
    stream.seek(-1, os.SEEK_END)
    return stream.read(1) != b"\n"


MOST, MERGED = 2048, 512
"""Most tensors of one placement that a line lists separately (the largest dense models have 1,200, or 1,800 with an
adapter on every matrix), and the number of its entries if there are more."""


class MergedTensor(NamedTuple):
    """One entry of a line: its name, data type, shape, and the indices of its tensors in the model's order."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    members: tuple[int, ...]


def entries(pieces: Sequence[ParameterPiece], most: int = MOST) -> list[MergedTensor]:
    """One entry per tensor if at most ``most`` share a placement, else one per run of neighbours.

    Neighbouring tensors get one checksum: the sum of theirs, each times the radix to the power of the words before it.
    It changes when any one of them does, and the shards of several processes still add up.

    All processes that hold a part of the same tensors form the same entries.
    """
    placed: dict[object, list[int]] = {}
    for at, piece in enumerate(pieces):
        placed.setdefault((piece.mesh, piece.parts), []).append(at)
    found: list[MergedTensor] = []
    for members in placed.values():
        length = 1 if len(members) <= most else -(-len(members) // min(most, MERGED))
        found += [_one(pieces, members[at : at + length]) for at in range(0, len(members), length)]
    return found


def value(entry: MergedTensor, pieces: Sequence[ParameterPiece], sums: Sequence[int]) -> int | None:
    """The checksum of an entry from those of its tensors; None if this process holds no element of it."""
    total, power, powers = 0, 1, dict[int, int]()
    for at in entry.members:
        total += sums[at] * power
        words = -(-prod(pieces[at].shape) * pieces[at].tensor.element_size() // WORD)
        if words not in powers:
            powers[words] = pow(RADIX, words, MODULUS)
        power = power * powers[words] % MODULUS
    return total % MODULUS if any(pieces[at].tensor.numel() for at in entry.members) else None


def _one(pieces: Sequence[ParameterPiece], members: Sequence[int]) -> MergedTensor:
    """The entry of these tensors: stacked if they have one shape, else flattened."""
    shapes, types = {pieces[at].shape for at in members}, {pieces[at].tensor.dtype for at in members}
    first, more = pieces[members[0]], len(members) - 1
    shape = (len(members), *first.shape) if len(shapes) == 1 else (sum(prod(pieces[at].shape) for at in members),)
    name = f"{first.name} and {more} more" if more else first.name
    return MergedTensor(
        name, _type(first) if len(types) == 1 else "mixed", shape if more else first.shape, tuple(members)
    )


def _type(piece: ParameterPiece) -> str:
    return str(piece.tensor.dtype).removeprefix("torch.")


Checksums: TypeAlias = dict[str, tuple[str, list[int], str, int, int]]
OUT_OF_MEMORY = "OutOfMemoryError"
"""Name of torch's error (``torch.cuda``'s before 2.5), which is no fault of the tensor."""


def checksums(written: Iterable[ParameterPiece], most: int = MOST) -> tuple[Checksums, str]:
    """Data type, shape of the whole, checksum as 16 hex digits, 0 and parts (see ``ParameterPiece``) by name.

    The 0 is where earlier versions numbered replicas. The checksum of a shard without elements is empty; tensors
    without elements are left out. The second result says which tensors could not be read, and why.

    Args:
        written: the pieces that this process writes.
        most: about how many checksums at most; if there are more tensors, neighbours are merged (``entries``).

    Raises:
        RuntimeError: this process has not imported torch, or none of the tensors can be read.
    """
    torch = torch_of_job()
    found = list(written)
    away = [(piece.name, piece.unread) for piece in found if piece.unread]
    held: list[ParameterPiece] = []
    sums: list[Any] = []
    hashers: dict[Any, Hasher] = {}
    with torch.no_grad():
        for piece in found:
            if piece.unread or not (piece.tensor.numel() or piece.parts > 1):
                continue
            try:
                sums.append(_sum(piece, hashers, torch))
                held.append(piece)
            except Exception as error:
                if type(error).__name__ == OUT_OF_MEMORY:
                    raise
                away.append((piece.name, f"{type(error).__name__}: {error}"))
        values = _to_host(sums, torch)
    unread = f"{len(away)} of {len(found)} tensors, first {away[0][0]}: {away[0][1]}"[:300] if away else ""
    if not held and len(away) > sum(bool(piece.unread) for piece in found):
        raise RuntimeError(f"no tensor can be read: {unread}")
    taken: Checksums = {}
    for entry in entries(held, most):
        total = value(entry, held, values)
        hexadecimal, parts = "" if total is None else f"{total:016x}", held[entry.members[0]].parts
        taken[entry.name] = (entry.dtype, list(entry.shape), hexadecimal, 0, parts)
    return taken, unread


def _sum(piece: ParameterPiece, hashers: dict[Any, Hasher], torch: Any) -> Any:
    """The sum on the device.

    Raises:
        Exception: torch can't give the bytes of its type or layout, or is out of memory.
    """
    device = piece.tensor.device
    if device.type == "meta":
        raise RuntimeError("it has no values (device meta)")
    if piece.tensor.is_quantized or piece.tensor.layout is not torch.strided:  # viewing it as bytes ends the process
        raise RuntimeError(f"torch exposes no bytes of {piece.tensor.dtype}, {piece.tensor.layout}")
    if hasattr(piece.tensor, "__tensor_flatten__"):  # a wrapper: the values are in other tensors
        raise RuntimeError(f"a tensor of the class {type(piece.tensor).__name__} is not understood")
    if device not in hashers:
        hashers[device] = Hasher(torch, device)
    return hashers[device].sum(piece.tensor, piece.offset)


def _to_host(sums: Sequence[Any], torch: Any) -> list[int]:
    found: dict[int, int] = {}
    by_device: dict[Any, list[int]] = {}
    for index, one in enumerate(sums):
        by_device.setdefault(one.device, []).append(index)
    for indices in by_device.values():
        copied = torch.stack([sums[index] for index in indices]).tolist()
        found.update(zip(indices, copied, strict=True))
    return [found[index] for index in range(len(sums))]


FILE_MB = 256
"""Megabytes of a process's file above which a line holds one checksum of all tensors: ten thousand lines of a model of
7 billion."""


def write_weights(journal: Journal, model: Any, of: str, what: dict[str, Any]) -> None:
    """Append the checksums of the model's parameters; ``of`` is ``policy`` or ``frozen``.

    Raises:
        Exception: they can't be read or written.
    """
    begun = perf_counter()
    most = 1 if journal.size() >= FILE_MB * 1_000_000 else MOST
    held = pieces(model, what["rank"], what["ranks"])
    tensors, unread = checksums((piece for piece in held if piece.trainable == (of == "policy")), most)
    gaps = {"unread": unread} if unread else {}
    seconds = round(perf_counter() - begun, 4)
    journal.write("weights", {"of": of, **what, **gaps, "seconds": seconds, "tensors": tensors})


def attempt(folder: Folder, name: Callable[[], str], step: object, work: Callable[[Journal], None]) -> Exception | None:
    """Run ``work`` with the named journal; an error becomes a line if possible, and is returned, never raised."""
    try:
        journal = Journal(folder, name())
    except Exception as error:  # noqa: BLE001  training continues after any error
        return error
    try:
        work(journal)
    except Exception as error:  # noqa: BLE001  training continues after any error
        kind, failure = type(error).__name__, error
        quietly(lambda: journal.write("error", {"step": step, "text": f"{kind}: {failure}"[:300]}))
        return error
    return None


def quietly(work: Callable[[], object]) -> None:
    """Run ``work`` and ignore a failure that could not be reported anywhere."""
    with suppress(Exception):
        work()
