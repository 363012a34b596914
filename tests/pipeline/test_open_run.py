"""Which channels a run is opened with."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.pipeline import open_run
from grpo_watch.sources.discovery.discover import ChannelContent, FoundChannel, FoundRun


@pytest.mark.parametrize("missing", ["", "Parquet is not read without pyarrow"])
def test_dumps_that_can_not_be_read_leave_the_tables_of_the_console(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_run, "without_parquet", lambda: missing)
    console = FoundChannel("train.log", ChannelContent.CONSOLE, tmp_path / "train.log")
    dumps = FoundChannel("completions", ChannelContent.COMPLETIONS_PARQUET, tmp_path / "completions")
    found = FoundRun(tmp_path, "run", None, (dumps, console))
    silenced = {} if missing else {"train.log": frozenset({"completions"})}
    assert open_run.without_tables(found) == silenced
