"""A folder without a run: files that look like logs are named with what is wrong with them, at little cost."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.sources.discovery import unread
from grpo_watch.sources.discovery.discover import Discoverer
from tests.support.bundles import RECORDED
from tests.support.live import Live

ROWS = "".join(f"loss=0.{n} acc=0.5 lr=0.01\n" for n in range(30))


def problems(folder: Path) -> list[str]:
    finder = Discoverer()
    assert finder.discover(folder) == []
    return list(finder.problems)


@pytest.mark.parametrize(
    ("name", "log", "shown"),
    [
        ("run.zip", "out/train.jsonl", "out/train.jsonl"),
        ("run.zip", "-lr[1]*.jsonl", r"'-lr\[1]\*.jsonl'"),  # unzip takes it for a pattern
        ("run.tar.gz", "out/train.jsonl", "-- out/train.jsonl"),
        ("run.tar.gz", "-lr[1]*.jsonl", "-- '-lr[1]*.jsonl'"),
    ],
)
def test_an_archive_names_the_largest_log_in_it_and_how_to_read_it(
    name: str,
    log: str,
    shown: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = "".join(json.dumps({"step": n, "reward": n / 16, "kl": 0.01, "note": "x" * n}) + "\n" for n in range(40))
    (tmp_path / "train.jsonl").write_text(rows)
    (tmp_path / "a.py").write_text("")
    path = tmp_path / name
    if name.endswith("zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.write(tmp_path / "train.jsonl", log)
            packed.write(tmp_path / "a.py", "a.py")
    else:
        with tarfile.open(path, "w:gz") as members:
            members.add(tmp_path / "a.py", "a.py")
            members.add(tmp_path / "train.jsonl", log)
    (tmp_path / "train.jsonl").unlink()
    how = f"{path} {shown} | grpo-watch check -"
    (said,) = problems(tmp_path)
    assert how in said
    assert run_cli(["check", str(path)]) == 3
    assert how in "".join(capsys.readouterr())
    monkeypatch.setenv("GRPO_WATCH_LANGUAGE", "zh")
    monkeypatch.chdir(tmp_path)  # two long paths in a sentence leave it in English
    assert run_cli(["check", name]) == 3
    said = "".join(capsys.readouterr())
    assert "：这是压缩包：" in said
    assert f"{name} {shown} | grpo-watch check -" in said


UNREAD = "no metric row could be parsed; the first line that looks like one is "


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.log", ROWS, UNREAD + "line 1: loss=0.0, acc=0.5, lr=0.01"),
        ("x.out", "loading\n" + ROWS, UNREAD + "line 2: loss=0.0, acc=0.5, lr=0.01"),
        (
            "metrics.jsonl",
            "".join(f'{{"iteration": {n}, "avg_r": 0.5, "kl_to_ref": 0.01}}\n' for n in range(9)),
            UNREAD + "line 1: iteration=0, avg_r=0.5, kl_to_ref=0.01",
        ),
        ("x.log", "".join(f"┃ step {n} ┃ loss 0.1 ┃\n" for n in range(9)), UNREAD + "line 1: step=0, loss=0.1"),
        (
            "x.log",
            "(Trainer pid=1) step=0 | policy/loss 0.0 | acc/mean 0.5 | lr 1e-6\n" * 9,
            UNREAD + "line 1: step=0, policy/loss=0.0, acc/mean=0.5, lr=1e-6",
        ),
        (
            "x.log",
            "".join(f"t={n} fitness=0.{n} loss=0.1 lr=1e-6\n" for n in range(10, 30)),
            UNREAD
            + "line 1: t=10, fitness=0.10, loss=0.1, lr=1e-6; if fitness is the reward, check the file with `runs",
        ),
        ("m.csv", "when,avg_r,kl_to_ref\n0,0.3,0.0\n", "no column of its header is known"),
    ],
)
def test_a_log_in_an_unknown_notation_is_named_with_its_first_row(
    name: str, content: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    (line,) = problems(tmp_path)
    assert line.startswith(f"{tmp_path / name}: {said}")


def test_zstd_comes_with_the_command_that_reads_it(tmp_path: Path) -> None:
    """gzip, xz and UTF-16 are read as they are, and looked at like any other log."""
    gz, xz, zst, wide = (tmp_path / name for name in ("a.log.gz", "b.log.xz", "c c.jsonl.zst", "d.log"))
    gz.write_bytes(gzip.compress(ROWS.encode()))
    xz.write_bytes(lzma.compress(ROWS.encode()))
    zst.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    wide.write_bytes(ROWS.encode("utf-16"))
    unread = UNREAD + "line 1: loss=0.0, acc=0.5, lr=0.01"
    assert problems(tmp_path) == [
        f"{gz}: {unread}",
        f"{xz}: {unread}",
        f"{zst}: compressed; zstdcat '{zst}' | grpo-watch check -",
        f"{wide}: {unread}",
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.log", "hello world\n" * 99),
        ("x.log", "beta=0.04, learning_rate=1e-6, num_generations=8\nloading\n"),  # settings: printed once
        ("data.csv", "name,age,height\na,1,2\n"),
        ("notes.py", ROWS),
        ("x.log", ""),
    ],
)
def test_other_files_are_not_named(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert problems(tmp_path) == []


def test_nothing_is_reported_where_a_run_was_found(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(ROWS)
    (tmp_path / "train.log").write_text("{'loss': '-0.1877', 'reward': '0.49'}\n" * 3)
    finder = Discoverer()
    assert len(finder.discover(tmp_path)) == 1
    assert finder.problems == ()


def test_five_are_named_and_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while it grows: it is still the same notation."""
    for number in range(9):
        (tmp_path / f"{number}.log").write_text(ROWS)
    finder, opened = Discoverer(), []
    real = unread.unread_row
    monkeypatch.setattr(unread, "unread_row", lambda path, roots: opened.append(path.name) or real(path, roots))
    for _ in range(3):
        finder.discover(tmp_path)
        assert [line.split(":")[0] for line in finder.problems] == [str(tmp_path / f"{n}.log") for n in range(5)]
        with (tmp_path / "3.log").open("a") as file:
            file.write(ROWS)
    assert opened == [f"{number}.log" for number in range(5)]


