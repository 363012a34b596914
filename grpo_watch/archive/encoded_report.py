"""A run's report as bytes, for other processes and for the file of results; without its rows."""

from __future__ import annotations

import msgspec

from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.report.check_document import ChannelReport, RunReport
from grpo_watch.store.codec import decode, encode, storable


class _Encoded(msgspec.Struct, array_like=True):
    snapshot: bytes
    channels: tuple[ChannelReport, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def encode_report(report: RunReport) -> bytes:
    """The report as bytes."""
    written = storable((report.channels, report.problems, report.notes))
    return msgspec.msgpack.encode(_Encoded(encode(report.snapshot), *written))


def decode_report(data: bytes) -> RunReport:
    """The report that ``encode_report`` made these bytes of; raises one of ``store.codec.DECODE_ERRORS`` on damage."""
    read = msgspec.msgpack.decode(data, type=_Encoded)
    return RunReport(decode(RunSnapshot, read.snapshot), read.channels, read.problems, read.notes)
