"""Compressed and UTF-16 logs."""

from __future__ import annotations

import gzip
import lzma
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_watch.engine.records import RawRow
from grpo_watch.errors import SourceError
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.discovery.discover import Discoverer
from grpo_watch.sources.files import decompress as packed
from grpo_watch.sources.files.decompress import beginning
from grpo_watch.sources.files.reading import BUDGET

LINES = [f"step {n} | loss 0.1 | reward 0.{n}\n" for n in range(1, 8)]
PACK: dict[str, Callable[[str], bytes]] = {
    "a.log.gz": lambda text: gzip.compress(text.encode()),
    "a.log.xz": lambda text: lzma.compress(text.encode()),
    "a.log": lambda text: text.encode("utf-16"),
}


def steps(source: ConsoleSource) -> list[int | None]:
    return [item.step for item in source.poll(None) if isinstance(item, RawRow)]


@pytest.mark.parametrize("name", PACK)
def test_a_packed_log_is_found_and_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(PACK[name]("".join(LINES)))
    (found,) = Discoverer().discover(tmp_path)
    assert [channel.path for channel in found.channels if channel.what.value == "console"] == [path]
    assert steps(ConsoleSource("log", path, [tmp_path])) == [1, 2, 3, 4, 5, 6, 7]


def test_a_log_that_grows_gives_each_row_once_also_to_a_new_reader(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes("".join(LINES[:4]).encode("utf-16"))
    source = ConsoleSource("log", path, [tmp_path])
    assert steps(source) == [1, 2, 3, 4]
    path.write_bytes("".join(LINES[:6]).encode("utf-16"))
    assert steps(source) == [5, 6]
    path.write_bytes("".join(LINES).encode("utf-16"))
    assert steps(ConsoleSource("log", path, [tmp_path], cursor=source.cursor())) == [7]


@pytest.mark.parametrize("name", ["a.log.gz", "a.log.xz"])
def test_streams_that_were_joined_are_one_text(name: str, tmp_path: Path) -> None:
    """As `cat part1.xz part2.xz` makes them; xz may pad a stream with zeros."""
    padding = b"\0" * 4 if name.endswith("xz") else b""
    path = tmp_path / name
    path.write_bytes(padding.join(PACK[name]("".join(part)) for part in (LINES[:3], LINES[3:5], LINES[5:])))
    assert steps(ConsoleSource("log", path, [tmp_path])) == [1, 2, 3, 4, 5, 6, 7]


def test_an_xz_header_that_asks_for_too_much_memory_is_refused(tmp_path: Path) -> None:
    """A dictionary of 1 GiB for a few bytes; as `xz -9` writes them, files are read."""
    path = tmp_path / "a.log.xz"
    for dictionary, found in ((1 << 30, []), (64 << 20, [1, 2, 3, 4, 5, 6, 7])):
        filters = [{"id": lzma.FILTER_LZMA2, "dict_size": dictionary, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3}]
        path.write_bytes(lzma.compress("".join(LINES).encode(), filters=filters))
        source = ConsoleSource("log", path, [tmp_path])
        assert steps(source) == found
        assert ("needs more than 128 MiB to unpack" in source.stats.problem) == (not found)


def test_a_rotated_part_is_no_log_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(LINES))
    for name in ("a.log.1.gz", "a.log.gz"):
        (tmp_path / name).write_bytes(gzip.compress("".join(LINES).encode()))
    (found,) = Discoverer().discover(tmp_path)
    assert [channel.path.name for channel in found.channels if channel.what.value == "console"] == ["a.log"]