def test_what_can_not_be_opened_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.log")
    (tmp_path / "b.log").write_text(ROWS)
    assert [line.split(": ")[0] for line in problems(tmp_path)] == [str(tmp_path / "b.log")]


def test_a_log_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run as root, whom no mode keeps out."""
    (tmp_path / "train.log").write_text(ROWS)

    def refused(path: Path, *_: object) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(unread, "beginning", refused)
    assert problems(tmp_path) == [f"{tmp_path / 'train.log'}: can't be read: Permission denied"]


def test_sources_and_check_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.log").write_text(ROWS)
    said = f"{tmp_path / 'x.log'}: {UNREAD}line 1: loss=0.0, acc=0.5, lr=0.01"
    for command, code in (("sources", 3), ("check", 3)):
        assert run_cli([command, str(tmp_path), "--format", "json"]) == code
        assert json.loads(capsys.readouterr().out)["problems"] == [said]
    run_cli(["sources", str(tmp_path)])
    assert capsys.readouterr().out.splitlines()[-1] == f"no run found in {tmp_path}"


def test_the_daemon_reports_it_on_its_page_and_once_in_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    live = Live(folder, tmp_path / "state", now=RECORDED)
    live.settle()
    assert live.daemon.snapshot().problems == ()
    (folder / "x.log").write_text(ROWS)
    said = f"{folder / 'x.log'}: {UNREAD}line 1: loss=0.0, acc=0.5, lr=0.01"
    for _ in range(3):
        live.settle()
        with (folder / "x.log").open("a") as file:
            file.write(ROWS)
    assert live.daemon.snapshot().problems == (said,)
    reported = [record.__dict__["fields"] for record in caplog.records if record.message == "not read"]
    assert reported == [{"problem": said}]
    (folder / "x.log").write_text("{'loss': '-0.1877', 'reward': '0.49'}\n" * 3)
    live.settle()
    assert live.daemon.snapshot().problems == ()
    live.close()


def test_rows_of_jsonl_are_known_by_two_metrics_of_updates_beside_a_step(tmp_path: Path) -> None:
    """A reward of one's own name, as a fork of ROLL writes it: the folder was "no run", the file itself was read."""
    own = {"actor/entropy": 0.6, "length/mean": 450.5, "actor/lr": 1e-6, "reward/hard_pass_rate": 0.4}
    rows = (json.dumps({"system/step": n, **own}) + "\n" for n in range(1, 9))
    (tmp_path / "metrics.jsonl").write_text("".join(rows))
    (found,) = Discoverer().discover(tmp_path)
    assert found.channels[0].name == "metrics.jsonl"


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("results.jsonl", {"accuracy": 0.4, "mean_length": 300, "entropy": 0.5}),
        ("eval_metrics.jsonl", {"solved": 0.4, "mean_length": 300, "entropy": 0.5, "mean_kl": 0.1}),
        ("val.jsonl", {"solved": 0.4, "entropy": 0.5, "clip_ratio": 0.9}),
    ],
)
def test_the_numbers_of_an_evaluation_are_no_rows_of_training(name: str, row: dict[str, float], tmp_path: Path) -> None:
    (tmp_path / name).write_text("".join(json.dumps({"step": n, **row}) + "\n" for n in range(1, 9)))
    assert Discoverer().discover(tmp_path) == []
