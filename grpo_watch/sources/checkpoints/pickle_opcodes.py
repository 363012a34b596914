"""Reads the opcodes of a pickle into inert nodes (calls, objects, containers); imports nothing, calls nothing."""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from grpo_watch.errors import NotUnderstoodError, TensorFileError

MAX_OPCODES = 6_000_000
"""Most opcodes of a pickle. torch 2.13 takes 32 for a tensor and 42 for a parameter."""
BASE_OPCODES = 300_000
"""Opcodes allowed without any storage: settings, names, views (7,000 of them). Read in about a second …"""
PER_STORAGE = 600
"""… further opcodes per storage next to the pickle (of torch 2.13 a DTensor takes 133 on a mesh of one dimension, 140
of two, 185 with three and five axes; a ShardedTensor 244) …"""
BYTES_PER_OPCODE = 1024
"""… and one for this many further bytes, which take as long to hash: DeepSpeed's modules are views of a few storages; a
mixture of 48 layers with 128 experts has 18,900 of 43 opcodes each."""
MAX_NAME = 500
"""Characters of a module or a name in it, which are joined again at each use."""


NAMELESS = "a method"
"""Stands for the name of an unnamed callee; no dotted name looks like it."""


@dataclass(frozen=True, slots=True)
class PickledName:
    """A class or function that a pickle names, never looked up."""

    path: str


@dataclass(slots=True, eq=False)
class PickledCall:
    """A call or construction in a pickle; ``state`` is what unpickling would then set on the result."""

    function: str
    arguments: tuple[Any, ...]
    state: Any = None
    items: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class PickledPairs:
    """A dictionary as its pairs, in order; keys are not hashed."""

    items: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class PickledSequence:
    """A list or set."""

    items: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PersistentId:
    """A persistent id: in torch's files, the description of a storage next to the pickle."""

    what: Any


Node: TypeAlias = Any
"""One of the classes above, a tuple of nodes, or plain text, number, bytes, bool or None."""


class _StackMark:
    """The beginning of a group of stack items."""


def read_pickle(raw: bytes, name: str, refused: Callable[[str], bool], storages: int = 0, held: int = 0) -> Node:
    """Return the content of a pickle as nodes.

    An opcode of one byte can make an object of a hundred, so their number is limited by the storages and bytes.

    Args:
        raw: the whole pickle; protocols 0 to 5.
        name: its name in errors.
        refused: whether a dotted name is forbidden; the first such name ends reading. Other names become inert nodes.
        storages: members of the archive; each tensor needs one.
        held: their bytes; each tensor needs some.

    Raises:
        NotUnderstoodError: opcodes that no known file of torch needs, or too many.
        TensorFileError: damaged or refused.
    """
    reader = _Reader(name, refused)
    most = min(MAX_OPCODES, BASE_OPCODES + PER_STORAGE * storages + held // BYTES_PER_OPCODE)
    try:
        for count, (code, argument, _) in enumerate(pickletools.genops(raw)):
            opcode = code.name
            if count >= most:
                limits = f"{most:,} pickle opcodes beside {storages:,} members"
                raise NotUnderstoodError(f"{name}: not read: more than {limits}")
            if opcode == "STOP":
                return reader.pop()
            reader.step(opcode, argument)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, UnicodeError) as error:
        raise TensorFileError(f"{name}: the pickle is damaged ({type(error).__name__})") from None
    raise TensorFileError(f"{name}: the pickle is damaged (it does not end)")


