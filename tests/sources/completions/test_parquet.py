"""What a Parquet dump costs: values that repeat, long ones, files that claim more than is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpo_watch.sources.base import KeptTexts, Skip
from grpo_watch.sources.completions.completion_folder import DumpResult, read_unchanged
from grpo_watch.sources.completions.parquet import BATCH, MAX_BATCH, read_dump

LONG = 400_000


def written(path: Path, prompts: list[Any], completions: list[Any], **how: Any) -> Path:
    rewards = [float(number % 2) for number in range(len(prompts))]
    pq.write_table(pa.table({"prompt": prompts, "completion": completions, "accuracy": rewards}), path, **how)
    return path


def read(path: Path) -> DumpResult:
    return read_unchanged(path, (path.parent,), read_dump, 8, KeptTexts.EXCERPT)


@pytest.mark.parametrize("how", [{}, {"compression": "zstd"}, {"data_page_version": "2.0"}, {"use_dictionary": False}])
def test_long_values_that_repeat_are_decoded_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    """200 times one text of 400,000 bytes: 80 MB from next to none."""
    path = written(tmp_path / "d.parquet", [f"p{at // 8}" for at in range(200)], ["c" * LONG] * 200, **how)
    decoded: list[int] = []
    plain = pq.ParquetFile.iter_batches

    def counted(self: Any, **asked: Any) -> Any:
        for batch in plain(self, **asked):
            decoded.append(batch.nbytes)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    grouping = read(path).grouping
    assert grouping is not None
    assert [(group.size, group.unique) for group in grouping.groups] == [(8, 1)] * 25
    assert max(decoded) < 1.1 * BATCH * LONG < MAX_BATCH


def test_rows_above_the_bound_are_not_made_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_watch.sources.completions.parquet.MAX_BATCH", 2 * LONG)
    path = written(tmp_path / "d.parquet", ["p"] * 80, ["c" * 3 * LONG] + ["d"] * 79, compression="none")
    found = read(path)
    assert (found.grouping, found.skip) == (None, Skip.TOO_LONG)
    assert "a row of 1200" in found.failure


def test_a_value_that_fits_into_a_thousandth_of_its_size_is_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside seventy-nine short ones; a few kilobytes say so before they become 100 MB."""
    path = written(tmp_path / "d.parquet", ["p"] * 80, ["c" * 100_000_000] + ["d"] * 79, compression="zstd")
    monkeypatch.delattr(pq.ParquetFile, "iter_batches")
    found = read(path)
    assert (found.grouping, found.skip) == (None, Skip.TOO_LONG)
    assert "bytes that become 1000" in found.failure


def test_long_rows_are_decoded_fewer_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents' rows of more than a megabyte are read, and a file of a few bytes doesn't become 64 times its text."""
    monkeypatch.setattr("grpo_watch.sources.completions.parquet.MAX_BATCH", 3 * LONG)
    monkeypatch.setattr("grpo_watch.sources.completions.parquet.DECODED", 2 * LONG)
    monkeypatch.setattr("grpo_watch.sources.completions.parquet.PACKED", LONG)  # these are of one letter each
    prompts = [f"p{at // 8}" for at in range(16)]
    for texts in (["c" * LONG] * 16, [f"{at:x}" * LONG for at in range(16)]):
        grouping = read(written(tmp_path / "d.parquet", prompts, texts, compression="zstd")).grouping
        assert grouping is not None
        assert [group.size for group in grouping.groups] == [8, 8]


def test_a_dump_that_says_that_it_is_too_large_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "d.parquet", ["p"] * 8, [f"{number}" * LONG for number in range(8)], compression="zstd")
    monkeypatch.setattr("grpo_watch.sources.completions.parquet.MAX_BYTES", LONG)
    assert read(path).failure == f"d.parquet: more than {LONG} bytes uncompressed"
