"""Counts the steps of a backtracking matcher such as Python's, and makes texts on which expressions take many.

Every bound of a repetition is cut to ``CAP``: what is linear for a constant reason then is so for a small one, and two
repetitions that fight over the same characters show as ``CAP`` squared, bounded or not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as ops
    from re import _parser as parser
else:
    import sre_constants as ops
    import sre_parse as parser

CAP = 10
LENGTH = 200
DEEP = 20_000
"""Calls inside calls; a repetition of groups takes some for each time round."""
PROBES = "a0 Z_.-:/='\"[({<|,%\\\t\x1b\n@#$*●é"
"""Characters that texts are made of: one of each kind that an expression tells from others."""
CATEGORIES = {ops.CATEGORY_DIGIT: r"\d", ops.CATEGORY_SPACE: r"\s", ops.CATEGORY_WORD: r"\w"}
CATEGORIES |= {ops.CATEGORY_NOT_DIGIT: r"\D", ops.CATEGORY_NOT_SPACE: r"\S", ops.CATEGORY_NOT_WORD: r"\W"}
REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT, getattr(ops, "POSSESSIVE_REPEAT", None))

Go = Callable[[int], bool]
Node = Callable[[int, Go], bool]
Test = Callable[[str], bool]


class TooManyError(Exception):
    """The limit of steps is reached."""


def tree(pattern: str | bytes, flags: int = 0) -> Any:
    """The parsed expression; of bytes as of Latin-1 text."""
    if isinstance(pattern, bytes):
        return parser.parse(pattern.decode("latin-1"), flags | re.ASCII)
    return parser.parse(pattern, flags & ~re.UNICODE)


class Matcher:
    """Finds all matches of an expression in a text, from the left, as ``findall``; ``steps`` counts as it goes."""

    def __init__(self, parsed: Any, limit: int) -> None:
        self.folds = bool(parsed.state.flags & re.IGNORECASE)
        self.multiline = bool(parsed.state.flags & re.MULTILINE)
        self.text, self.steps, self.limit = "", 0, limit
        self.root = self._sequence(parsed)

    def cost(self, text: str, *, anchored: bool) -> int:
        """Steps to look through the text; ``anchored``: at its beginning only."""
        self.text, self.steps = text, 0
        start, usual = 0, sys.getrecursionlimit()
        sys.setrecursionlimit(DEEP)
        try:
            while start <= len(text):
                ends: list[int] = []
                found = self.root(start, lambda end, ends=ends: not ends.append(end))
                if anchored:
                    break
                start = max(ends[-1], start + 1) if found else start + 1
        finally:
            sys.setrecursionlimit(usual)
        return self.steps

    def _tick(self) -> None:
        self.steps += 1
        if self.steps > self.limit:
            raise TooManyError

    def _sequence(self, items: Any) -> Node:
        nodes = [self._node(op, value) for op, value in items]

        def run(at: int, i: int, go: Go) -> bool:
            return go(i) if at == len(nodes) else nodes[at](i, lambda j: run(at + 1, j, go))

        return lambda i, go: run(0, i, go)

    def _node(self, op: Any, value: Any) -> Node:  # noqa: PLR0911  one for each kind
        test = single(op, value, folds=self.folds)
        if test is not None:
            return self._one(test)
        if op in REPEATS:
            return self._repeat(op, *value)
        if op is ops.BRANCH:
            return self._branch([self._sequence(each) for each in value[1]])
        if op is ops.SUBPATTERN:
            return self._sequence(value[-1])
        if op is getattr(ops, "ATOMIC_GROUP", None):
            return self._atomic(self._sequence(value))
        if op in {ops.ASSERT, ops.ASSERT_NOT}:
            return self._look(op is ops.ASSERT, value[0], value[1])
        if op is ops.AT:
            return lambda i, go: self._at(value, i) and go(i)
        if op is ops.GROUPREF:
            return lambda i, go: go(i)
        raise NotImplementedError(str(op))

    def _one(self, test: Test) -> Node:
        def run(i: int, go: Go) -> bool:
            self._tick()
            return i < len(self.text) and test(self.text[i]) and go(i + 1)

        return run

    def _branch(self, nodes: Sequence[Node]) -> Node:
        def run(i: int, go: Go) -> bool:
            for node in nodes:  # noqa: SIM110  any() would make calls of C in calls of C
                if node(i, go):
                    return True
            return False

        return run

    def _atomic(self, node: Node) -> Node:
        def run(i: int, go: Go) -> bool:
            ends: list[int] = []
            return node(i, lambda end: not ends.append(end)) and go(ends[-1])

        return run

    def _look(self, wanted: bool, direction: int, items: Any) -> Node:  # noqa: FBT001
        node, back = self._sequence(items), items.getwidth()[1] if direction < 0 else 0

        def run(i: int, go: Go) -> bool:
            self._tick()
            found = i >= back and node(i - back, lambda _: True)
            return found == wanted and go(i)

        return run

    def _repeat(self, op: Any, low: int, high: Any, items: Any) -> Node:
        node, most = self._sequence(items), min(int(high), max(low, CAP)) if high is not ops.MAXREPEAT else LENGTH * 4
        lazy, greedy = op is ops.MIN_REPEAT, op is ops.MAX_REPEAT
        test = single(*items[0], folds=self.folds) if len(items) == 1 else None
        if test is not None and not lazy:
            return self._run(test, low, most) if greedy else self._atomic(self._run(test, low, most))

        def run(count: int, i: int, go: Go) -> bool:
            self._tick()
            if lazy and count >= low and go(i):
                return True
            again = count < most and node(i, lambda j: (j > i or count < low) and run(count + 1, j, go))
            return again or (not lazy and count >= low and go(i))

        whole: Node = lambda i, go: run(0, i, go)  # noqa: E731
        return whole if lazy or greedy else self._atomic(whole)

    def _run(self, test: Test, low: int, most: int) -> Node:
        """A repetition of one character: as far as it goes, then back one by one."""

        def run(i: int, go: Go) -> bool:
            end = i
            while end < len(self.text) and end - i < most and test(self.text[end]):
                self._tick()
                end += 1
            for place in range(end, i + low - 1, -1):
                self._tick()
                if go(place):
                    return True
            return False

        return run

    def _at(self, what: Any, i: int) -> bool:
        self._tick()
        text = self.text
        if what in {ops.AT_BEGINNING, ops.AT_BEGINNING_STRING}:
            return i == 0 or (self.multiline and what is ops.AT_BEGINNING and text[i - 1] == "\n")
        if what in {ops.AT_END, ops.AT_END_STRING}:
            return i == len(text) or (what is ops.AT_END and text[i] == "\n" and (self.multiline or i + 1 == len(text)))
        word = [0 <= j < len(text) and re.match(r"\w", text[j]) is not None for j in (i - 1, i)]
        return (word[0] != word[1]) == (what is ops.AT_BOUNDARY)


def single(op: Any, value: Any, *, folds: bool = False) -> Test | None:
    """Which characters an item of one character takes; None for any other item."""
    if op is ops.ANY:
        return lambda char: char != "\n"
    if op not in {ops.LITERAL, ops.NOT_LITERAL, ops.IN}:
        return None
    items = value if op is ops.IN else [(op, value)]

    @cache
    def takes(char: str) -> bool:
        return _in(items, char) or (folds and (_in(items, char.lower()) or _in(items, char.upper())))

    return takes


def _in(items: Any, char: str) -> bool:
    wanted = True
    for op, value in items:
        if op is ops.NEGATE:
            wanted = False
        elif op is ops.NOT_LITERAL:
            return char != chr(value)
        elif (
            (op is ops.LITERAL and char == chr(value))
            or (op is ops.RANGE and value[0] <= ord(char) <= value[1])
            or (op is ops.CATEGORY and re.match(CATEGORIES[value], char) is not None)
        ):
            return wanted
    return not wanted


def samples(items: Any, variety: int) -> list[str]:
    """Short texts that the items match: ``variety`` of them at most, of different characters where they may be."""
    found = [""]
    for op, value in items:
        found = [f"{before}{piece}" for before, piece in _zipped(found, _pieces(op, value, variety))]
    return list(dict.fromkeys(found))[:variety]


def _zipped(befores: list[str], pieces: list[str]) -> Iterator[tuple[str, str]]:
    for number in range(max(len(befores), len(pieces))):
        yield befores[number % len(befores)], pieces[number % len(pieces)]


def _pieces(op: Any, value: Any, variety: int) -> list[str]:
    test = single(op, value)
    if test is not None:
        named = [chr(value)] if op is ops.LITERAL else []
        named += [chr(one) for kind, one in value if kind is ops.LITERAL] if op is ops.IN else []
        return [char for char in dict.fromkeys([*PROBES, *named]) if test(char)][:variety] or [""]
    if op in REPEATS:
        return [each * max(value[0], 1) for each in samples(value[2], variety)] if value[0] else [""]
    if op is ops.BRANCH:
        return [each for branch in value[1] for each in samples(branch, 1)][: variety * 4]
    if op is ops.SUBPATTERN:
        return samples(value[-1], variety)
    return [""]


def attacks(parsed: Any) -> list[str]:
    """Texts that begin to match again and again: each repetition's body many times, after what comes before it."""
    units: dict[str, None] = {}
    texts: dict[str, None] = {}
    for prefix, unit in _places(parsed, ""):
        if unit:
            many = unit * (LENGTH // len(unit))
            texts |= dict.fromkeys([f"{prefix}{many}\x01", many])
            texts[f"{prefix}{unit * CAP}" * (LENGTH // (len(prefix) + CAP * len(unit)) + 1)] = None
            units[unit] = None
        if prefix:
            texts[prefix * (LENGTH // len(prefix) + 1)] = None
    return [text[: LENGTH + len(text) // 2] for text in texts]


def _places(items: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """What may stand before each repetition, and what it may repeat."""
    for op, value in items:
        if op in REPEATS:
            if value[1] is ops.MAXREPEAT or int(value[1]) >= CAP:
                yield from ((prefix, unit) for unit in samples(value[2], 4))
            yield from _places(value[2], prefix)
        elif op is ops.BRANCH:
            for branch in value[1]:
                yield from _places(branch, prefix)
        elif op is ops.SUBPATTERN:
            yield from _places(value[-1], prefix)
        elif op in {ops.ASSERT, ops.ASSERT_NOT}:
            yield from _places(value[1], prefix)
        prefix += (_pieces(op, value, 1) or [""])[0]
    yield prefix, ""
