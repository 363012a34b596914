"""A pipe becomes a file that others follow: nothing is lost, the disk bounded, its kind known from the first line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.sources.files.stdin import Spool
from grpo_watch.sources.files.tail import Tail


class Pieces:
    """A stream that gives what it was given, piece by piece, as a pipe does; looks at nothing ahead."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def read1(self, size: int, /) -> bytes:
        assert size >= max(map(len, self.pieces), default=0)
        return self.pieces.pop(0) if self.pieces else b""


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (b'{"step": 1, "loss": 0.5}\n', "stdin.jsonl"),
        (b"{'loss': 0.5}\n", "stdin.log"),
        (b'{"log": "step:1 - a/b:1\\n", "stream": "stdout"}\n', "stdin.log"),
        (b"  0%|          | 0/10\r", "stdin.log"),
        (b"no end", "stdin.log"),
    ],
)
def test_the_first_line_names_the_kind(tmp_path: Path, first: bytes, name: str) -> None:
    """JSON lines, or a console, Docker's objects and Python's dictionaries included."""
    spool = Spool(Pieces(first[:4], first[4:]), tmp_path)
    assert spool.copy() == tmp_path / name
    assert (tmp_path / name).read_bytes() == first
    assert spool.ended
    assert spool.paths == (tmp_path / "stdin.log", tmp_path / "stdin.jsonl")


def test_an_empty_pipe_makes_no_file(tmp_path: Path) -> None:
    spool = Spool(io.BytesIO(), tmp_path)
    assert spool.copy() is None
    assert spool.ended
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=50, deadline=None)
@given(lines=st.lists(st.binary(max_size=30), min_size=1, max_size=60), cuts=st.lists(st.integers(1, 40), max_size=80))
def test_a_follower_gets_every_line_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cuts: list[int]
) -> None:
    """However the pipe cuts it and however often the file starts over (here every 100 bytes)."""
    folder = tmp_path_factory.mktemp("spool")
    data = b"begin\n" + b"".join(line.replace(b"\n", b"").replace(b"\r", b"").strip(b"\0") + b"\n" for line in lines)
    pieces, at = [b"begin\n"], 6
    for cut in [*cuts, len(data)]:
        pieces, at = [*pieces, data[at : at + cut]], at + cut
    found: list[bytes] = []
    tail = Tail(folder / "stdin.log", [folder])

    class Followed(Pieces):
        """Lets the follower read between two pieces, as time passes on a real pipe."""

        def read1(self, size: int, /) -> bytes:
            found.extend(line.data for line in tail.read())
            return super().read1(size)

    Spool(Followed(*filter(None, pieces)), folder, rotate=100).copy()
    found += [line.data for line in tail.finish()]
    assert found == data.split(b"\n")[:-1]
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 2 * (100 + 2 * max(map(len, pieces)))
