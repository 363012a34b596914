"""What collectors wrap around a line comes off, cut lines are joined, and plain text stays as it is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.engine.records import RawRow
from grpo_watch.sources.console.collector_prefixes import LONGEST, Envelope
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.discovery.channels import ChannelContent
from grpo_watch.sources.discovery.sniff import Sniffer

ROW = b"step:3 - a/b:1"


@pytest.mark.parametrize(
    "wrapped",
    [
        b"\x1b[36m(TaskRunner pid=4617)\x1b[0m " + ROW,
        b"\x1b[36m(TaskRunner pid=4617, ip=10.1.51.94)\x1b[0m " + ROW,
        b"[36m(WorkerDict pid=10822, ip=10.1.51.94)[0m " + ROW,
        b"(main_task pid=63313) " + ROW,
        b"(TaskRunnerV1 pid=1) " + ROW + b"\x1b[32m [repeated 3x across cluster]\x1b[0m",
        b"(WorkerDict pid=1) " + ROW + b" [repeated 15x across cluster] (Ray deduplicates logs by default. Set X=0)",
        b"Nov 21 19:06:58 gpu-01 train[4242]: " + ROW,
        b"Nov  1 09:06:58.123456 gpu-01 train.service[4242]: " + ROW,
        b"2026-11-21T19:06:58+0000 gpu-01 python3[9]: " + ROW,
        b"2026-11-21T19:06:58.123456789Z " + ROW,
        b"2026-11-21T19:06:58.123456789Z stdout F " + ROW,
        b"2026-11-21T19:06:58.123456789+02:00 stderr F " + ROW,
        b"2026-11-21T19:06:58.123456789Z stdout F (TaskRunner pid=7) " + ROW,
        b"Nov 21 19:06:58 gpu-01 ray[4242]: \x1b[36m(TaskRunner pid=4617)\x1b[0m " + ROW,
        b'{"log":"' + ROW + b'\\n","stream":"stdout","time":"2026-11-21T19:06:58.1Z"}',
        b'{"log":"(TaskRunner pid=7) ' + ROW + b'\\r\\n","stream":"stderr"}',
        b"\x1b[1m" + ROW + b"\x1b[0m",
        b"[default0]:" + ROW,
        b"[default12]: " + ROW,
        b"[rank0]: " + ROW,
        b"[default0]:[rank0]: " + ROW,
        b"[default0]:\x1b[36m(TaskRunner pid=4617)\x1b[0m " + ROW,
        b'{"__REALTIME_TIMESTAMP": "1795249049000000", "MESSAGE": "(TaskRunner pid=7) ' + ROW + b'", "_PID": "12"}',
        b'{"MESSAGE":"' + ROW + b'","__REALTIME_TIMESTAMP":"1795249049000000"}',
        json.dumps({"__REALTIME_TIMESTAMP": "1", "MESSAGE": list(b"\x1b[36m(W pid=7)\x1b[0m " + ROW)}).encode(),
        json.dumps({"__REALTIME_TIMESTAMP": "1", "MESSAGE": ["first", ROW.decode()]}).encode(),
    ],
)
def test_the_bare_line(wrapped: bytes) -> None:
    assert Envelope().unwrap(wrapped) == [ROW] or Envelope().unwrap(wrapped) == (ROW,)


@pytest.mark.parametrize(
    "plain",
    [
        b"{'loss': 0.1, 'reward': 0.5}",
        b'{"log": "no stream in it"}',
        b"(a remark) in brackets",
        b"[INFO:swift] start",
        b"[rank] 3: text",
        b'{"__REALTIME_TIMESTAMP": "1", "loss": 0.5}',
        b'{"loss": 0.5, "text": "__REALTIME_TIMESTAMP"}',
        b"2026-11-21 19:06:58,123 INFO worker.py:1832 -- Started",
        b" 12%|x | 12/100 [00:04<00:29,  3.05it/s]",
        b"\x1b[A",
        b"Mar has no time: 3",
    ],
)
def test_plain_text_stays(plain: bytes) -> None:
    assert list(Envelope().unwrap(plain)) == [plain]


def test_a_line_cut_by_kubernetes() -> None:
    envelope = Envelope()
    assert not envelope.unwrap(b"2026-11-21T19:06:58.1Z stdout P step:3 - a/")
    assert envelope.open
    assert list(envelope.unwrap(b"2026-11-21T19:06:58.1Z stdout F b:1")) == [ROW]
    assert not envelope.open


def test_a_line_cut_by_docker() -> None:
    envelope = Envelope()
    assert not envelope.unwrap(b'{"log":"step:3 - a/","stream":"stdout"}')
    assert list(envelope.unwrap(b'{"log":"b:1\\n","stream":"stdout"}')) == [ROW]


def test_bars_inside_one_line_of_docker() -> None:
    line = json.dumps({"log": "\r 1%|x\r 2%|x\n", "stream": "stderr"}, separators=(",", ":")).encode()
    assert list(Envelope().unwrap(line)) == [b" 1%|x", b" 2%|x"]


def entry(**fields: object) -> bytes:
    return json.dumps({"__REALTIME_TIMESTAMP": "1795249049000000", **fields}).encode()


def test_a_line_cut_by_journald() -> None:
    envelope = Envelope()
    assert not envelope.unwrap(entry(MESSAGE="step:3 - a/", _LINE_BREAK="line-max"))
    assert envelope.open
    assert list(envelope.unwrap(entry(MESSAGE="b:1", _LINE_BREAK="eof"))) == [ROW]


@pytest.mark.parametrize("message", [None, 5, [1, 2, 300], [[None]], {"a": 1}])
def test_what_journalctl_left_out_is_counted(message: object) -> None:
    envelope = Envelope()
    assert list(envelope.unwrap(entry(MESSAGE=message))) == []
    assert envelope.left_out == 1


TRL_ROWS = [
    f"\r {step * 10}%|x| {step}/10 [00:0{step}<00:09,  1.00s/it]\r{{'loss': 0.1, 'reward': 0.{step}, 'kl': 0.01}}"
    for step in (1, 2, 3)
]


@pytest.mark.parametrize("shape", [str, lambda text: list(text.encode())], ids=["text", "numbers"])
def test_a_console_kept_by_journald_is_found_and_read(tmp_path: Path, shape: Callable[[str], object]) -> None:
    """Carriage returns make journald's JSON write numbers."""
    path = tmp_path / "train.log"
    path.write_bytes(b"\n".join(entry(MESSAGE=shape(row)) for row in TRL_ROWS) + b"\n" + entry(MESSAGE=None) + b"\n")
    assert Sniffer().sniff(path, [tmp_path]).what is ChannelContent.CONSOLE
    source = ConsoleSource("train.log", path, [tmp_path])
    items = [*source.poll(None), *source.finish()]
    rows = [(item.step, item.values["reward"]) for item in items if isinstance(item, RawRow)]
    assert rows == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert source.stats.first_bad == (
        "lost: journalctl wrote null for a line of more than 4096 bytes: write the log with `journalctl --all -o json`"
    )


