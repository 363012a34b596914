"""Extracts the tensors named by a torch file's pickle without unpickling: opcodes are read as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from grpo_watch import lazy_re as re
from grpo_watch.errors import NotUnderstoodError, TensorFileError
from grpo_watch.sources.checkpoints.extents import BITS, naturals
from grpo_watch.sources.checkpoints.pickle_opcodes import (
    Node,
    PersistentId,
    PickledCall,
    PickledName,
    PickledPairs,
    PickledSequence,
    read_pickle,
)

DTYPES: Mapping[str, str] = MappingProxyType(
    {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32"}
    | {"int16": "I16", "int8": "I8", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "bool": "BOOL"}
    | {"complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0"}
    | {"float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ"}
)
"""torch's data types under safetensors' names, so that equal weights compare equal in both formats."""

STORAGES: Mapping[str, str] = MappingProxyType(
    {"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"}
    | {"LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8"}
    | {"BoolStorage": "BOOL", "ComplexFloatStorage": "C64"}
)
"""Typed storages by class name; ``UntypedStorage`` counts bytes."""

UNTYPED = "torch.storage.UntypedStorage"
REBUILD, REBUILD_OLD, REBUILD_TYPED = (f"torch._utils._rebuild_tensor{end}" for end in ("_v2", "", "_v3"))
PARAMETERS = frozenset({"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"})
OF_TYPE = "torch._tensor._rebuild_from_type_v2"
WRAPPER = "torch._utils._rebuild_wrapper_subclass"
WRAPPERS = PARAMETERS | {OF_TYPE, WRAPPER}
"""Containers of tensors: if one is unknown, so is its content."""
ORDERED = "collections.OrderedDict"
SIZE = "torch.Size"

_INERT = frozenset(
    {ORDERED, "collections.defaultdict", "_codecs.encode", SIZE, "torch.device", "torch.serialization._get_layout"}
    | {f"{module}.{kind}" for module in ("builtins", "__builtin__") for kind in ("set", "frozenset", "dict", "list")}
    | {f"{module}.{kind}" for module in ("builtins", "__builtin__") for kind in ("bytearray", "complex", "slice")}
    | {"deepspeed.runtime.zero.config.ZeroStageEnum", "deepspeed.utils.tensor_fragment.fragment_address"}
    | {f"deepspeed.runtime.fp16.loss_scaler.{kind}LossScaler" for kind in ("", "Dynamic")}
    | {f"torch.storage.{kind}Storage" for kind in ("Untyped", "Typed", "_Legacy")}
)
"""Containers and settings around tensors; none is constructed."""
_SHARDED = re.compile(
    r"torch\.distributed\.(?:tensor|_tensor)(?:\.api|\._api|\._dtensor_spec|\.placement_types)?\."
    r"(?:DTensor|DTensorSpec|TensorMeta|ShardOrderEntry|Shard|_StridedShard|Replicate|Partial|_Partial)"
    r"|torch\.distributed\.device_mesh\.DeviceMesh|torch\.distributed\._mesh_layout\.(?:_MeshLayout|_FlatLayout)"
)
"""Names in a DTensor's mesh and placement (torch 2.2 to 2.13; verl's and FSDP2's shards)."""


_RUNS = frozenset(
    {"os", "posix", "nt", "subprocess", "sys", "pty", "runpy", "importlib", "ctypes", "socket", "shutil", "webbrowser"}
    | {"commands", "popen2", "code", "codeop", "pdb", "bdb", "timeit", "cProfile", "profile", "pip", "marshal"}
)
"""Modules whose functions run commands or code or change files; none belongs in a checkpoint."""
_REACHED = frozenset({"os", "posix", "nt", "subprocess", "sys", "pty", "runpy", "importlib", "ctypes", "shutil"})
"""Those modules that others hold as attributes: from protocol 4 on, ``torch.serialization`` and ``os.system`` together
name ``os.system``."""
_RUNS_ITSELF = frozenset({"eval", "exec", "execfile", "compile", "open", "__import__", "breakpoint", "input"})
"""Built-in functions that run code or open files."""


def is_refused(path: str) -> bool:
    """Whether a name belongs to code that runs commands or code: the file is malicious, even if it is whole."""
    *modules, last = path.split(".")
    if modules and modules[-1] in {"builtins", "__builtin__", "__builtins__"}:
        return last in _RUNS_ITSELF
    return (modules or [last])[0] in _RUNS or not _REACHED.isdisjoint(modules)


def may_occur(path: str) -> bool:
    """Whether a name occurs in torch's own pickles of tensors."""
    known = {REBUILD, REBUILD_OLD, REBUILD_TYPED, OF_TYPE, WRAPPER} | PARAMETERS | _INERT
    if path in known or _SHARDED.fullmatch(path) is not None:
        return True
    module, _, last = path.rpartition(".")
    return module == "torch" and (last in DTYPES or last in STORAGES)


