"""How much there is to read, which decides on the number of processes."""

from __future__ import annotations

from pathlib import Path

from grpo_watch.children.pool import size_of


def test_sizes_are_of_files_and_of_folders_of_files(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"12345")
    (tmp_path / "link").symlink_to("nowhere")
    assert size_of(tmp_path / "a") == 5
    assert size_of(tmp_path) == 10 + len("nowhere")
    assert size_of(tmp_path / "none") == 0
