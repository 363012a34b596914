"""Protobuf messages as Google's own library writes them, and bytes that are none."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary

from grpo_watch.sources.trackers import framing


def test_fields_of_a_real_message() -> None:
    message = Event(wall_time=1.5, step=300, summary=Summary(value=[Summary.Value(tag="a", simple_value=0.25)]))
    found = dict(framing.fields(message.SerializeToString()))
    assert framing.double(found[1]) == 1.5
    assert found[2] == 300
    ((number, value),) = framing.fields(found[5])
    assert number == 1
    assert dict(framing.fields(value)) == {1: b"a", 2: struct.pack("<f", 0.25)}


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_step_comes_back(step: int) -> None:
    found = dict(framing.fields(Event(step=step).SerializeToString()))
    assert framing.signed(found.get(2, 0)) == step


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",  # a counted field without a count
        b"\x0a\x05abc",  # shorter than it says
        b"\x09abc",  # a double of three bytes
        b"\x0b",  # groups, which are long gone
        b"\x80" * 11,  # a number without an end
    ],
)
def test_bytes_that_are_no_message(data: bytes) -> None:
    with pytest.raises(ValueError):
        list(framing.fields(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Nothing but ValueError comes out of hostile bytes."""
    try:
        sizes = [len(value) if isinstance(value, bytes) else 0 for _, value in framing.fields(data)]
    except ValueError:
        return
    assert sum(sizes) <= len(data)


def test_values_of_the_wrong_kind_are_nothing() -> None:
    assert framing.double(3) is None
    assert framing.single(b"12345678") is None
    assert not framing.text(3)
    assert framing.text(b"\xff") == "�"
