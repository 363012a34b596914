"""``grpo-watch digest``: schema, exit codes and text of the comparison."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from safetensors import numpy as library

from grpo_watch.cli.digest import as_text
from grpo_watch.cli.main import run_cli
from grpo_watch.config.fields import bytes_per_second
from grpo_watch.engine.records import TensorDigest
from grpo_watch.report.lines import Line
from tests.support import torch_file as torch


def save(folder: Path, name: str = "model.safetensors", **tensors: Any) -> Path:
    folder.mkdir(exist_ok=True)
    library.save_file({key: np.asarray(value, np.float32) for key, value in tensors.items()}, folder / name)
    return folder


def run(capsys: pytest.CaptureFixture[str], *paths: Path) -> tuple[int, dict[str, Any]]:
    code = run_cli(["digest", *map(str, paths), "--format", "json"])
    written = capsys.readouterr()
    assert written.err == ""
    return code, json.loads(written.out)


def text(capsys: pytest.CaptureFixture[str], *paths: Path) -> tuple[int, str]:
    code = run_cli(["digest", *map(str, paths)])
    return code, capsys.readouterr().out


def test_one_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Judged without its framework's marker, because it was named."""
    code, answer = run(capsys, save(tmp_path / "a", b=[1.0, 2.0], a=[0.0]))
    assert code == 0
    assert answer == {
        "schema": "grpo-watch/digest/1",
        "tensors": 2,
        "checksums": {
            "a": xxhash.xxh3_128_hexdigest(np.zeros(1, np.float32).tobytes()),
            "b": xxhash.xxh3_128_hexdigest(np.array([1, 2], np.float32).tobytes()),
        },
        "problems": [],
    }


def test_what_changed_between_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = save(tmp_path / "a", same=[1.0], moved=[1.0], old=[1.0])
    second = save(tmp_path / "b", same=[1.0], moved=[2.0], new=[1.0])
    code, answer = run(capsys, first, second)
    assert code == 1
    assert answer == {
        "schema": "grpo-watch/digest/1",
        "tensors": 3,
        "changed": ["moved"],
        "added": ["new"],
        "removed": ["old"],
        "unchanged": 1,
        "problems": [],
    }
    assert text(capsys, first, second) == (
        1,
        "changed  moved\nadded    new\nremoved  old\n1 of 2 tensors changed; 1 added, 1 removed\n",
    )


def test_same_bytes_in_other_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(tmp_path / "a", x=[1.0], y=[2.0])
    code, answer = text(
        capsys, folder, save(tmp_path / "b", "other.safetensors", x=[1.0], y=[2.0]) / "other.safetensors"
    )
    assert (code, answer) == (0, "all 2 tensors are byte-identical; 0 added, 0 removed\n")


def test_text_of_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "a", w=np.zeros((2, 3))) / "model.safetensors"
    checksum = xxhash.xxh3_128_hexdigest(bytes(24))
    assert text(capsys, path) == (0, f"{checksum}  F32 2×3  w  all zero\n1 tensors\n")


@pytest.mark.slow
def test_text_of_very_many_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tensor is one plain line; a few lines only are laid out, however many tensors and problems there are."""
    printed: list[str] = []
    wrapped = Line.wrapped

    def counted(self: Line, width: int, *, color: bool) -> Iterator[str]:
        printed.append(self.plain)
        return wrapped(self, width, color=color)

    monkeypatch.setattr(Line, "wrapped", counted)
    tensors = {f"experts.{number:06}.w": TensorDigest("BF16", (0,), f"{number:032x}") for number in range(120_000)}
    problems = [{"file": "a", "message": f"{name}: no elements"} for name in tensors]
    answer = {"tensors": len(tensors), "checksums": {}, "problems": problems}
    lines = as_text(answer, tensors, color=False).splitlines()
    assert lines[0] == "00000000000000000000000000000000  BF16 0  experts.000000.w"
    assert lines[119_999].endswith("experts.119999.w")
    assert lines[120_000] == "120000 tensors"
    assert lines[-1] == "… and 119960 more (--format json lists all)"
    assert len(printed) < 100


def test_half_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = save(tmp_path / "a", w=np.ones(100))
    path = save(tmp_path / "b", w=np.ones(100)) / "model.safetensors"
    os.truncate(path, 100)
    code, answer = run(capsys, whole, path.parent)
    assert code == 3
    (problem,) = answer["problems"]
    assert problem["file"] == str(path)
    assert problem["message"].startswith("truncated: header says ")
    code, shown = text(capsys, whole, path)
    assert code == 3
    assert shown.splitlines()[-1].startswith(f"problem: {path}: truncated: header says ")
    assert "byte-identical" not in shown


def test_weights_that_can_not_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(tmp_path / "a", broken=[1.0, np.nan, np.inf], empty=np.zeros((0, 2)), fine=[1.0])
    code, answer = run(capsys, folder)
    assert code == 3
    assert [problem["message"] for problem in answer["problems"]] == [
        "broken: 2 of 3 elements are not finite",
        "empty: no elements [0, 2] (ZeRO-3 saved without gathering)",
    ]
    assert answer["tensors"] == 3


@pytest.mark.parametrize("name", ["pytorch_model.bin", "notes.txt", ""])
def test_folder_without_readable_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    if name:
        (tmp_path / name).write_bytes(b"x")
    code, answer = run(capsys, tmp_path)
    assert code == 3
    assert answer["tensors"] == 0
    expected = "no file of torch.save" if name.endswith("bin") else "contains no supported weight file"
    assert expected in answer["problems"][0]["message"]


def test_link_out_of_the_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = save(tmp_path / "other", w=[1.0])
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "model.safetensors").symlink_to(other / "model.safetensors")
    code, answer = run(capsys, tmp_path / "a")
    assert code == 3
    assert "out of the run folder" in answer["problems"][0]["message"]


def test_named_link_is_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(tmp_path / "checkpoint-1", w=[1.0])
    (tmp_path / "last-checkpoint").symlink_to(folder)
    code, answer = run(capsys, tmp_path / "last-checkpoint", folder)
    assert (code, answer["unchanged"]) == (0, 1)


def test_links_that_lead_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, target in (("dangling", "nowhere"), ("loop", "loop")):
        (tmp_path / name).symlink_to(target)
        code, answer = run(capsys, tmp_path / name)
        assert code == 3
        assert len(answer["problems"]) == 1


@pytest.mark.parametrize(("name", "shown"), [("first", "first"), ("[red]\x1b[31m", "[red]\\x1b[31m")])
def test_people_see_which_checkpoint_is_read(
    name: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal, whatever a folder is called; the line is erased at the end."""
    save(tmp_path / name, a=[1.0])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert run_cli(["digest", str(tmp_path / name)]) == 0
    assert capsys.readouterr().err == f"\r\x1b[K{shown}  0 MB read\r\x1b[K"


