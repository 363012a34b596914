"""The byte tail: what each way of growing, rotating and truncating a file gives."""

from __future__ import annotations

import gzip
import os
import re
import resource
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.sources.files.reading import BUDGET, RECORDS
from grpo_watch.sources.files.tail import Tail

BANNER = b"[INFO] the same first lines in every job of this cluster " * 6 + b"\n"
"""Longer than the head fingerprint."""


def texts(tail: Tail) -> list[bytes]:
    return [line.data for line in tail.read()]


def the_tail(path: Path, **changes: object) -> Tail:
    return Tail(path, [path.parent], **changes)  # type: ignore[arg-type]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_line_is_held_until_its_end_arrives(tmp_path: Path) -> None:
    """Half a row must never be parsed."""
    path = tmp_path / "log"
    path.write_bytes(b"one\ntw")
    tail = the_tail(path)
    assert texts(tail) == [b"one"]
    with path.open("ab") as file:
        file.write(b"o\n")
    assert texts(tail) == [b"two"]


def test_finish_gives_the_unfinished_line_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo")
    tail = the_tail(path)
    assert [line.data for line in tail.finish()] == [b"one", b"two"]
    assert list(tail.finish()) == []


def test_offsets_name_the_bytes_of_the_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\r\ntwo\n")
    first, second = the_tail(path).read()
    assert (first.start, first.end, first.data) == (0, 5, b"one")
    assert (second.start, second.end, second.data) == (5, 9, b"two")


