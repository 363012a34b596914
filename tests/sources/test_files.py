"""What of a run folder is opened: regular files that lie in it, also while somebody swaps them for links."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_watch.errors import SourceError
from grpo_watch.sources.files import reading as files
from grpo_watch.sources.files.reading import FixedRoot, inside, open_regular


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a log in a folder, and something precious beside it, in a folder of the same shape."""
    for place, text in (("run", "ours"), ("precious", "secret")):
        (tmp_path / place / "logs").mkdir(parents=True)
        (tmp_path / place / "logs" / "train.log").write_text(text)
    return tmp_path / "run"


def read(path: Path, *roots: Path) -> bytes:
    with os.fdopen(open_regular(path, roots), "rb") as file:
        return file.read()


def test_links_inside_the_roots_are_followed(run: Path) -> None:
    (run / "latest.log").symlink_to("logs/train.log")
    (run.parent / "alias").symlink_to(run)
    assert read(run / "latest.log", run) == b"ours"
    assert read(run.parent / "alias" / "latest.log", run.parent / "alias") == b"ours"
    (run / "out.log").symlink_to(run.parent / "precious" / "logs" / "train.log")
    assert read(run / "out.log", run, run.parent / "precious") == b"secret"
    with pytest.raises(SourceError, match="allow_roots"):
        open_regular(run / "out.log", (run,))


def test_a_file_may_be_its_own_root(run: Path) -> None:
    log = run / "logs" / "train.log"
    (run / "link").symlink_to(log)
    assert read(log, log) == read(run / "link", run / "link") == b"ours"


@pytest.mark.parametrize("swapped", ["logs/train.log", "logs"])
def test_what_is_swapped_for_a_link_after_it_was_looked_at_is_not_opened(
    run: Path, swapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swap comes at the worst moment: every path is resolved, nothing is open yet."""
    look = files.real_path

    def then_swap(path: Path) -> Path:
        seen = look(path)
        if path == run:
            (run / swapped).rename(run / "aside")
            (run / swapped).symlink_to(run.parent / "precious" / swapped)
        return seen

    monkeypatch.setattr(files, "real_path", then_swap)
    with pytest.raises(OSError) as refused:
        read(run / "logs" / "train.log", run)
    assert refused.value.filename == str(run / "logs" / "train.log")
    assert (run / "logs" / "train.log").read_text() == "secret"  # who follows it reads what it should not


def test_a_root_that_is_swapped_for_a_link_holds_nothing(run: Path) -> None:
    root = FixedRoot(run.resolve())
    assert read(run / "logs" / "train.log", root) == b"ours"
    run.rename(run.parent / "aside")
    run.symlink_to(run.parent / "precious")
    with pytest.raises(SourceError, match="allow_roots"):
        open_regular(run / "logs" / "train.log", (root,))
    assert not inside(run / "logs" / "train.log", (root,))
    assert inside(run / "logs" / "train.log", (run,))


@pytest.mark.parametrize("kind", ["folder", "fifo", "loop", "missing"])
def test_what_is_no_regular_file(run: Path, kind: str) -> None:
    path = run / "odd"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    with pytest.raises(SourceError if kind in {"folder", "fifo"} else OSError):
        open_regular(path, (run,))


OPENED_ELSEWHERE = {
    "trackers/database.py": "SQLite opens its file by path",
    "trackers/mlflow_server.py": "the watcher's own copy of a server's run",
    "files/stdin.py": "the watcher's own copy of standard input",
    "trackers/wandb_api/client.py": "what was fetched into a folder of its own",
    "trackers/wandb_api/process.py": "/dev/null",
}


def opening(tree: ast.AST) -> Iterator[str]:
    """The calls that open a file by its path; a class's own methods are none."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            name = ast.unparse(call.func)
            if not re.fullmatch(r"self\.\w+", name) and name.rpartition(".")[2] in {
                "open",
                "read_text",
                "read_bytes",
                "connect",
            }:
                yield name


def test_what_a_run_holds_is_opened_in_one_place() -> None:
    """And each exception still opens something: else it is none."""
    folder = Path(files.__file__).parents[1]
    found = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if list(opening(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == {"files/reading.py", *OPENED_ELSEWHERE}