def test_progress_stays_in_one_line_of_a_narrow_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that wraps would not be erased; wide characters take two columns."""
    save(tmp_path / ("结" * 20), a=[1.0])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "22")
    assert run_cli(["digest", str(tmp_path / ("结" * 20))]) == 0
    assert capsys.readouterr().err == f"\r\x1b[K{'结' * 10}\r\x1b[K"


def test_missing_path_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["digest", str(tmp_path / "missing")]) == 2
    assert "no such file or folder" in capsys.readouterr().err


def test_control_characters_in_names_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, shown = text(capsys, save(tmp_path / "a", **{"w\x1b[31m\n[bold]": [1.0]}))
    assert "\x1b" not in shown
    assert r"w\x1b[31m\n[bold]" in shown


def test_torch_file_equals_the_same_weights_as_safetensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    torch.state_dict(tmp_path / "pytorch_model.bin", {"w": array})
    save(tmp_path / "b", w=array)
    assert text(capsys, tmp_path / "pytorch_model.bin", tmp_path / "b") == (
        0,
        "all 1 tensors are byte-identical; 0 added, 0 removed\n",
    )


def test_files_compared_as_a_whole_are_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__0_0.distcp").write_text(name)
    code, shown = text(capsys, tmp_path / "a", tmp_path / "b")
    assert code == 1
    assert "1 of 1 files changed (compared as whole files: proves nothing about the weights)" in shown


def test_optimizer_and_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        for rank in range(2):
            value = {"w": np.full(2, rank, np.float32)}
            torch.state_dict(tmp_path / name / f"model_world_size_2_rank_{rank}.pt", value, ("Replicate",))
            moments = torch.mapping({"state": torch.mapping({"m": torch.tensor("0", value["w"])})})
            path = tmp_path / name / f"optim_world_size_2_rank_{rank}.pt"
            torch.archive(path, torch.whole(moments), {"0": value["w"].tobytes()})
    code, answer = run(capsys, tmp_path / "a", tmp_path / "b")
    assert code == 1
    assert answer["optimizer"] == {"moments": "same"}
    assert answer["ranks_apart"] == ["w@0/2"]
    shown = text(capsys, tmp_path / "a", tmp_path / "b")[1]
    assert "the optimizer's moments: same\n" in shown
    assert "apart    w@0/2: ranks that must agree hold different bytes\n" in shown


@pytest.mark.parametrize(
    ("text", "rate"), [("200MB", 2e8), ("1.5G", 1.5e9), ("1000000", 1e6), ("10 KiB/s", 1e4), ("2t", 2e12)]
)
def test_rates(text: str, rate: float) -> None:
    assert bytes_per_second(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "0", "-1", "0MB", "1e9", "5 bananas"])
def test_no_rates(text: str) -> None:
    with pytest.raises(ValueError, match="not a rate"):
        bytes_per_second(text)


def test_large_file_that_is_cut_off_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says so in one line and ends with 3."""
    path = tmp_path / "model.safetensors"
    library.save_file(
        {name: np.ones(size, np.float32) for name, size in {"a": 99, "b": 10**6, "c": 2 * 10**7}.items()}, path
    )
    original, calls = xxhash.xxh3_128, iter(range(9))

    def cut() -> Any:
        if next(calls):
            os.truncate(path, 100_000)
        return original()

    monkeypatch.setattr(xxhash, "xxh3_128", cut)
    assert run_cli(["digest", str(path)]) == 3
    assert "truncated while it was read" in capsys.readouterr().out
