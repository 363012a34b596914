"""The tail against a model of the file system: no line is lost that could have been read, none comes twice."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from grpo_watch.sources.tail import Tail

SIZES = st.lists(st.one_of(st.just(0), st.integers(1, 90)), max_size=5)


class TailMachine(RuleBasedStateMachine):
    """A writer, a reader, and what the reader has to give.

    ``unread`` holds, per file that ever had the name, the lines the reader has not been given; ``partial`` the text
    behind the last line end. Lines are lost only where no reader could have had them: when a file is truncated before
    a poll, when it is replaced twice between two polls, or when it is replaced while no reader holds it open.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "train.log"
        self.tail = Tail(self.path, [self.folder], chunk=37)
        self.count = 0
        self.unread: list[list[bytes]] = []
        self.partial: list[bytes] = []
        self.named: int | None = None
        self.opened: int | None = None
        self._create()

    def _create(self) -> None:
        self.path.write_bytes(b"")
        self.named = len(self.unread)
        self.unread.append([])
        self.partial.append(b"")

    def _append(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def _write(self, sizes: Sequence[int]) -> None:
        """Lines of these sizes; 0 is a piece without a line end."""
        for size in sizes if self.named is not None else ():
            self.count += 1
            text = b"%d:" % self.count + b"x" * size
            self._append(text + b"\n" if size else text)
            if size:
                self.unread[self.named].append(self.partial[self.named] + text)
            self.partial[self.named] = b"" if size else self.partial[self.named] + text

    @rule(sizes=SIZES)
    def write(self, sizes: Sequence[int]) -> None:
        self._write(sizes)

    @precondition(lambda self: self.named is not None)
    @rule(sizes=SIZES)
    def truncate(self, sizes: Sequence[int]) -> None:
        """In place or after a copy: what was not polled before is gone for every reader."""
        os.truncate(self.path, 0)
        self.unread[self.named], self.partial[self.named] = [], b""
        self._write(sizes)

    @precondition(lambda self: self.named is not None)
    @rule(again=st.booleans(), old=SIZES, new=SIZES)
    def rotate(self, *, again: bool, old: Sequence[int], new: Sequence[int]) -> None:
        self._write(old)
        self.path.rename(self.folder / f"train.log.{self.named}")
        self._successor(again=again, sizes=new)

    @precondition(lambda self: self.named is not None)
    @rule(again=st.booleans(), old=SIZES, new=SIZES)
    def delete(self, *, again: bool, old: Sequence[int], new: Sequence[int]) -> None:
        """With no reader the new file may get the same inode."""
        self._write(old)
        self.path.unlink()
        self._successor(again=again, sizes=new)

    def _successor(self, *, again: bool, sizes: Sequence[int]) -> None:
        self.named = None
        if again:
            self._create()
            self._write(sizes)

    @precondition(lambda self: self.named is None)
    @rule()
    def appear(self) -> None:
        self._create()

    def _due(self) -> list[bytes]:
        """What a poll has to give now."""
        due: list[bytes] = []
        if self.opened is not None:
            due += self._take(self.opened)
            if self.named not in (None, self.opened):
                due += [self.partial[self.opened]] if self.partial[self.opened] else []
        if self.named not in (None, self.opened):
            self.opened = self.named
            due += self._take(self.named)
        return due

    def _take(self, index: int) -> list[bytes]:
        taken, self.unread[index] = self.unread[index], []
        return taken

    @rule(sizes=SIZES)
    def poll(self, sizes: Sequence[int]) -> None:
        self._write(sizes)
        assert [line.data for line in self.tail.read()] == self._due()
        assert self.tail.problem == ""

    @rule(given=st.integers(0, 3), sizes=SIZES)
    def restart(self, given: int, sizes: Sequence[int]) -> None:
        """The reader stops (perhaps after some lines of a poll) and another goes on from its cursor."""
        self._write(sizes)
        lines = self.tail.read()
        taken = [line.data for line in islice(lines, given)]
        lines.close()
        if given:
            due = self._due()
            assert due[: len(taken)] == taken
            self._put_back(due[len(taken) :])
        cursor = self.tail.cursor("c")
        self.tail.close()
        self.tail = Tail(self.path, [self.folder], cursor, chunk=37)
        self.opened = None

    def _put_back(self, left: list[bytes]) -> None:
        """Lines that were due but not taken are still to come if the file with the name holds them."""
        if self.named is None:
            return
        written = [line for line in left if line in self.path.read_bytes().split(b"\n")[:-1]]
        self.unread[self.named] = written + self.unread[self.named]

    def teardown(self) -> None:
        due = self._due()
        rest = [self.partial[self.opened]] if self.opened is not None and self.partial[self.opened] else []
        assert [line.data for line in self.tail.finish()] == due + rest
        self.tail.close()


TestTail = TailMachine.TestCase
TestTail.settings = settings(max_examples=150, stateful_step_count=30, deadline=None, derandomize=True)