def test_a_cut_line_is_bounded() -> None:
    envelope = Envelope()
    part = b"2026-11-21T19:06:58.1Z stdout P " + b"x" * 200_000
    for _ in range(10):
        envelope.unwrap(part)
    (rest,) = envelope.flush()
    assert len(rest) == LONGEST


@given(st.binary(max_size=400))
def test_any_bytes_are_taken(data: bytes) -> None:
    envelope = Envelope()
    pieces = [*envelope.unwrap(data), *envelope.flush()]
    assert all(len(piece) <= len(data) for piece in pieces)


@pytest.mark.parametrize("unit", [b"[36m", b"(pid=1 ", b"\x1b[3", b" [repeated 1x across cluster]", b'{"log":"'])
def test_time_is_linear(unit: bytes) -> None:
    """1 MB of what almost is an envelope: milliseconds if each byte is looked at a few times, minutes if quadratic."""
    began = time.perf_counter()
    Envelope().unwrap(unit * (1_000_000 // len(unit)))
    assert time.perf_counter() - began < 60.0


def test_only_a_page_has_its_entities_taken_out() -> None:
    """In any other log they are a model's text, which must not become a row."""
    line = b"{&#39;loss&#39;: 8.0, &#39;kl&#39;: 80.0}<b>"
    log, page = Envelope(), Envelope()
    assert list(log.unwrap(b"Completion: <html>")) + list(log.unwrap(line)) == [b"Completion: <html>", line]
    page.unwrap(b"<!DOCTYPE html>")
    assert list(page.unwrap(line)) == [b"{'loss': 8.0, 'kl': 80.0}"]
    assert list(Envelope(page=page.page).unwrap(line)) == [b"{'loss': 8.0, 'kl': 80.0}"]


def test_a_page_that_a_model_writes_later_makes_no_page() -> None:
    line = b"{&#39;loss&#39;: 8.0, &#39;kl&#39;: 80.0}"
    envelope = Envelope()
    for _ in range(100):
        envelope.unwrap(b"step 1 | reward: 0.5 | kl: 0.01")
    envelope.unwrap(b"<html>")
    assert list(envelope.unwrap(line)) == [line]
