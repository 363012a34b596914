"""Files of ``torch.save`` written byte by byte: pickle opcodes (protocol 2) and a zip archive, without torch."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

STORAGES = {"float32": "FloatStorage", "float16": "HalfStorage", "uint16": "BFloat16Storage", "int64": "LongStorage"}
"""Storage classes by numpy type; ``uint16`` holds the bits of bfloat16."""

MARK, STOP, REDUCE, BUILD, NEWOBJ, PERSISTENT = b"(", b".", b"R", b"b", b"\x81", b"Q"


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    return (
        b"J" + struct.pack("<i", value) if -(1 << 31) <= value < 1 << 31 else b"\x8a\x09" + value.to_bytes(9, "little")
    )


def group(*parts: bytes) -> bytes:
    """A tuple."""
    return MARK + b"".join(parts) + b"t"


def named(path: str) -> bytes:
    module, _, last = path.rpartition(".")
    return f"c{module}\n{last}\n".encode()


def called(path: str, *arguments: bytes) -> bytes:
    return named(path) + group(*arguments) + REDUCE


def mapping(items: Mapping[str, bytes]) -> bytes:
    return b"}" + MARK + b"".join(text(key) + value for key, value in items.items()) + b"u"


def ordered(items: Mapping[str, bytes]) -> bytes:
    return (
        named("collections.OrderedDict")
        + b")R"
        + MARK
        + b"".join(text(key) + value for key, value in items.items())
        + b"u"
    )


def sizes(values: Sequence[int]) -> bytes:
    return group(*map(number, values))


def storage(key: str, kind: str, count: int) -> bytes:
    return group(text("storage"), named(f"torch.{kind}"), text(key), text("cpu"), number(count)) + PERSISTENT


def tensor(key: str, array: np.ndarray[Any, Any], **changes: Any) -> bytes:
    """How ``_rebuild_tensor_v2`` is called for an array; ``changes`` are lies about it (offset, shape, count, …)."""
    shape = changes.get("shape", array.shape)
    strides = changes.get("strides", tuple(step // array.itemsize for step in array.strides))
    kind = changes.get("kind", STORAGES.get(array.dtype.name, "FloatStorage"))
    return called(
        "torch._utils._rebuild_tensor_v2",
        storage(key, kind, changes.get("count", array.size)),
        number(changes.get("offset", 0)),
        sizes(shape),
        sizes(strides),
        b"\x89",
        ordered({}),
    )


def sharded(local: bytes, *placements: str) -> bytes:
    """A DTensor with this rank's part, as torch 2.13 pickles it (the mesh is left out)."""
    base = "torch.distributed.tensor"
    placed = [named(f"{base}.placement_types.{kind}") + b")" + NEWOBJ + b"}" + BUILD for kind in placements]
    spec = named(f"{base}._dtensor_spec.DTensorSpec") + b")" + NEWOBJ + mapping({"placements": group(*placed)}) + BUILD
    state = group(b"N", mapping({"_local_tensor": local, "_spec": spec}))
    wrapper = named("torch._utils._rebuild_wrapper_subclass")
    return called("torch._tensor._rebuild_from_type_v2", wrapper, named(f"{base}.DTensor"), group(), state)


def whole(body: bytes) -> bytes:
    """A pickle of protocol 2."""
    return b"\x80\x02" + body + STOP


def archive(
    path: Path, pickle: bytes, storages: Mapping[str, bytes], method: int = zipfile.ZIP_STORED, **more: bytes
) -> Path:
    """The zip archive around them; ``more`` are further members of the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", method) as zipped:
        zipped.writestr("archive/data.pkl", pickle)
        zipped.writestr("archive/byteorder", more.pop("byteorder", b"little"))
        for key, content in storages.items():
            zipped.writestr(f"archive/data/{key}", content)
        for key, content in more.items():
            zipped.writestr(f"archive/{key}", content)
        zipped.writestr("archive/version", b"3\n")
    return path


def state_dict(path: Path, tensors: Mapping[str, np.ndarray[Any, Any]], placements: Sequence[str] = ()) -> Path:
    """A state dict as ``torch.save`` writes it; with ``placements`` its tensors are DTensors."""
    parts = {name: tensor(str(key), array) for key, (name, array) in enumerate(tensors.items())}
    if placements:
        parts = {name: sharded(part, *placements) for name, part in parts.items()}
    contents = {str(key): array.tobytes() for key, array in enumerate(tensors.values())}
    return archive(path, whole(ordered(parts)), contents)