def test_a_file_may_appear_later(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = the_tail(path)
    assert texts(tail) == []
    assert tail.problem == ""
    path.write_bytes(b"one\n")
    assert texts(tail) == [b"one"]


def test_a_vanished_file_may_come_back(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    tail = the_tail(path)
    texts(tail)
    path.unlink()
    assert texts(tail) == []
    path.write_bytes(b"two\n")
    assert texts(tail) == [b"two"]


def test_rotation_finishes_the_old_file_first(tmp_path: Path) -> None:
    """Also the line that the old file ends in the middle of."""
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    tail = the_tail(path)
    texts(tail)
    with path.open("ab") as file:
        file.write(b"two\nthr")
    path.rename(tmp_path / "log.1")
    path.write_bytes(b"four\n")
    lines = list(tail.read())
    assert [(line.data, line.generation) for line in lines] == [(b"two", 0), (b"thr", 0), (b"four", 1)]


def rotate(path: Path, new: bytes) -> None:
    """As logrotate does it: everything moves up by one number."""
    for number in (2, 1):
        if (old := path.with_name(f"{path.name}.{number}")).exists():
            old.rename(path.with_name(f"{path.name}.{number + 1}"))
    path.rename(path.with_name(f"{path.name}.1"))
    path.write_bytes(new)


def test_two_rotations_between_two_polls_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    tail = the_tail(path)
    texts(tail)
    append(path, b"two\n")
    rotate(path, b"three\nfour\n")
    rotate(path, b"five\n")
    assert texts(tail) == [b"two", b"three", b"four", b"five"]


def test_a_rotation_while_no_reader_runs_loses_nothing(tmp_path: Path) -> None:
    """Under any name in the same folder: the inode tells."""
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    tail = the_tail(path)
    texts(tail)
    cursor = tail.cursor("c")
    tail.close()
    append(path, b"two\n")
    path.rename(tmp_path / "old")
    path.write_bytes(b"three\n")
    assert texts(the_tail(path, cursor=cursor)) == [b"two", b"three"]


def test_a_writer_that_opens_its_new_log_late_is_read_to_the_end(tmp_path: Path) -> None:
    """The rotation makes an empty file; the job goes on in the old one until it is signalled."""
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    tail = the_tail(path)
    texts(tail)
    rotate(path, b"")
    append(tmp_path / "log.1", b"tw")
    assert texts(tail) == []
    append(tmp_path / "log.1", b"o\n")
    append(path, b"three\n")
    assert texts(tail) == [b"two", b"three"]


def test_what_was_written_before_a_copytruncate_is_read_from_the_copy(tmp_path: Path) -> None:
    """The bound: lines between the copy and the truncation (``lost``) are nowhere any more."""
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    tail = the_tail(path)
    texts(tail)
    append(path, b"two\n")
    (tmp_path / "log-20261121").write_bytes(path.read_bytes())
    append(path, b"lost\n")
    path.write_bytes(b"three\n")
    assert texts(tail) == [b"two", b"three"]


def pack(path: Path) -> None:
    """As logrotate does without ``delaycompress``."""
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


def test_what_rotations_packed_before_a_reader_came_is_read(tmp_path: Path) -> None:
    """The lines that nobody had read yet (a reader that was killed, or that looks seldom) were lost."""
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    tail, live = the_tail(path), the_tail(path)
    texts(tail)
    texts(live)
    cursor = tail.cursor("c")
    tail.close()
    append(path, b"two\n")
    pack(path.rename(tmp_path / "log.1"))
    (tmp_path / "log.4.gz").write_bytes(gzip.compress(b"another\n"))
    (tmp_path / "log.1.gz").rename(tmp_path / "log.3.gz")
    (tmp_path / "log.1").write_bytes(b"three\n")
    pack((tmp_path / "log.1").rename(tmp_path / "log.2"))
    (tmp_path / "log.1").write_bytes(b"four\n")
    path.write_bytes(b"five\n")
    again = the_tail(path, cursor=cursor)
    for reader in (again, live):
        assert texts(reader) == [b"two", b"three", b"four", b"five"]
    append(path, b"six\n")
    for reader in (again, live):
        assert texts(reader) == [b"six"]


def test_the_log_of_another_rank_does_not_follow_one_that_was_deleted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    (tmp_path / "log.1").write_bytes(b"of another rank\n")
    path.write_bytes(b"one\n")
    tail = the_tail(path)
    texts(tail)
    path.unlink()
    append(tmp_path / "log.1", b"goes on\n")
    path.write_bytes(b"two\n")
    assert texts(tail) == [b"two"]


def test_what_was_written_before_a_copytruncate_is_read_from_a_copy_that_was_packed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    tail = the_tail(path)
    texts(tail)
    append(path, b"two\nand a")
    (tmp_path / "log.1").write_bytes(path.read_bytes() + b" half\n")
    pack(tmp_path / "log.1")
    path.write_bytes(b"three\n")
    assert texts(tail) == [b"two", b"and a half", b"three"]


def test_the_bound_of_telling_a_rewritten_file(tmp_path: Path) -> None:
    """The same first 256 bytes and the same 32 before the position: taken for the file that was read."""
    path, same = tmp_path / "log", b"x" * 40 + b"\n"
    path.write_bytes(BANNER + b"one\n" + same)
    tail = the_tail(path)
    texts(tail)
    path.write_bytes(BANNER + b"two\n" + same + b"three\n")
    assert texts(tail) == [b"three"]


def test_a_file_that_was_cut_back_is_read_again(tmp_path: Path) -> None:
    """What was kept of it can't be distinguished from what was written again."""
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    tail = the_tail(path)
    texts(tail)
    os.truncate(path, 4)
    assert [(line.data, line.generation) for line in tail.read()] == [(b"one", 1)]


def test_a_synchronised_copy_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    """rsync writes a new file and renames it over the old one."""
    path = tmp_path / "log"
    path.write_bytes(b"one\ntw")
    tail = the_tail(path)
    assert texts(tail) == [b"one"]
    (tmp_path / ".log.x7Yz").write_bytes(b"one\ntwo\nthree\n")
    (tmp_path / ".log.x7Yz").rename(path)
    assert [(line.data, line.generation) for line in tail.read()] == [(b"two", 0), (b"three", 0)]


def test_a_stale_handle_repeats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system that went away and came back; the place is kept in memory."""
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    tail = the_tail(path)
    texts(tail)
    append(path, b"three\n")
    with monkeypatch.context() as broken:
        broken.setattr(os, "pread", stale)
        assert texts(tail) == []
        assert "Stale file handle" in tail.problem
        assert texts(tail) == []
    assert [(line.data, line.generation) for line in tail.read()] == [(b"three", 0)]
    assert tail.problem == ""


def stale(*_: object) -> bytes:
    raise OSError(116, "Stale file handle")


def test_a_cursor_taken_after_a_truncation_is_of_the_file_that_was_read(tmp_path: Path) -> None:
    """The same banner, another row before the position: the successor is read from its beginning."""
    path = tmp_path / "log"
    path.write_bytes(BANNER + b"one\n")
    tail = the_tail(path)
    texts(tail)
    path.write_bytes(BANNER + b"two\nthree\n")
    again = the_tail(path, cursor=tail.cursor("c"))
    assert texts(again)[1:] == [b"two", b"three"]


@pytest.mark.parametrize(("age", "read"), [(3600, [b"one", b"two"]), (0, [b"two"])])
def test_a_first_look_begins_with_what_was_rotated_away(tmp_path: Path, age: int, read: list[bytes]) -> None:
    """Not with the log of another rank, which is numbered too but written at the same time."""
    path = tmp_path / "log"
    path.write_bytes(b"two\n")
    (tmp_path / "log.1").write_bytes(b"one\n")
    os.utime(path, (1e9, 1e9))
    os.utime(tmp_path / "log.1", (1e9 - age, 1e9 - age))
    assert texts(the_tail(path)) == read


def test_truncation_starts_over(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    tail = the_tail(path)
    texts(tail)
    path.write_bytes(b"1\n")
    (line,) = tail.read()
    assert (line.data, line.start, line.generation) == (b"1", 0, 1)


def test_a_file_that_grew_again_past_the_old_offset_is_noticed_by_its_head(tmp_path: Path) -> None:
    """copytruncate between two polls: the size alone says nothing. The row before the offset is the same here."""
    path, same = tmp_path / "log", b"x" * 40 + b"\n"
    path.write_bytes(b"one\n" + same)
    tail = the_tail(path)
    texts(tail)
    path.write_bytes(b"two\n" + same + b"more\n")
    assert texts(tail) == [b"two", same[:-1], b"more"]


def test_a_file_with_the_same_banner_is_noticed_by_the_bytes_before_the_offset(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(BANNER + b"one\n")
    tail = the_tail(path)
    texts(tail)
    path.write_bytes(BANNER + b"two\nthree\n")
    assert texts(tail)[1:] == [b"two", b"three"]


def test_the_fingerprint_grows_with_the_file(tmp_path: Path) -> None:
    """A first poll that saw three bytes must not leave a three-byte fingerprint."""
    path = tmp_path / "log"
    path.write_bytes(b"ab\n")
    tail = the_tail(path)
    texts(tail)
    with path.open("ab") as file:
        file.write(b"c" * 300 + b"\n")
    texts(tail)
    texts(tail)
    assert bytes.fromhex(tail.cursor("c").identity.split(":")[2]) == (b"ab\n" + b"c" * 253)


@pytest.mark.parametrize("successor", [b"zwei\nthree\n", b"", b"one\ntwX\nthree\n"])
def test_a_cursor_of_another_file_is_not_followed(tmp_path: Path, successor: bytes) -> None:
    """Deleted and created again, perhaps with the same inode: everything in it is new."""
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    tail = the_tail(path)
    texts(tail)
    cursor = tail.cursor("c")
    tail.close()
    path.write_bytes(successor)
    again = the_tail(path, cursor=cursor)
    lines = list(again.read())
    assert [line.data for line in lines] == successor.splitlines()
    assert again.generation == 1


def test_a_cursor_survives_a_mount_under_another_device_number(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    tail = the_tail(path)
    texts(tail)
    cursor = tail.cursor("c")
    device, rest = cursor.identity.split(":", 1)
    moved = type(cursor)("c", f"{int(device) + 1}:{rest}", cursor.position)
    with path.open("ab") as file:
        file.write(b"two\n")
    assert texts(the_tail(path, cursor=moved)) == [b"two"]


def test_zeros_that_a_truncation_left_are_passed_over(tmp_path: Path) -> None:
    """A writer that goes on at its old offset leaves a hole; the row behind it is a row."""
    path = tmp_path / "log"
    path.write_bytes(b"\0" * 5000 + b"one\ntwo\n")
    assert texts(the_tail(path, max_line=1000, chunk=512)) == [b"one", b"two"]


def test_a_line_of_200_mb_is_refused_without_being_held(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(b'{"model_parameter_info": ')
        file.seek(200 << 20)  # a hole: no disk is used
        file.write(b"\nnext\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    long, following = the_tail(path).read()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (long.too_long, len(long.data), long.start, long.end) == (True, 4096, 0, (200 << 20) + 1)
    assert long.data.startswith(b'{"model_parameter_info"')
    assert following.data == b"next"
    assert grown < 40 << 10  # kilobytes


def test_restart_inside_a_line_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n" + b"x" * 500)
    tail = the_tail(path, max_line=100, chunk=64)
    assert texts(tail) == [b"one"]
    cursor = tail.cursor("c")
    with path.open("ab") as file:
        file.write(b"\ntwo\n")
    for reader in (tail, the_tail(path, max_line=100, chunk=64, cursor=cursor)):
        long, two = reader.read()
        assert (long.too_long, long.start, long.end) == (True, 4, 505)
        assert two.data == b"two"


def test_a_link_out_of_the_run_folder_is_refused_and_named(tmp_path: Path) -> None:
    """Also when it is swapped in while the file is being read."""
    inside, outside = tmp_path / "run", tmp_path / "secrets"
    inside.mkdir()
    outside.write_bytes(b"secret\n")
    path = inside / "log"
    path.write_bytes(b"one\n")
    tail = Tail(path, [inside])
    assert texts(tail) == [b"one"]
    path.unlink()
    path.symlink_to(outside)
    assert texts(tail) == []
    assert "allow_roots" in tail.problem
    path.unlink()
    assert texts(Tail(path, [inside])) == texts(tail) == []
    path.write_bytes(b"two\n")
    assert texts(tail) == [b"two"]
    assert tail.problem == ""


def test_a_refused_link_that_is_gone_is_no_problem_any_more(tmp_path: Path) -> None:
    """For a reader that never could open it, too."""
    path = tmp_path / "log"
    path.symlink_to("/etc/hostname")
    tail = the_tail(path)
    assert texts(tail) == []
    assert "allow_roots" in tail.problem
    path.unlink()
    assert texts(tail) == []
    assert tail.problem == ""


def test_a_folder_or_a_fifo_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    os.mkfifo(path)
    tail = the_tail(path)
    assert texts(tail) == []
    assert "not a regular file" in tail.problem


def test_lines_that_an_abandoned_poll_left_come_next_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\nthree\n")
    tail = the_tail(path)
    lines = tail.read()
    next(lines)
    lines.close()
    assert texts(tail) == [b"two", b"three"]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    parts=st.lists(st.lists(st.sampled_from([b"a", b"bar ", b"\r", b"\n", b"\r\n", b"\0"])), max_size=8),
    chunk=st.integers(1, 9),
)
def test_pieces_between_carriage_returns_and_line_ends(
    tmp_path_factory: pytest.TempPathFactory, parts: Sequence[Sequence[bytes]], chunk: int
) -> None:
    """However it is written and read: the pieces that are not empty, in order, the last only at the end."""
    path = tmp_path_factory.mktemp("bars") / "log"
    path.touch()
    tail = the_tail(path, bars=True, chunk=chunk)
    got: list[bytes] = []
    for part in parts:
        with path.open("ab") as file:
            file.write(b"".join(part))
        got += texts(tail)
    got += [line.data for line in tail.finish()]
    whole = b"".join(b"".join(part) for part in parts)
    pieces = [piece.lstrip(b"\0") for piece in re.split(rb"[\r\n]", whole)]
    assert [piece for piece in got if piece] == [piece for piece in pieces if piece]


def numbered(first: int, last: int) -> bytes:
    return b"".join(b"'epoch': %d.0\n" % step for step in range(first, last + 1))


def replace(path: Path, content: bytes) -> None:
    """As rsync does it: a grown copy takes the name."""
    copy = path.with_name(".copy")
    copy.write_bytes(content)
    copy.rename(path)


def test_a_grown_copy_that_is_rotated_away_between_two_polls_loses_nothing(tmp_path: Path) -> None:
    """The file that was read has no name left, and its copy has another one by now."""
    path = tmp_path / "log"
    path.write_bytes(numbered(1, 10))
    tail = the_tail(path)
    assert len(texts(tail)) == 10
    replace(path, numbered(1, 13))
    rotate(path, numbered(14, 16))
    assert texts(tail) == numbered(11, 16).splitlines()
    assert texts(tail) == []
    append(path, numbered(17, 17))
    assert texts(tail) == numbered(17, 17).splitlines()


@pytest.mark.parametrize("named", [True, False])
def test_a_grown_copy_that_was_rotated_away_is_read_before_its_successor_has_content(
    tmp_path: Path, *, named: bool
) -> None:
    """The job ended with the rotation: the successor never gets content, or is never made."""
    path = tmp_path / "log"
    path.write_bytes(numbered(1, 10))
    tail = the_tail(path)
    assert len(texts(tail)) == 10
    replace(path, numbered(1, 13))
    rotate(path, b"")
    if not named:
        path.unlink()
    assert texts(tail) == numbered(11, 13).splitlines()
    assert texts(tail) == []
    path.write_bytes(numbered(14, 14))
    assert texts(tail) == numbered(14, 14).splitlines()


def test_a_copy_that_was_made_aside_is_not_gone_on_with(tmp_path: Path) -> None:
    """A backup of what was read holds nothing new; the log of another rank that is numbered is no part of this one."""
    path = tmp_path / "log"
    path.write_bytes(numbered(1, 10))
    (tmp_path / "log.bak").write_bytes(numbered(1, 10))
    (tmp_path / "log.1").write_bytes(b"rank 1\n")
    tail = the_tail(path)
    assert len(texts(tail)) == 10
    path.unlink()
    path.write_bytes(b"new\n")
    assert texts(tail) == [b"new"]
    assert texts(tail) == []


def test_a_hole_is_passed_over_unread(tmp_path: Path) -> None:
    """``truncate -s 64G``: zeros that nobody wrote; reading them took minutes in which no run was judged."""
    log = tmp_path / "train.log"
    log.write_bytes(b"one\n")
    tail = Tail(log, (tmp_path,))
    assert [line.data for line in tail.read()] == [b"one"]
    os.truncate(log, 64 << 30)
    assert list(tail.read()) == []
    assert tail.bytes < 4 << 20
    with log.open("ab") as file:
        file.write(b"two\n")
    assert [line.data for line in tail.read(live=True)] == [b"two"]
    assert tail.position == (64 << 30) + 4
    cursor = tail.cursor("log")
    with log.open("ab") as file:
        file.write(b"three\n")
    assert [line.data for line in tail.read(live=True)] == [b"three"]
    again = Tail(log, (tmp_path,), cursor)
    assert [line.data for line in again.read(live=True)] == [b"three"]
    again.close()
    tail.close()


def test_a_hole_inside_a_line_makes_it_too_long(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"one\nbegun")
    os.truncate(log, 1 << 30)
    with log.open("ab") as file:
        file.write(b"ended\ntwo\n")
    tail = Tail(log, (tmp_path,))
    found = list(tail.read())
    assert [line.too_long for line in found] == [False, True, False]
    assert found[-1].data == b"two"
    tail.close()


def test_one_turn_reads_no_more_than_its_budget(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"noise\n".rjust(1024) * (3 * BUDGET // 1024))
    tail = Tail(log, (tmp_path,))
    turns = []
    while not turns or tail.turn.spent:
        turns.append(sum(1 for _ in tail.read(live=True)))
    assert sum(turns) == 3 * BUDGET // 1024
    assert len(turns) in {3, 4}
    tail.close()


def test_one_turn_reads_no_more_lines_than_its_budget(tmp_path: Path) -> None:
    """Short lines cost their reader more time than bytes."""
    log = tmp_path / "train.log"
    log.write_bytes(b"x\n" * (3 * RECORDS))
    tail, turns = Tail(log, (tmp_path,)), list[int]()
    while not turns or tail.turn.spent:
        turns.append(sum(1 for _ in tail.read(live=True)))
    assert sum(turns) == 3 * RECORDS
    assert max(turns) == RECORDS
    tail.close()