def is_sharded_tensor(path: str) -> bool:
    """Whether a name is DTensor's."""
    return path.endswith(".DTensor") and may_occur(path)


MAX_NAME = 500
"""Most characters of a tensor's name, the path of keys that leads to it."""
MAX_FIELDS = 64
"""Most attributes of a DTensor or of its spec, and dimensions of its mesh; torch 2.13 has 6. Parts of a pickle can be
shared, so the work per tensor must be small."""


CONTAINERS = (PickledCall, PickledPairs, PickledSequence, tuple)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a pickle. ``offset`` and ``strides`` count elements, ``held`` is the size of its storage in bytes.

    ``replicated``: a DTensor of which each rank holds the whole (True) or a shard (False); None for a plain tensor.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage: str
    offset: int
    held: int
    replicated: bool | None = None

    @property
    def span(self) -> int:
        """The number of elements from its first to its last, inclusive; 0 if it has none."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def contiguous(self) -> bool:
        """Whether the elements are contiguous in the order of their indices."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return 0 in self.shape
            expected *= size
        return True


def read_tensors(raw: bytes, name: str, storages: int, held: int) -> tuple[list[StoredTensor], list[str]]:
    """Return the tensors in a pickle of ``torch.save``, in its order; named by their keys, joined with dots.

    The second list names the content beside them that is not understood, each once. ``storages`` are the members of its
    archive, ``held`` their bytes.

    Raises:
        NotUnderstoodError: an object that is not understood holds tensors, or is one.
        TensorFileError: damaged, refused, or a tensor does not fit its storage.
    """
    found: dict[str, StoredTensor] = {}
    beside: dict[str, None] = {}
    try:
        for path, tensor in _walk(read_pickle(raw, name, is_refused, storages, held), name, beside):
            if path in found:
                raise TensorFileError(f"{name}: the pickle names a tensor twice, {path[:80]!r}")
            found[path] = replace(tensor, name=path)
    except RecursionError:
        raise TensorFileError(f"{name}: refused: tensors nested without end") from None
    return list(found.values()), list(beside)


def _walk(root: Node, file: str, beside: dict[str, None]) -> Iterator[tuple[str, StoredTensor]]:
    """Yield every tensor below a node; each container once, so that loops and shared parts end."""
    waiting: list[tuple[str, tuple[Node, ...], Node]] = [("", (), root)] if isinstance(root, CONTAINERS) else []
    seen: set[int] = set()
    without: set[int] = set()
    while waiting:
        path, keys, node = waiting.pop()
        for key in keys:  # joined only now: names of all waiting children would take 500 bytes each
            path = _joined(path, key)
        if isinstance(node, PickledCall) and (tensor := _tensor(node, file)) is not None:
            yield path or "tensor", tensor
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, PickledCall) and (node.function in WRAPPERS or not may_occur(node.function)):
            if _holds_storage(node, without):
                shown = _printable(node.function)
                raise NotUnderstoodError(f"{file}: not read: {shown} holds tensors and is not understood")
            beside[_printable(node.function)] = None
            continue
        below = [(path, keys, inner) for keys, inner in _children(node) if isinstance(inner, CONTAINERS)]
        waiting.extend(reversed(below))


def _holds_storage(root: PickledCall, seen: set[int]) -> bool:
    """Whether a storage lies anywhere in the call; nodes in ``seen`` are skipped, and visited ones added."""
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, PersistentId):
            return True
        if not isinstance(node, CONTAINERS) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, PickledCall):
            waiting += (node.arguments, node.state)
        waiting += node if isinstance(node, tuple) else node.items
    return False


def _printable(path: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in path[:80])


def _children(
    node: PickledCall | PickledPairs | PickledSequence | tuple[Node, ...],
) -> Iterator[tuple[tuple[Node, ...], Node]]:
    """Yield the children of a container with their keys; no key for the pairs that make an OrderedDict."""
    if isinstance(node, PickledCall):
        yield from (((), argument) for argument in node.arguments if node.function == ORDERED)
    if isinstance(node, (PickledCall, PickledPairs)):
        yield from (((key,), inner) for key, inner in node.items)
    else:
        yield from (
            ((key,), inner) for key, inner in enumerate(node.items if isinstance(node, PickledSequence) else node)
        )


def _joined(path: str, key: Node) -> str:
    last = key[:MAX_NAME] if isinstance(key, str) else str(key) if naturals((key,)) else "?"
    last = last.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair can be pickled, but not printed
    return (f"{path}.{last}" if path else last)[:MAX_NAME]


