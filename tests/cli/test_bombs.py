"""Files that are made to take for ever: what `check` reads of each is bounded and reported; other runs are judged."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.cli.main import run_cli
from grpo_watch.engine.records import Tick
from grpo_watch.pipeline import channel_merge
from grpo_watch.report.check_document import Provenance, RunReport
from grpo_watch.report.lines import laid_out
from grpo_watch.report.markdown import markdown
from grpo_watch.report.page import page
from grpo_watch.report.text import render
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.files import decompress

ROWS = "".join(f"step {step} | loss 0.1 | reward 0.{step} | kl 0.01\n" for step in range(10, 40))
STATE = "checkpoint-1000000/trainer_state.json"


def checked(folder: Path) -> list[RunReport]:
    return check_runs(find_runs([str(folder)])[0], load_rules([]), {}, Tick(2e9, live=False))


@pytest.mark.slow
def test_of_forty_bombs_that_are_cut_little_is_unpacked(
    tmp_path: Path, unpacked: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each holds 12 MiB in 25 KB, behind 30 rows; its end is missing."""
    noise = (b"nothing " * 15 + b"nothing\n") * (1 << 13)
    stream = zlib.compressobj(wbits=31)
    bomb = stream.compress(ROWS.encode()) + b"".join(stream.compress(noise) for _ in range(12))
    for number in range(40):
        (tmp_path / f"run{number}").mkdir()
        (tmp_path / f"run{number}" / "train.log.gz").write_bytes(bomb[:-100])
    reports = checked(tmp_path)
    assert [report.snapshot.step for report in reports] == [39] * 40
    most = max(decompress.AT_LEAST, decompress.DENSEST * len(bomb)) + decompress.PIECE
    assert sum(unpacked) < 3 * 40 * most  # it is looked at, found and read
    capsys.readouterr()
    run_cli(["sources", str(tmp_path / "run7")])
    assert "MiB of its text are read; unpack the file to read all" in capsys.readouterr().out


def test_of_a_million_rows_of_state_so_many_are_judged_and_the_report_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(channel_merge, "MOST_ROWS", 500)
    (tmp_path / STATE).parent.mkdir()
    with (tmp_path / STATE).open("w") as file:
        file.write('{"global_step": 1000000, "max_steps": 1000000, "log_history": [{"step": 1, "reward": 0.5}')
        file.writelines(f', {{"step": {step}, "reward": 0.5, "kl": 0.01}}' for step in range(2, 1_000_001))
        file.write("]}")
    (report,) = checked(tmp_path)
    assert report.snapshot.step == 500
    assert "source-unreachable" not in {each.rule for each in report.snapshot.findings}
    limit = "only its first 500 rows are judged; `grpo-watch run` judges all"
    assert [channel.problem for channel in report.channels if channel.problem] == [limit]
    in_chinese = replace(report, snapshot=replace(report.snapshot, language="zh"))
    provenance = Provenance("check", "1", 1e9)
    for said in (
        laid_out(render([in_chinese]), 200),
        markdown([in_chinese], [], provenance),
        page([in_chinese], [], provenance),
    ):
        assert "只判断前 500 行" in said
        assert "only its first" not in said
    assert run_cli(["sources", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert limit in said
    records = int(said.split(" records, only its")[0].rpartition(" ")[2].replace(",", ""))
    assert records < 1_000  # not a million
