"""The framing of event files: TensorFlow's checksums, tails that grow, and damage."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboardX.crc32c import crc32c as their_crc32c

from grpo_watch.sources.trackers import framing
from grpo_watch.sources.trackers.framing import FileFrame

PAYLOADS = st.lists(st.binary(min_size=1, max_size=60), max_size=12)


def framed(payload: bytes) -> bytes:
    """A record by the format's description: length, masked checksum, payload, masked checksum."""
    head = struct.pack("<Q", len(payload))
    return head + struct.pack("<I", masked(head)) + payload + struct.pack("<I", masked(payload))


def masked(data: bytes) -> int:
    check = their_crc32c(data)
    return (((check >> 15) | (check << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def read(data: bytes, start: int = 0, *, ended: bool = False) -> list[FileFrame]:
    return list(framing.tf_frames(lambda offset, size: data[offset : offset + size], start, ended=ended))


def test_the_checksum_of_the_standard() -> None:
    """CRC32C of "123456789" is 0xE3069283 (RFC 3720, appendix B.4 has more); rotated and shifted as TFRecord does."""
    assert framing.masked(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


@given(PAYLOADS, st.integers(0, 40))
def test_whole_records_and_a_tail_that_is_waited_for(payloads: list[bytes], cut: int) -> None:
    data = b"".join(map(framed, payloads))
    short = data[: max(0, len(data) - cut)]
    found = read(short)
    whole = [
        payload
        for index, payload in enumerate(payloads)
        if len(b"".join(map(framed, payloads[: index + 1]))) <= len(short)
    ]
    assert [frame.payload for frame in found] == whole
    assert not any(frame.damage for frame in found)
    end = found[-1].end if found else 0
    assert [frame.payload for frame in read(data, end)] == payloads[len(whole) :]
    assert bool(read(short, end, ended=True)) == (end < len(short))


@given(PAYLOADS.filter(bool), st.data())
def test_one_damaged_byte_costs_at_most_the_record_it_is_in(payloads: list[bytes], data: st.DataObject) -> None:
    records = [*map(framed, payloads), framed(b"last")]
    whole = bytearray(b"".join(records))
    at = data.draw(st.integers(0, len(whole) - len(records[-1]) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    found = read(bytes(whole))
    assert sum(bool(frame.damage) for frame in found) == 1
    hit = next(index for index in range(len(records)) if at < len(b"".join(records[: index + 1])))
    assert [frame.payload for frame in found if not frame.damage] == [
        payload for index, payload in enumerate([*payloads, b"last"]) if index != hit
    ]


def test_a_damaged_length_with_nothing_behind_it_stops() -> None:
    data = framed(b"one") + b"\xff" * 40
    assert [frame.payload for frame in read(data)] == [b"one"]
    assert framing.stuck(lambda offset, size: data[offset : offset + size], len(framed(b"one")))
    (_, left) = read(data, ended=True)
    assert left.damage == "40 bytes at the end that are no whole record"


def test_the_newest_record_may_still_be_on_its_way() -> None:
    """On a network file system the length may show before the bytes: zeros are no damage yet."""
    one, two = framed(b"one"), framed(b"two!")
    hole = one + two[:12] + b"\0" * (len(two) - 12)
    assert [frame.payload for frame in read(hole)] == [b"one"]
    assert [frame.payload for frame in read(one + two)] == [b"one", b"two!"]
    assert [frame.damage for frame in read(hole + framed(b"three"))] == ["", "a record with a wrong checksum", ""]


@pytest.mark.slow
def test_a_record_of_many_mebibytes_is_passed_over_unread() -> None:
    asked: list[int] = []
    data = framed(b"x" * (framing.LARGEST_EVENT + 1)) + framed(b"after")

    def watched(offset: int, size: int) -> bytes:
        asked.append(size)
        return data[offset : offset + size]

    big, after = framing.tf_frames(watched, 0)
    assert (big.payload, big.damage, after.payload) == (b"", "a record of 8 MiB", b"after")
    assert max(asked) <= 64 << 10
