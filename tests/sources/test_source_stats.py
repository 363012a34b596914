"""What a source says of the first piece that it passed over."""

from __future__ import annotations

from grpo_watch.sources.base import Skip, SourceStats


def test_a_long_path_hides_neither_the_file_nor_what_is_wrong() -> None:
    path = "/mnt/" + "/".join(["a folder with a long name"] * 20) + "/launch.yaml"
    stats = SourceStats()
    stats.skip(Skip.BAD_VALUE, f"{path}: 1048579 bytes, more than the limit of 1048576")
    assert stats.first_bad.startswith("bad-value: /mnt/a folder")
    assert stats.first_bad.endswith("/launch.yaml: 1048579 bytes, more than the limit of 1048576")
    assert len(stats.first_bad) == 303


def test_only_the_first_is_kept_and_whole_where_it_is_short() -> None:
    stats = SourceStats()
    for detail in ("x" * 289, "another"):
        stats.skip(Skip.BAD_VALUE, detail)
    assert stats.first_bad == "bad-value: " + "x" * 289
    assert stats.skipped == {Skip.BAD_VALUE: 2}
