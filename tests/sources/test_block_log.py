"""The framing of the logs of wandb and SwanLab: blocks, records over several of them, tails that grow, damage."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.sources.trackers import framing
from grpo_watch.sources.trackers.framing import FileFrame

BLOCK = 32_768
PAYLOADS = st.lists(st.integers(0, 2 * BLOCK).map(lambda size: bytes([size % 251]) * size), max_size=4)


def written(*payloads: bytes) -> bytes:
    """A log by the format's description: LevelDB's, behind wandb's seven bytes."""
    data = bytearray(b":W&B\xe1\xbe\x00")
    for payload in payloads:
        left, first = payload, True
        while True:
            if BLOCK - len(data) % BLOCK < 7:
                data += b"\0" * (BLOCK - len(data) % BLOCK)
            room = BLOCK - len(data) % BLOCK - 7
            part, left = left[:room], left[room:]
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[first, not left]
            data += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            first = False
            if not left:
                break
    return bytes(data)


def read(data: bytes, start: int = 0, *, ended: bool = False) -> list[FileFrame]:
    return list(framing.block_frames(lambda offset, size: data[offset : offset + size], start, ended=ended))


@given(PAYLOADS, st.integers(0, 2 * BLOCK))
@settings(max_examples=40, deadline=None)
def test_whole_records_and_a_tail_that_is_waited_for(payloads: list[bytes], cut: int) -> None:
    data = written(*payloads)
    short = data[: max(0, len(data) - cut)]
    found = read(short)
    assert [frame.payload for frame in found] == payloads[: len(found)]
    assert all(len(written(*payloads[: index + 1])) > len(short) for index in range(len(found), len(payloads)))
    end = found[-1].end if found else 0
    assert [frame.payload for frame in read(data, end)] == payloads[len(found) :]


@given(PAYLOADS.filter(bool))
@settings(max_examples=40, deadline=None)
def test_reading_goes_on_at_any_record(payloads: list[bytes]) -> None:
    data = written(*payloads)
    whole = read(data)
    for index, frame in enumerate(whole):
        assert read(data, frame.start) == whole[index:]


def test_a_damaged_block_costs_the_records_in_it() -> None:
    payloads = [bytes([number]) * 9_000 for number in range(12)]
    data = bytearray(written(*payloads))
    data[BLOCK + 100] ^= 1  # in the second block: the records 3 (begun in the first) to 7
    found = read(bytes(data))
    assert [frame.payload[0] for frame in found if not frame.damage] == [0, 1, 2, 8, 9, 10, 11]
    (damage,) = [frame for frame in found if frame.damage]
    assert damage.damage == "32768 bytes of a block that are no record"


def test_a_cut_off_end_is_reported_when_the_input_has_ended() -> None:
    data = written(b"one", b"two" * 100)
    (one, cut) = read(data[:-5], ended=True)
    assert (one.payload, cut.damage) == (b"one", "a record that is not whole at the end")
    assert read(data[:-5]) == [one]


def test_zeros_in_a_block_that_is_not_whole_yet_are_waited_for() -> None:
    data = written(b"one")
    assert [frame.payload for frame in read(data + b"\0" * 100)] == [b"one"]


def test_an_enormous_record_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "LARGEST", 3 * BLOCK)
    (frame, after) = read(written(b"x" * (3 * BLOCK + 1), b"after"))
    assert (frame.payload, frame.damage, after.payload) == (b"", f"a record of {3 * BLOCK + 1} bytes", b"after")


def test_what_is_no_log_of_wandb() -> None:
    assert framing.begins(lambda offset, size: b":W&"[offset : offset + size], framing.WANDB)
    assert not framing.begins(lambda offset, size: b'{"loss": 1}'[offset : offset + size], framing.WANDB)
