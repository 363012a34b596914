"""A bad line is counted and passed over wherever it stands, also at the beginning that a file is recognised by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_watch.engine.records import RawRow
from grpo_watch.sources.base import Skip, Source
from grpo_watch.sources.discovery.discover import ChannelContent, discover
from grpo_watch.sources.rows.jsonl import JsonlSource
from grpo_watch.sources.rows.tables import TableSource

ROWS = [{"step": n, "loss": 0.1, "reward": n / 100, "kl": 0.01} for n in range(1, 31)]
JSONL = "".join(f"{json.dumps(row)}\n" for row in ROWS)
CSV = "step,loss,reward,kl\n" + "".join(",".join(map(str, row.values())) + "\n" for row in ROWS)
BAD = {
    "a million digits": "1" * 1_000_000,
    "a number of a million digits": f'{{"step": {"1" * 1_000_000}}}',
    "100,000 lists": "[" * 100_000,
    "100,000 objects": '{"a":' * 100_000,
    "keys of 1 MB": "\n".join(json.dumps({letter * (1 << 20): 1}) for letter in "abc"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize(("name", "text"), [("metrics.jsonl", JSONL), ("metrics.csv", CSV)])
def test_a_bad_first_line_hides_no_rows(name: str, text: str, bad: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(f"{bad}\n{text}")
    (run,) = discover(tmp_path)
    expected = ChannelContent.JSONL if name.endswith("jsonl") else ChannelContent.TABLE
    assert expected in {channel.what for channel in run.channels}
    source: Source = (JsonlSource if name.endswith("jsonl") else TableSource)(name, path, [tmp_path])
    rows = [item for item in source.poll(None) if isinstance(item, RawRow)]
    assert [row.step for row in rows] == list(range(1, 31))
    assert sum(source.stats.skipped.values()) >= bad.count("\n") + 1


def test_a_key_without_end_is_no_metric(tmp_path: Path) -> None:
    """Each row would bring another megabyte of names to remember."""
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({**row, f"{n}" * 100_000: 1.0}) + "\n" for n, row in enumerate(ROWS[:5])))
    source = JsonlSource(path.name, path, [tmp_path])
    rows = [item for item in source.poll(None) if isinstance(item, RawRow)]
    assert [set(row.values) for row in rows] == [{"loss", "reward", "kl"}] * 5
    assert source.stats.skipped == {Skip.BAD_VALUE: 5}


def test_parts_that_are_read_out_of_order_report_no_lost_row(tmp_path: Path) -> None:
    """Rows 4 to 6 come first, then 1 to 3, then 7 to 9, each in a file that takes the name of the one before."""
    log = tmp_path / "metrics.jsonl"
    source, read = JsonlSource(log.name, log, [tmp_path]), list[int | None]()
    for first in (4, 1, 7):
        part = tmp_path / "next"
        part.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS[first - 1 : first + 2]))
        part.rename(log)
        read += [item.step for item in source.poll(None) if isinstance(item, RawRow)]
    assert read == [4, 5, 6, 1, 2, 3, 7, 8, 9]
    assert not source.stats.skipped
    source.close()
