"""A writer and a reader of a log in any order, held against the model of both."""

from __future__ import annotations

import gzip
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from grpo_watch.engine.records import Cursor
from grpo_watch.sources.files.tail import Tail
from tests.model.tail_files import LOG, OUTSIDE, File
from tests.model.tail_model import Reader, ReaderModel

BANNER = b"[INFO] the same first lines in every job of this cluster " * 6 + b"\n"
"""Longer than the head fingerprint."""
PAGE = 4096
"""File systems keep no pages that nobody wrote."""
SIZES = st.lists(st.one_of(st.just(0), st.integers(1, 90)), max_size=5)


class TailMachine(ReaderModel, RuleBasedStateMachine):
    """What a writer, an administrator and a reader do to a log; ``due`` is what a poll has to give.

    ``exact`` stays true as long as nothing was done that the file system does not permit to be followed; then every
    piece that was written must have come once, in the order of writing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.exact = True
        self.given: list[bytes] = []

    @initialize(bars=st.booleans(), chunk=st.sampled_from([7, 37, 1000]))
    def begin(self, *, bars: bool, chunk: int) -> None:
        self.bars, self.chunk = bars, chunk
        self._create(LOG, [])
        self.reader = Reader(self.names[LOG], live=False)
        self.tail = self._tail(None)
        self.poll([45])
        self.commit()

    # the writer

    @rule(sizes=SIZES)
    def write(self, sizes: Sequence[int]) -> None:
        """Lines of these sizes; 0 is a piece without a line end."""
        if self._named() is not None:
            self._append(LOG, sizes)

    @precondition(lambda self: self._named() is not None)
    @rule(sizes=SIZES, banner=st.booleans())
    def truncate(self, sizes: Sequence[int], *, banner: bool) -> None:
        """In place; then it grows, to less, to the same or to more than before."""
        self.exact = False
        self._put(LOG, BANNER if banner else b"")
        self._append(LOG, sizes)

    @precondition(lambda self: self._named() is not None)
    @rule(part=st.floats(0, 1), sizes=SIZES)
    def cut_back(self, part: float, sizes: Sequence[int]) -> None:
        self.exact = False
        self._put(LOG, self.names[LOG].content[: int(part * len(self.names[LOG].content))])
        self._append(LOG, sizes)

    @precondition(lambda self: self._named() is not None)
    @rule(size=st.integers(0, 90))
    def regrow_to_the_same_size(self, size: int) -> None:
        """Other content of exactly the old length."""
        length, self.exact = len(self.names[LOG].content), False
        self._put(LOG, b"")
        self._append(LOG, [max(1, length - size), 0])
        self._put(LOG, self.names[LOG].content[:length])

    @precondition(lambda self: self._named() is not None and self._named().content)
    @rule(sizes=SIZES)
    def rewrite_the_beginning(self, sizes: Sequence[int]) -> None:
        """The same length, the same end: only the first bytes tell."""
        self.exact = False
        self._put(LOG, b"#" + self.names[LOG].content[1:])
        self._append(LOG, sizes)

    @precondition(lambda self: self._named() is not None)
    @rule(between=SIZES, after=SIZES)
    def copytruncate(self, between: Sequence[int], after: Sequence[int]) -> None:
        """What is written between the copy and the truncation is lost for everyone."""
        self.count += 1
        self._create(f"{LOG}-{self.count}", [])
        self._put(f"{LOG}-{self.count}", self.names[LOG].content)
        self._append(LOG, between)
        self.exact = False  # a second truncation before the next poll: which copy comes next can't be known
        self._put(LOG, b"")
        self._append(LOG, after)

    @precondition(lambda self: self._named() is not None)
    @rule(sizes=SIZES)
    def truncate_under_a_writer_that_does_not_append(self, sizes: Sequence[int]) -> None:
        """It goes on at its old offset: a hole of zeros lies before what it writes."""
        self.exact = False
        hole = b"\0" * len(self.names[LOG].content)
        self._put(LOG, b"")
        self._put(LOG, hole)
        self._append(LOG, sizes)

    @precondition(lambda self: self._named() is not None and self._named().content[-1:] in {b"\n", b""})
    @rule(pages=st.integers(1, 3), sizes=SIZES)
    def grow_by_a_hole(self, pages: int, sizes: Sequence[int]) -> None:
        """``truncate`` makes it larger behind a whole line: the file system knows that nothing was written there."""
        content = self.names[LOG].content
        self.names[LOG].content = content.ljust((len(content) // PAGE + pages) * PAGE, b"\0")
        os.truncate(self.folder / LOG, len(self.names[LOG].content))
        self._append(LOG, sizes)

    @rule(again=st.booleans(), old=SIZES, new=SIZES)
    def rotate(self, *, again: bool, old: Sequence[int], new: Sequence[int]) -> None:
        """As logrotate and Python's RotatingFileHandler do: everything moves up by one number."""
        if self._named() is None or self._is_link():
            return
        self._append(LOG, old)
        known = self.reader.file in self._chain() or not self.names[LOG].content
        grown = self.reader.given != b"" and self.reader.is_in(self.names[LOG], self.reader.given)
        self.exact = self.exact and (known or grown)
        for number in range(len(self.names), 0, -1):
            if f"{LOG}.{number}" in self.names:
                self._rename(f"{LOG}.{number}", f"{LOG}.{number + 1}")
        self._rename(LOG, f"{LOG}.1")
        if again:
            self._create(LOG, new)

    @precondition(lambda self: f"{LOG}.1" in self.names and (LOG not in self.names or self.names[LOG].content == b""))
    @rule(sizes=SIZES)
    def write_to_the_old_file(self, sizes: Sequence[int]) -> None:
        """The writer opens its log again only some time after the rotation."""
        if self.names[f"{LOG}.1"] is self.reader.file:
            self._append(f"{LOG}.1", sizes)

    @precondition(lambda self: f"{LOG}.1" in self.names)
    @rule()
    def compress(self) -> None:
        """As logrotate does: outside the numbered chain, it is found only by the reader that stopped in it."""
        self.exact = False
        self.count += 1
        content = self.names.pop(f"{LOG}.1").content
        (self.folder / f"{LOG}.1").unlink()
        (self.folder / f"{LOG}-{self.count}.gz").write_bytes(gzip.compress(content))
        self.names[f"{LOG}-{self.count}.gz"] = File(content, packed=True)

    @rule(again=st.booleans(), old=SIZES, new=SIZES)
    def move_away(self, *, again: bool, old: Sequence[int], new: Sequence[int]) -> None:
        """Under any name, outside the numbered chain."""
        if LOG not in self.names:
            return
        if self._named() is not None:
            self._append(LOG, old)
        self.exact = self.exact and self.names[LOG] is self.reader.file and not self._is_link()
        self.count += 1
        self._rename(LOG, f"kept-{self.count}")
        if again:
            self._create(LOG, new)

    @precondition(lambda self: LOG not in self.names and any(name.startswith("kept-") for name in self.names))
    @rule()
    def move_back(self) -> None:
        name = max(name for name in self.names if name.startswith("kept-"))
        self.exact = self.exact and self.names[name] is self.reader.file
        self._rename(name, LOG)

    @precondition(
        lambda self: (
            self.reader.live
            and self._named() is self.reader.file
            and not self._is_link()
            and self.reader.file.content.startswith(self.reader.seen)
        )
    )
    @rule(sizes=SIZES)
    def folder_away_and_back(self, sizes: Sequence[int]) -> None:
        """A mount that was lost for a while: the writer goes on, and the reader reads what it holds open."""
        here, away = self.folder, self.folder.with_name(f"{self.folder.name}-away")
        self.folder = here.rename(away)
        self.poll(sizes)
        self.folder = away.rename(here)

    @rule(again=st.booleans(), old=SIZES, new=SIZES)
    def delete(self, *, again: bool, old: Sequence[int], new: Sequence[int]) -> None:
        """With no reader the new file may get the same inode."""
        if LOG not in self.names:
            return
        if self._named() is not None:
            self._append(LOG, old)
        self.exact = False
        self.path.unlink()
        del self.names[LOG]
        if again:
            self._create(LOG, new)

    @precondition(lambda self: LOG not in self.names)
    @rule(sizes=SIZES)
    def appear(self, sizes: Sequence[int]) -> None:
        self._create(LOG, sizes)

    @precondition(lambda self: self._named() is not None and not self._is_link())
    @rule(sizes=SIZES)
    def sync(self, sizes: Sequence[int]) -> None:
        """A grown copy takes the name, as rsync does it; the old file is gone."""
        old = self.names[LOG]
        self.exact = self.exact and self.reader.file is old and self.reader.given != b""
        self._create(".incoming", [])
        self._put(".incoming", old.content)
        self._rename(".incoming", LOG)
        self._append(LOG, sizes)

    @precondition(lambda self: self._named() is not None)
    @rule(old=SIZES, between=SIZES, new=SIZES)
    def delete_recreate_and_rotate(self, old: Sequence[int], between: Sequence[int], new: Sequence[int]) -> None:
        """All of it between two polls."""
        self.delete(again=True, old=old, new=between)
        self.rotate(again=True, old=[], new=new)

    @precondition(lambda self: self._named() is not None and not self._is_link())
    @rule(sizes=SIZES, old=SIZES, new=SIZES)
    def replace_and_rotate(self, sizes: Sequence[int], old: Sequence[int], new: Sequence[int]) -> None:
        """A grown copy takes the name and is renamed itself, between two polls."""
        self.sync(sizes)
        self.rotate(again=True, old=old, new=new)

    @rule(inside=st.booleans(), sizes=SIZES)
    def become_a_link(self, *, inside: bool, sizes: Sequence[int]) -> None:
        """The name is replaced by a link to another file, inside the roots or out of them."""
        self.exact = False
        self.path.unlink(missing_ok=True)
        self.names.pop(LOG, None)
        if inside:
            self.count += 1
            target = f"real-{self.count}"
            self._create(target, sizes)
            self.path.symlink_to(self.folder / target)
            self.names[LOG] = self.names[target]
        else:
            self.path.symlink_to(self.outside / "secrets")
            self.names[LOG] = OUTSIDE

    @rule(jump=st.integers(-(10**9), 10**9))
    def jump_of_the_clock(self, jump: int) -> None:
        """Files are stamped by a clock that is set forward or back."""
        for name in self.names:
            if (self.folder / name).resolve().parent == self.folder.resolve():
                os.utime(self.folder / name, (1.7e9 + jump, 1.7e9 + jump))

    # the reader

    @rule(sizes=SIZES)
    def poll(self, sizes: Sequence[int]) -> None:
        self.write(sizes)
        due = self.due()
        assert [line.data for line in self.tail.read()] == [data for data, _ in due]
        self.given += [data for data, _ in due]
        assert bool(self.tail.problem) == (self.names.get(LOG) is OUTSIDE)

    @rule(given=st.integers(0, 3), sizes=SIZES)
    def abandon_and_go_on(self, given: int, sizes: Sequence[int]) -> None:
        """A slice is full in the middle of a poll; the next one goes on."""
        self.write(sizes)
        self._some(given)
        self.poll([])

    @rule(given=st.integers(0, 3), sizes=SIZES)
    def restart(self, given: int, sizes: Sequence[int]) -> None:
        """The reader stops, perhaps in the middle of a poll; another goes on from its cursor."""
        self.write(sizes)
        self._some(given)
        self._restart(self.tail.cursor("c"), self.reader)

    @rule()
    def commit(self) -> None:
        """The cursor is stored together with what was given."""
        self.committed = (self.tail.cursor("c"), self.reader, list(self.given))

    @rule()
    def kill(self) -> None:
        """What was given since the last commit was never stored; the next reader goes on from the stored cursor."""
        cursor, reader, self.given = self.committed[0], self.committed[1], list(self.committed[2])
        found = any(reader.is_in(file, reader.given) for file in self._chain())
        self.exact = self.exact and (found or reader.file is self.reader.file)
        self._restart(cursor, reader)

    def teardown(self) -> None:
        if not hasattr(self, "tail"):
            return
        due = self.due()
        rest = [piece for piece in [self._rest(self.reader)] if piece and self.reader.live]
        assert [line.data for line in self.tail.finish()] == [data for data, _ in due] + rest
        self.given += [data for data, _ in due] + rest
        if self.exact:
            pieces = [int(number) for number in re.findall(rb"<(\d+)>", b"".join(self.given))]
            assert pieces == list(dict.fromkeys(pieces))
            assert pieces == sorted(pieces)
            assert set(pieces) == set(self.written)
        self.tail.close()
        shutil.rmtree(self.folder)
        shutil.rmtree(self.outside)

    def _some(self, count: int) -> None:
        """The first lines of a poll."""
        before, due, lines = self.reader, self.due(), self.tail.read()
        taken = [line.data for line in islice(lines, count)]
        lines.close()
        assert taken == [data for data, _ in due[:count]]
        self.given += taken
        if count <= len(due):
            self.reader = due[count - 1][1] if count else before

    def _restart(self, cursor: Cursor, reader: Reader) -> None:
        self.tail.close()
        self.tail = self._tail(cursor)
        self.reader = replace(reader, live=False)

    def _tail(self, cursor: Cursor | None) -> Tail:
        return Tail(self.path, [self.folder], cursor, bars=self.bars, chunk=self.chunk)