def _tensor(call: PickledCall, file: str) -> StoredTensor | None:
    """Return the tensor rebuilt by a call; None if it rebuilds another object."""
    function, arguments = call.function, call.arguments
    if function in PARAMETERS:
        inner = arguments[0] if arguments else None
        return _tensor(inner, file) if isinstance(inner, PickledCall) else None
    if function == OF_TYPE and len(arguments) > 3:  # noqa: PLR2004  function, type, arguments, state
        return _of_type(call, file)
    if function not in {REBUILD, REBUILD_OLD, REBUILD_TYPED}:
        return None
    if len(arguments) < 4 or not isinstance(arguments[0], PersistentId):  # noqa: PLR2004  storage, offset, size, strides
        raise TensorFileError(f"{file}: a tensor of its pickle is not understood")
    typed = arguments[6] if function == REBUILD_TYPED and len(arguments) > 6 else None  # noqa: PLR2004
    return _placed(arguments[0], arguments[1:4], typed, file)


def _placed(storage: PersistentId, place: tuple[Node, ...], typed: Node, file: str) -> StoredTensor:
    kind, key, count = _storage(storage, file)
    offset, shape, strides = place[0], _shape(place[1]), _shape(place[2])
    dtype = DTYPES.get(typed.path.rpartition(".")[2]) if isinstance(typed, PickledName) else kind
    known_place = naturals((offset,)) and naturals(shape) and naturals(strides) and len(shape) == len(strides)
    if dtype is None and isinstance(typed, PickledName):
        raise NotUnderstoodError(f"{file}: not read: tensors of the type {_printable(typed.path)} are not understood")
    if dtype is None or not known_place:
        raise TensorFileError(f"{file}: a tensor of its pickle is not understood")
    bits = BITS[dtype]
    held = count * (BITS[kind] if kind else 8) // 8
    tensor = StoredTensor("", dtype, tuple(shape), tuple(strides), key, int(offset), held)
    if tensor.span and (tensor.offset + tensor.span) * bits > held * 8:
        raise TensorFileError(f"{file}: a tensor of shape {list(shape)} reaches out of its storage {key[:40]!r}")
    return tensor


def _storage(storage: PersistentId, file: str) -> tuple[str | None, str, int]:
    """Return type (None: bytes), key and number of elements of ``("storage", class, key, device, count)``."""
    what = storage.what
    if isinstance(what, tuple) and len(what) >= 5 and what[0] == "storage" and isinstance(what[1], PickledName):  # noqa: PLR2004
        _, kind, key, _, count = what[:5]
        short = kind.path.rpartition(".")[2]
        if isinstance(key, str) and naturals((count,)):
            if short not in STORAGES and kind.path != UNTYPED:
                raise NotUnderstoodError(f"{file}: not read: {_printable(kind.path)} is not understood")
            return STORAGES.get(short), key, int(count)
    raise TensorFileError(f"{file}: a storage of its pickle is not understood")


def _shape(node: Node) -> tuple[Any, ...]:
    """Return a tuple of sizes, bare or as ``torch.Size``."""
    if isinstance(node, PickledCall) and node.function == SIZE and len(node.arguments) == 1:
        node = node.arguments[0]
    if isinstance(node, PickledSequence):
        node = tuple(node.items)
    return node if isinstance(node, tuple) else (None,)


def _of_type(call: PickledCall, file: str) -> StoredTensor | None:
    """Return a tensor of a class of its own: DTensor, with this rank's part in its state; or one rebuilt as usual."""
    function, kind, arguments, state = call.arguments[:4]
    if not isinstance(function, PickledName) or not isinstance(kind, PickledName) or not isinstance(arguments, tuple):
        raise TensorFileError(f"{file}: a tensor of its pickle is not understood")
    if function.path != WRAPPER:
        return _tensor(PickledCall(function.path, arguments), file)
    fields = _fields(state)
    local = fields.get("_local_tensor")
    tensor = _tensor(local, file) if isinstance(local, PickledCall) and is_sharded_tensor(kind.path) else None
    if tensor is None:
        raise NotUnderstoodError(f"{file}: not read: tensors of the class {_printable(kind.path)} are not understood")
    return replace(tensor, replicated=_replicated(fields.get("_spec")))


def _replicated(spec: Node) -> bool:
    """Whether a DTensorSpec places the whole tensor on every rank."""
    placements = _fields(spec.state).get("placements") if isinstance(spec, PickledCall) else None
    if not isinstance(placements, tuple) or not 0 < len(placements) <= MAX_FIELDS:
        return False
    return all(isinstance(one, PickledCall) and one.function.endswith(".Replicate") for one in placements)


def _fields(state: Node) -> dict[str, Node]:
    """Return the attributes set by a state: a dictionary, or a pair of a dictionary and slots."""
    parts = state if isinstance(state, tuple) else (state,)
    pairs = [pair for part in parts[:2] if isinstance(part, PickledPairs) for pair in part.items[:MAX_FIELDS]]
    return {key: value for key, value in pairs if isinstance(key, str)}