class _Reader:
    """The stack and memo of one pickle."""

    def __init__(self, name: str, refused: Callable[[str], bool]) -> None:
        self._name, self._refused = name, refused
        self.stack: list[Node] = []
        self.memo: dict[int, Node] = {}

    def step(self, opcode: str, argument: Any) -> None:
        if opcode in _PLAIN:
            self.stack.append(argument)
        elif opcode in _CONSTANTS:
            self.stack.append(_CONSTANTS[opcode])
        elif opcode in _DO:
            _DO[opcode](self, argument)
        elif opcode not in _WITHOUT_EFFECT:
            if opcode == "INST":
                self.name(argument)  # may be a refused name
            raise NotUnderstoodError(f"{self._name}: not read: pickle opcode {opcode}, which no tensor needs")

    def pop(self) -> Node:
        top = self.stack.pop()
        if isinstance(top, _StackMark):
            raise IndexError
        return top

    def top(self, *kinds: type[Any]) -> Any:
        top = self.stack[-1]
        if not isinstance(top, kinds):
            raise TypeError
        return top

    def group(self) -> list[Node]:
        """Pop all items above the topmost mark, and the mark."""
        group: list[Node] = []
        while not isinstance(top := self.stack.pop(), _StackMark):
            group.append(top)
        group.reverse()
        return group

    def several(self, count: int) -> tuple[Node, ...]:
        return tuple(self.pop() for _ in range(count))[::-1]

    def name(self, argument: Any) -> None:
        if argument is None:  # STACK_GLOBAL
            module, what = self.several(2)
        else:
            module, what = argument.split(" ", 1)
        if not (isinstance(module, str) and isinstance(what, str)):
            raise TypeError
        if max(len(module), len(what)) > MAX_NAME:
            raise ValueError
        path = f"{module}.{what}"
        if self._refused(path):
            shown = "".join(char if char.isprintable() else "?" for char in path[:100])
            raise TensorFileError(
                f"{self._name}: refused: its pickle asks for {shown}, which no tensor needs; no code was executed"
            )
        self.stack.append(PickledName(path))

    def construct(self, function: Node, arguments: Node) -> None:
        if not isinstance(arguments, tuple):
            raise TypeError
        if isinstance(function, PickledName):
            self.stack.append(PickledCall(function.path, arguments))
        else:  # the result of a call: a bound method
            self.stack.append(PickledCall(NAMELESS, (function, *arguments)))

    def build(self, state: Node) -> None:
        self.top(PickledCall).state = state

    def remember(self, argument: Any) -> None:
        top = self.stack[-1]
        if isinstance(top, _StackMark):
            raise TypeError
        self.memo[len(self.memo) if argument is None else int(argument)] = top

    def extend(self, group: list[Node]) -> None:
        """Extend a list, or an object that is filled like one (a deque)."""
        top = self.top(PickledSequence, PickledCall)
        top.items.extend(enumerate(group, len(top.items)) if isinstance(top, PickledCall) else group)

    def set_items(self, pairs: list[tuple[Node, Node]]) -> None:
        self.top(PickledPairs, PickledCall).items.extend(pairs)


def _paired(group: list[Node]) -> list[tuple[Node, Node]]:
    if len(group) % 2:
        raise IndexError
    return list(zip(group[::2], group[1::2], strict=True))


_PLAIN = frozenset(
    {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "BYTEARRAY8"}
    | {"STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
    | {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
)
_CONSTANTS: MappingProxyType[str, Any] = MappingProxyType(
    {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
)
_WITHOUT_EFFECT = frozenset({"PROTO", "FRAME"})
_DO: MappingProxyType[str, Callable[[_Reader, Any], object]] = MappingProxyType(
    {
        "MARK": lambda reader, _: reader.stack.append(_StackMark()),
        "POP": lambda reader, _: reader.stack.pop(),
        "POP_MARK": lambda reader, _: reader.group(),
        "DUP": lambda reader, _: reader.stack.append(reader.stack[-1]),
        **dict.fromkeys(("GLOBAL", "STACK_GLOBAL"), _Reader.name),
        **dict.fromkeys(("REDUCE", "NEWOBJ"), lambda reader, _: reader.construct(*reader.several(2))),
        "NEWOBJ_EX": lambda reader, _: reader.construct(*reader.several(3)[:2]),
        "BUILD": lambda reader, _: reader.build(reader.pop()),
        **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Reader.remember),
        **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda reader, at: reader.stack.append(reader.memo[int(at)])),
        **dict.fromkeys(("EMPTY_LIST", "EMPTY_SET"), lambda reader, _: reader.stack.append(PickledSequence())),
        "EMPTY_DICT": lambda reader, _: reader.stack.append(PickledPairs()),
        **dict.fromkeys(("LIST", "FROZENSET"), lambda reader, _: reader.stack.append(PickledSequence(reader.group()))),
        "TUPLE": lambda reader, _: reader.stack.append(tuple(reader.group())),
        "TUPLE1": lambda reader, _: reader.stack.append(reader.several(1)),
        "TUPLE2": lambda reader, _: reader.stack.append(reader.several(2)),
        "TUPLE3": lambda reader, _: reader.stack.append(reader.several(3)),
        "DICT": lambda reader, _: reader.stack.append(PickledPairs(_paired(reader.group()))),
        "APPEND": lambda reader, _: reader.extend([reader.pop()]),
        **dict.fromkeys(("APPENDS", "ADDITEMS"), lambda reader, _: reader.extend(reader.group())),
        "SETITEM": lambda reader, _: reader.set_items(_paired([*reader.several(2)])),
        "SETITEMS": lambda reader, _: reader.set_items(_paired(reader.group())),
        **dict.fromkeys(
            ("PERSID", "BINPERSID"),
            lambda reader, what: reader.stack.append(PersistentId(reader.pop() if what is None else what)),
        ),
    }
)
