"""The benchmark of live reporting: a recorded run is written again in order, and what comes is counted."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT), str(ROOT / "benchmarks"), *sys.path])


def test_a_recorded_run_is_written_in_the_order_of_its_steps(tmp_path: Path) -> None:
    from benchmarks.live import parts_of, replay  # noqa: PLC0415  after the path

    run = tmp_path / "recorded"
    (run / "checkpoint-2").mkdir(parents=True)
    (run / "args.json").write_text("{}")
    log = b"".join(json.dumps({"step": step, "loss": 0.1}).encode() + b"\n" for step in range(1, 5))
    (run / "log.jsonl.gz").write_bytes(gzip.compress(log))
    (run / "checkpoint-2" / "model.bin").write_bytes(b"weights")
    (run / "completions.jsonl").write_text('{"step": ["1", "1"]}\n{"step": ["2", "2"]}\n')  # not all were kept
    assert [(part.path.name, part.step) for part in parts_of(run)] == [
        ("args.json", None),
        ("completions.jsonl", 1),
        ("log.jsonl", 1),
        ("model.bin", 2),
        ("completions.jsonl", 2),
        ("log.jsonl", 2),
        ("log.jsonl", 3),
        ("log.jsonl", 4),
    ]
    again = replay(run, tmp_path / "again", 0.0)
    assert (tmp_path / "again" / "log.jsonl").read_bytes() == log
    assert again.completed(2) <= again.completed(4)


def test_a_finding_that_nobody_got_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.live import Received, Replayed, report  # noqa: PLC0415

    run = Replayed(tmp_path / "000-run", [(1, 100.0), (2, 110.0)])
    received = Received()
    received.take({"alerts": [{"run": "000-run/output", "rule": "greedy-decoding", "status": "firing"}]})
    received.came = dict.fromkeys(received.came, 111.5)
    code = report([(run, "greedy-decoding", 2), (run, "constant-reward", 2)], received)
    out = capsys.readouterr().out
    assert code == 1
    assert "reported 1 of 2 root findings" in out
    assert "late 1.5 s: 000-run: greedy-decoding, step 2" in out
    assert "missed: 000-run: constant-reward, step 2" in out