def test_a_damaged_file_is_refused_and_a_cut_one_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(b"\x1f\x8b" + b"no stream" * 9)
    with pytest.raises(SourceError, match="compressed and damaged"):
        beginning(path, [tmp_path], 1 << 20)
    whole = gzip.compress(
        "".join(f"step {n} | loss 0.{n * 7919 % 997} | reward 0.{n}\n" for n in range(1, 999)).encode()
    )
    path.write_bytes(whole[: len(whole) // 2])
    assert len(steps(ConsoleSource("log", path, [tmp_path]))) > 100


@pytest.mark.parametrize("head", [b"\x1f\x8b", b"\xfd7zXZ\x00"])
def test_a_sparse_file_that_begins_like_a_packed_one_is_refused(head: bytes, tmp_path: Path) -> None:
    """Its size does not matter: a piece shows that it is damaged."""
    path = tmp_path / "a.log"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(64 << 30)
    with pytest.raises(SourceError, match="compressed and damaged"):
        beginning(path, [tmp_path], 1 << 20)


def test_a_turn_unpacks_no_more_than_its_budget(tmp_path: Path) -> None:
    """Other runs wait for one budget, not for the whole text; all rows come, each once."""
    path = tmp_path / "a.log.gz"
    noise = random.Random(1).randbytes(1 << 19).hex().translate(str.maketrans("0123456789", "ghijklmnop"))
    filler = "".join(f"{noise[at : at + 65535]}\n" for at in range(0, len(noise), 65535))
    path.write_bytes(gzip.compress(filler.join(LINES).encode(), 1))
    source, given, turns = ConsoleSource("log", path, [tmp_path]), list[int | None](), 0
    while not turns or source.unread:
        before = source.stats.bytes
        given += [item.step for item in source.poll(1.0) if isinstance(item, RawRow)]
        assert source.stats.bytes - before <= BUDGET + packed.PIECE
        turns += 1
    assert given == [1, 2, 3, 4, 5, 6, 7]
    assert turns > 1


def test_a_log_that_grows_is_unpacked_on_from_where_it_was(tmp_path: Path, unpacked: list[int]) -> None:
    path = tmp_path / "a.log.gz"
    stream = zlib.compressobj(wbits=31)
    source, given = ConsoleSource("log", path, [tmp_path]), list[int | None]()
    for line in LINES:
        with path.open("ab") as file:
            file.write(stream.compress(line.encode()) + stream.flush(zlib.Z_SYNC_FLUSH))
        given += steps(source)
    assert given == [1, 2, 3, 4, 5, 6, 7]
    assert sum(unpacked) == len("".join(LINES))


def test_a_log_that_held_nothing_yet_may_become_a_packed_one(tmp_path: Path) -> None:
    """A writer that compresses holds its first lines back."""
    path = tmp_path / "a.log.gz"
    path.touch()
    source = ConsoleSource("log", path, [tmp_path])
    assert steps(source) == []
    path.write_bytes(gzip.compress("".join(LINES).encode()))
    assert steps(source) == [1, 2, 3, 4, 5, 6, 7]


def test_a_text_that_packs_like_no_log_is_cut_and_said(tmp_path: Path, unpacked: list[int]) -> None:
    """A bomb: 40 KB that hold 40 MiB of one line; what stands before it is read."""
    path = tmp_path / "a.log.gz"
    stream = zlib.compressobj(wbits=31)
    noise = (b"nothing " * 15 + b"nothing\n") * (1 << 13)
    path.write_bytes(stream.compress("".join(LINES).encode()) + b"".join(stream.compress(noise) for _ in range(40)))
    source = ConsoleSource("log", path, [tmp_path])
    assert steps(source) + [row.step for row in source.finish() if isinstance(row, RawRow)] == [1, 2, 3, 4, 5, 6, 7]
    assert sum(unpacked) < 4 << 20
    assert "MiB of its text are read; unpack the file to read all" in source.stats.problem


@pytest.mark.parametrize("name", ["a.log.gz", "a.log.xz"])
def test_no_more_is_unpacked_than_fits_into_memory(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is cut there, behind its last whole line."""
    path, text = tmp_path / name, "".join(LINES)
    path.write_bytes(PACK[name](text))
    monkeypatch.setattr(packed, "LARGEST", 200)
    assert beginning(path, [tmp_path], 1000) == text.encode()[:186]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("name", ["a.log.gz", "a.log.xz"])
def test_a_text_that_is_cut_is_reported_with_file_amount_and_remedy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpacked: list[int]
) -> None:
    """Half a row is no row; the file isn't unpacked again at later polls, and a restart reports it once more."""
    path, rows = tmp_path / name, "".join(LINES)
    filler = (("x" * 1023 + "\n") * 1024)[len(rows) + 28 :]  # the row behind it is cut after "reward 0"
    path.write_bytes(PACK[name](rows + filler + "step 8 | loss 0.1 | reward 0.12\n"))
    monkeypatch.setattr(packed, "LARGEST", 1 << 20)
    source = ConsoleSource("log", path, [tmp_path])
    assert steps(source) == [1, 2, 3, 4, 5, 6, 7]
    for _ in range(5):
        assert list(source.poll(None)) == []
        assert source.stats.problem == f"{path}: only the first 1 MiB of its text are read; unpack the file to read all"
    assert sum(unpacked) <= (1 << 20) + 64
    assert list(source.finish()) == []
    again = ConsoleSource("log", path, [tmp_path], cursor=source.cursor())
    assert list(again.poll(None)) == []
    assert again.stats.problem == source.stats.problem


def test_a_text_that_just_fits_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, text = tmp_path / "a.log.gz", "".join(LINES)
    path.write_bytes(gzip.compress(text.encode()))
    monkeypatch.setattr(packed, "LARGEST", len(text))
    source = ConsoleSource("log", path, [tmp_path])
    assert steps(source) == [1, 2, 3, 4, 5, 6, 7]
    assert not source.stats.problem


def test_a_file_that_can_not_be_unpacked_keeps_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(b"\x1f\x8b" + b"no stream" * 9)
    source = ConsoleSource("log", path, [tmp_path])
    before = descriptors()
    for _ in range(20):
        assert list(source.poll(None)) == []
        assert "compressed and damaged" in source.stats.problem
        assert str(path) in source.stats.problem
    assert descriptors() == before
    path.write_bytes(gzip.compress("".join(LINES).encode()))
    assert steps(source) == [1, 2, 3, 4, 5, 6, 7]


def test_a_file_that_is_damaged_later_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress("".join(LINES).encode()))
    source = ConsoleSource("log", path, [tmp_path])
    assert len(steps(source)) == 7
    before = descriptors()
    with path.open("ab") as file:
        file.write(b"\x1f\x8b" + b"no stream" * 9)
    for _ in range(5):
        assert list(source.poll(None)) == []
        assert "compressed and damaged" in source.stats.problem
    assert descriptors() == before
